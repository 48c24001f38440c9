from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.services import wanted_units
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.changes import unit_changes

GROUPS = {"all": ["node1", "node2", "node3"], "workers": ["node2", "node3"]}
SERVICES = {"chat": {"head": "node1", "workers": "workers"}, "alone": {"head": "node1"}}


def unit(kind, service="chat", stale=False, active="active", installed=True, enabled=True, failed=0, managed=True):
    name = "llama-%s-%s.service" % (kind, service)
    found = {
        "name": name,
        "kind": kind,
        "service": service,
        "stale": stale,
        "active_state": active,
        "installed": installed,
        "enabled": enabled,
    }
    return dict(found, failed_in_a_row=failed, managed=managed)


def changes(host, node2=None, node1=None, services=None, degraded=()):
    nodes = {
        "node1": node1 or [unit("head"), unit("head", "alone")],
        "node2": [unit("rpc")] if node2 is None else node2,
        "node3": [unit("rpc")],
    }
    found = unit_changes(nodes, host, wanted_units(SERVICES if services is None else services, GROUPS), degraded)
    return {key: names for key, names in found.items() if names and key != "idle"}


def test_nothing_to_do_is_only_seeing_that_the_heads_are_up():
    assert changes("node1") == {"heads_up": ["llama-head-chat.service", "llama-head-alone.service"]}
    assert changes("node2") == {}


def test_a_stale_worker_takes_its_head_down_and_no_other():
    stale = [unit("rpc", stale=True)]
    assert changes("node2", stale) == {"workers_restart": ["llama-rpc-chat.service"]}
    assert changes("node1", stale)["heads_down"] == ["llama-head-chat.service"]
    assert changes("node3", stale) == {}


def test_a_head_that_waits_after_runs_that_failed_is_tried_at_once():
    assert changes("node1", node1=[unit("head", active="activating", failed=3)])["heads_down"] == [
        "llama-head-chat.service"
    ]
    # One that waits for its workers goes on waiting.
    assert "heads_down" not in changes("node1", node1=[unit("head", active="activating")])


def test_a_worker_that_waits_after_runs_that_failed_is_tried_at_once():
    waiting = [unit("rpc", active="activating", failed=3)]
    assert changes("node2", waiting)["workers_restart"] == ["llama-rpc-chat.service"], (
        "a start would join the one that waits"
    )
    assert changes("node1", waiting)["heads_down"] == ["llama-head-chat.service"]


def test_a_worker_that_is_down_or_about_to_be_restarted_takes_its_head_down():
    for state in ("inactive", "failed", "activating"):
        down = [unit("rpc", active=state)]
        assert changes("node2", down) == {"workers_start": ["llama-rpc-chat.service"]}
        assert changes("node1", down)["heads_down"] == ["llama-head-chat.service"]


def test_another_primary_service_takes_the_short_names():
    """The files are those of the new intent: the short names are of `alone` now, and run what `chat` was."""
    services = {"chat": {"head": "node1", "workers": "workers"}, "alone": {"head": "node1", "primary": True}}
    node1 = [
        dict(unit("head", "alone", stale=True), name="llama-head.service"),
        unit("head", "alone"),
        unit("head", "chat", active="inactive"),
    ]
    old = dict(unit("rpc"), name="llama-rpc.service")
    nodes = {"node1": node1, "node2": [old, unit("rpc", active="inactive")], "node3": []}
    wanted = wanted_units(services, GROUPS)
    assert sorted(wanted["node1"]) == ["llama-head-chat.service", "llama-head.service"]
    found = unit_changes(nodes, "node1", wanted)
    assert found["heads_down"] == ["llama-head-alone.service", "llama-head.service", "llama-head-chat.service"]
    assert found["heads_up"] == ["llama-head.service", "llama-head-chat.service"]
    assert found["unwanted"] == ["llama-head-alone.service"]
    workers = unit_changes(nodes, "node2", wanted)
    assert (workers["unwanted"], workers["workers_start"]) == (["llama-rpc.service"], ["llama-rpc-chat.service"])


def test_services_that_are_not_named_are_left_alone():
    """Whatever else waits for a run of site.yml: stale heads, dead workers, units that nobody wants."""
    nodes = {
        "node1": [unit("head", stale=True), unit("head", "alone", stale=True), unit("head", "gone")],
        "node2": [unit("rpc", active="failed")],
    }
    wanted = wanted_units(SERVICES, GROUPS)
    assert unit_changes(nodes, "node1", wanted, [], ["alone"])["heads_down"] == ["llama-head-alone.service"]
    assert unit_changes(nodes, "node1", wanted, [], ["alone"])["unwanted"] == []
    assert unit_changes(nodes, "node2", wanted, [], ["alone"])["idle"]
    assert unit_changes(nodes, "node2", wanted, [], ["chat"])["workers_start"] == ["llama-rpc-chat.service"]


def test_a_stale_or_degraded_head():
    assert changes("node1", node1=[unit("head", stale=True)])["heads_down"] == ["llama-head-chat.service"]
    assert changes("node1", degraded=["alone"])["heads_down"] == ["llama-head-alone.service"]


def test_units_of_a_service_that_is_gone_leave():
    services = {"alone": SERVICES["alone"]}
    found = changes("node1", services=services)
    assert found["heads_down"] == found["unwanted"] == ["llama-head-chat.service"]
    assert found["heads_up"] == ["llama-head-alone.service"]
    assert changes("node3", services=services) == {"unwanted": ["llama-rpc-chat.service"]}


def test_a_node_that_left_a_service_takes_the_head_down_once():
    services = dict(SERVICES, chat=dict(SERVICES["chat"], workers="node2"))
    assert changes("node3", services=services) == {"unwanted": ["llama-rpc-chat.service"]}
    assert changes("node1", services=services)["heads_down"] == ["llama-head-chat.service"]


