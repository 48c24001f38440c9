from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.services import wanted_units
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._units.changes import unit_changes

GROUPS = {"all": ["node1", "node2", "node3"], "workers": ["node2", "node3"]}
SERVICES = {"chat": {"head": "node1", "workers": "workers"}, "base": {"head": "node1"}}


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
        "node1": node1 or [unit("head"), unit("head", "base")],
        "node2": [unit("rpc")] if node2 is None else node2,
        "node3": [unit("rpc")],
    }
    found = unit_changes(nodes, host, wanted_units(SERVICES if services is None else services, GROUPS), degraded)
    return {key: names for key, names in found.items() if names and key != "idle"}


def test_unchanged_node_only_starts_heads():
    assert changes("node1") == {"heads_up": ["llama-head-chat.service", "llama-head-base.service"]}
    assert changes("node2") == {}


def test_stale_worker_stops_only_its_head():
    stale = [unit("rpc", stale=True)]
    assert changes("node2", stale) == {"workers_restart": ["llama-rpc-chat.service"]}
    assert changes("node1", stale)["heads_down"] == ["llama-head-chat.service"]
    assert changes("node3", stale) == {}


def test_failed_head_restarts_at_once():
    assert changes("node1", node1=[unit("head", active="activating", failed=3)])["heads_down"] == [
        "llama-head-chat.service"
    ]
    # A head that waits for its workers keeps waiting.
    assert "heads_down" not in changes("node1", node1=[unit("head", active="activating")])


def test_failed_worker_restarts_at_once():
    waiting = [unit("rpc", active="activating", failed=3)]
    assert changes("node2", waiting)["workers_restart"] == ["llama-rpc-chat.service"], (
        "a start would join the one that waits"
    )
    assert changes("node1", waiting)["heads_down"] == ["llama-head-chat.service"]


def test_worker_that_is_down_stops_its_head():
    for state in ("inactive", "failed", "activating"):
        down = [unit("rpc", active=state)]
        assert changes("node2", down) == {"workers_start": ["llama-rpc-chat.service"]}
        assert changes("node1", down)["heads_down"] == ["llama-head-chat.service"]


def test_new_primary_service_takes_the_short_names():
    """The unit files already have the new intent: the short names belong to `base` now, and still run `chat`."""
    services = {"chat": {"head": "node1", "workers": "workers"}, "base": {"head": "node1", "primary": True}}
    node1 = [
        dict(unit("head", "base", stale=True), name="llama-head.service"),
        unit("head", "base"),
        unit("head", "chat", active="inactive"),
    ]
    old = dict(unit("rpc"), name="llama-rpc.service")
    nodes = {"node1": node1, "node2": [old, unit("rpc", active="inactive")], "node3": []}
    wanted = wanted_units(services, GROUPS)
    assert sorted(wanted["node1"]) == ["llama-head-chat.service", "llama-head.service"]
    found = unit_changes(nodes, "node1", wanted)
    assert found["heads_down"] == ["llama-head-base.service", "llama-head.service", "llama-head-chat.service"]
    assert found["heads_up"] == ["llama-head.service", "llama-head-chat.service"]
    assert found["unwanted"] == ["llama-head-base.service"]
    workers = unit_changes(nodes, "node2", wanted)
    assert (workers["unwanted"], workers["workers_start"]) == (["llama-rpc.service"], ["llama-rpc-chat.service"])


def test_services_that_are_not_named_stay():
    """Stale heads, dead workers and unwanted units wait for a run of site.yml."""
    nodes = {
        "node1": [unit("head", stale=True), unit("head", "base", stale=True), unit("head", "gone")],
        "node2": [unit("rpc", active="failed")],
    }
    wanted = wanted_units(SERVICES, GROUPS)
    assert unit_changes(nodes, "node1", wanted, [], ["base"])["heads_down"] == ["llama-head-base.service"]
    assert unit_changes(nodes, "node1", wanted, [], ["base"])["unwanted"] == []
    assert unit_changes(nodes, "node2", wanted, [], ["base"])["idle"]
    assert unit_changes(nodes, "node2", wanted, [], ["chat"])["workers_start"] == ["llama-rpc-chat.service"]


def test_a_stale_or_degraded_head():
    assert changes("node1", node1=[unit("head", stale=True)])["heads_down"] == ["llama-head-chat.service"]
    assert changes("node1", degraded=["base"])["heads_down"] == ["llama-head-base.service"]


def test_units_of_a_removed_service_go():
    services = {"base": SERVICES["base"]}
    found = changes("node1", services=services)
    assert found["heads_down"] == found["unwanted"] == ["llama-head-chat.service"]
    assert found["heads_up"] == ["llama-head-base.service"]
    assert changes("node3", services=services) == {"unwanted": ["llama-rpc-chat.service"]}