def test_a_unit_without_a_file_is_not_ours_to_start():
    assert changes("node2", [unit("rpc", installed=False, active="inactive")]) == {}


def test_units_of_a_held_node_stay_down_and_the_other_heads_wait():
    held = [unit("rpc", active="inactive", enabled=False)]
    assert changes("node2", held) == {}
    assert changes("node1", held) == {"heads_up": ["llama-head-chat.service", "llama-head-alone.service"]}
    assert changes("node1", node1=[unit("head", active="inactive", enabled=False)]) == {}


def test_wanted_are_the_units_of_what_systemd_runs():
    services = dict(SERVICES, batch=dict(SERVICES["chat"], launcher="slurm"), fast={"kind": "router", "head": "node2"})
    assert wanted_units(services, GROUPS) == {
        "node1": ["llama-head-alone.service", "llama-head-chat.service"],
        "node2": ["llama-rpc-chat.service", "llama-router-fast.service"],
        "node3": ["llama-rpc-chat.service"],
    }


def test_a_router_is_a_head_without_workers():
    name = "llama-router-fast.service"

    def router(wanted=(name,), **seen):
        found = unit_changes({"node1": [unit("router", "fast", **seen)]}, "node1", {"node1": list(wanted)})
        return {key: names for key, names in found.items() if names and key != "idle"}

    assert router() == {"heads_up": [name]}
    assert router(stale=True) == {"heads_down": [name], "heads_up": [name]}
    assert router(()) == {"heads_down": [name], "unwanted": [name]}
    held = unit_changes({"node1": [dict(unit("router", "fast"), sub_state="running")]}, "node1", held="node1")
    assert held["heads_down"] == held["held"] == [name]


def test_idle_is_a_node_where_all_that_should_run_runs():
    def idle(head, wanted=None):
        nodes = {"node1": [unit("head"), head], "node2": [unit("rpc")], "node3": [unit("rpc")]}
        return unit_changes(nodes, "node1", wanted or wanted_units(SERVICES, GROUPS), [])["idle"]

    assert idle(unit("head", "alone")) is True
    assert idle(unit("head", "alone", active="activating")) is False
    assert idle(unit("head", "alone", stale=True)) is False
    assert (
        idle(
            unit("head", "alone"),
            {
                "node1": ["llama-head-chat.service"],
                "node2": ["llama-rpc-chat.service"],
                "node3": ["llama-rpc-chat.service"],
            },
        )
        is False
    )


def test_a_unit_that_only_has_a_name_like_ours_is_left_alone():
    assert changes("node2", [unit("rpc"), unit("rpc", "test", managed=False)]) == {}
    both = [unit("head"), unit("head", "alone"), unit("head", "test", managed=False)]
    assert changes("node1", node1=both) == {"heads_up": ["llama-head-chat.service", "llama-head-alone.service"]}


def stopped(host, head=None, rpc=None, names=("llama-head-chat.service", "llama-rpc-chat.service")):
    nodes = {"node1": [head or unit("head"), unit("head", "alone")], "node2": [rpc or unit("rpc")], "node3": []}
    return unit_changes(nodes, host, wanted_units(SERVICES, GROUPS), stopped=names)


def test_a_service_that_is_stopped_goes_down_and_stays_configured():
    found = stopped("node1")
    assert found["heads_down"] == found["resting"] == ["llama-head-chat.service"]
    assert (found["heads_up"], found["unwanted"], found["idle"]) == (["llama-head-alone.service"], [], False)
    found = stopped("node2")
    assert found["resting"] == ["llama-rpc-chat.service"] and not found["idle"]
    assert found["unwanted"] == found["workers_restart"] == found["workers_start"] == []


def test_a_service_that_is_stopped_already_is_left_alone():
    for state in ("inactive", "failed"):
        down = {"active": state, "enabled": False}
        for host in ("node1", "node2"):
            found = stopped(host, unit("head", **down), unit("rpc", **down))
            assert found["idle"] and not any(found[step] for step in found if step not in ("idle", "heads_up"))


def test_a_stopped_service_that_waits_or_would_start_at_boot_is_none():
    for head in (unit("head", active="activating", failed=3, enabled=False), unit("head", active="inactive")):
        found = stopped("node1", head, unit("rpc", active="inactive", enabled=False))
        assert found["resting"] == found["heads_down"] == ["llama-head-chat.service"]
    for rpc in (unit("rpc", active="activating", failed=3, enabled=False), unit("rpc", active="inactive")):
        assert stopped("node2", rpc=rpc)["resting"] == ["llama-rpc-chat.service"]


def test_what_is_stopped_and_not_ours_or_not_to_be_touched_goes_on():
    assert stopped("node1", unit("head", managed=False))["resting"] == []
    assert stopped("node2", rpc=unit("rpc", managed=False))["resting"] == []
    nodes = {"node1": [unit("head"), unit("head", "alone")]}
    wanted, name = wanted_units(SERVICES, GROUPS), "llama-head-chat.service"
    assert unit_changes(nodes, "node1", wanted, [], ["alone"], stopped=[name])["resting"] == []


def test_a_node_that_is_to_be_held_is_asked_of_the_same_filter():
    nodes = {"node1": [dict(unit("head"), sub_state="running")], "node2": [unit("rpc")]}
    found = unit_changes(nodes, "node1", held="node2")
    assert (found["heads_down"], found["held"], found["idle"]) == (["llama-head-chat.service"], [], False)
    assert "resting" not in found and "held" not in unit_changes({"node1": []}, "node1")