def test_node_that_left_stops_the_head_once():
    services = dict(SERVICES, chat=dict(SERVICES["chat"], workers="node2"))
    assert changes("node3", services=services) == {"unwanted": ["llama-rpc-chat.service"]}
    assert changes("node1", services=services)["heads_down"] == ["llama-head-chat.service"]


def test_unit_without_a_file_is_not_started():
    assert changes("node2", [unit("rpc", installed=False, active="inactive")]) == {}


def test_units_of_a_held_node_stay_down():
    held = [unit("rpc", active="inactive", enabled=False)]
    assert changes("node2", held) == {}
    assert changes("node1", held) == {"heads_up": ["llama-head-chat.service", "llama-head-base.service"]}
    assert changes("node1", node1=[unit("head", active="inactive", enabled=False)]) == {}


def test_wanted_units_exclude_services_of_slurm():
    services = dict(SERVICES, batch=dict(SERVICES["chat"], launcher="slurm"), fast={"kind": "router", "head": "node2"})
    assert wanted_units(services, GROUPS) == {
        "node1": ["llama-head-base.service", "llama-head-chat.service"],
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


def test_idle_node_runs_every_wanted_unit():
    def idle(head, wanted=None):
        nodes = {"node1": [unit("head"), head], "node2": [unit("rpc")], "node3": [unit("rpc")]}
        return unit_changes(nodes, "node1", wanted or wanted_units(SERVICES, GROUPS), [])["idle"]

    assert idle(unit("head", "base")) is True
    assert idle(unit("head", "base", active="activating")) is False
    assert idle(unit("head", "base", stale=True)) is False
    assert (
        idle(
            unit("head", "base"),
            {
                "node1": ["llama-head-chat.service"],
                "node2": ["llama-rpc-chat.service"],
                "node3": ["llama-rpc-chat.service"],
            },
        )
        is False
    )


def test_unmanaged_unit_with_our_name_stays():
    assert changes("node2", [unit("rpc"), unit("rpc", "test", managed=False)]) == {}
    both = [unit("head"), unit("head", "base"), unit("head", "test", managed=False)]
    assert changes("node1", node1=both) == {"heads_up": ["llama-head-chat.service", "llama-head-base.service"]}


def stopped(host, head=None, rpc=None, names=("llama-head-chat.service", "llama-rpc-chat.service")):
    nodes = {"node1": [head or unit("head"), unit("head", "base")], "node2": [rpc or unit("rpc")], "node3": []}
    return unit_changes(nodes, host, wanted_units(SERVICES, GROUPS), stopped=names)


def test_stopped_service_goes_down_and_stays_configured():
    found = stopped("node1")
    assert found["heads_down"] == found["resting"] == ["llama-head-chat.service"]
    assert (found["heads_up"], found["unwanted"], found["idle"]) == (["llama-head-base.service"], [], False)
    found = stopped("node2")
    assert found["resting"] == ["llama-rpc-chat.service"] and not found["idle"]
    assert found["unwanted"] == found["workers_restart"] == found["workers_start"] == []


def test_service_that_is_stopped_already_stays():
    for state in ("inactive", "failed"):
        down = {"active": state, "enabled": False}
        for host in ("node1", "node2"):
            found = stopped(host, unit("head", **down), unit("rpc", **down))
            assert found["idle"] and not any(found[step] for step in found if step not in ("idle", "heads_up"))


def test_stopped_service_waiting_or_enabled_is_stopped():
    for head in (unit("head", active="activating", failed=3, enabled=False), unit("head", active="inactive")):
        found = stopped("node1", head, unit("rpc", active="inactive", enabled=False))
        assert found["resting"] == found["heads_down"] == ["llama-head-chat.service"]
    for rpc in (unit("rpc", active="activating", failed=3, enabled=False), unit("rpc", active="inactive")):
        assert stopped("node2", rpc=rpc)["resting"] == ["llama-rpc-chat.service"]


def test_unmanaged_or_unnamed_stopped_units_keep_running():
    assert stopped("node1", unit("head", managed=False))["resting"] == []
    assert stopped("node2", rpc=unit("rpc", managed=False))["resting"] == []
    nodes = {"node1": [unit("head"), unit("head", "base")]}
    wanted, name = wanted_units(SERVICES, GROUPS), "llama-head-chat.service"
    assert unit_changes(nodes, "node1", wanted, [], ["base"], stopped=[name])["resting"] == []


def test_held_node_uses_hold_changes():
    nodes = {"node1": [dict(unit("head"), sub_state="running")], "node2": [unit("rpc")]}
    found = unit_changes(nodes, "node1", held="node2")
    assert (found["heads_down"], found["held"], found["idle"]) == (["llama-head-chat.service"], [], False)
    assert "resting" not in found and "held" not in unit_changes({"node1": []}, "node1")
