# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Order, refusals and interrupted runs of playbooks, over simulated nodes (simulation.py)."""

import copy
import json
import re
import shutil

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks import simulation
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    BRIEF,
    Simulation,
    deployment,
    once,
)

HEAD, WORKER = "llama-head-chat.service", "llama-rpc-chat.service"
ALL_B1 = {"head-chat": "b1", "rpc-chat": "b1"}
ALL_B2 = {"head-chat": "b2", "rpc-chat": "b2"}
TO_B2 = ("-e", "tag=b2")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """The result of site.yml: b1 runs on both nodes."""
    cluster = deployment(tmp_path_factory, "deployed", **BRIEF)
    assert cluster.builds() == ALL_B1
    return cluster


@pytest.fixture
def cluster(deployed, tmp_path):
    return deployed.copy(tmp_path)


@pytest.fixture(scope="module")
def upgraded(deployed, tmp_path_factory):
    """An upgrade to b2, with the moments at which a run may have died."""

    def make(folder):
        cluster = deployed.copy(folder)
        cluster.keep_moments(
            staged="node1 snapshot opened",
            written="node1 ask " + HEAD,
            down="node2 restarted " + WORKER,
            up="node1 started " + HEAD,
            proving="node1 ask " + HEAD,
        )
        cluster.done("upgrade", *TO_B2)
        assert cluster.builds() == ALL_B2 and cluster.current() == ["b2", "b2"]

    return Simulation(once(tmp_path_factory, "upgraded", make), deployed.home)


@pytest.fixture(scope="module")
def rolled_back(deployed, tmp_path_factory):
    """An upgrade to a build that does not serve, with the moment at which its rollback may have died."""

    def make(folder):
        cluster = deployed.copy(folder)
        cluster.keep_moments(
            up="node1 started " + HEAD, restored="node1 stopped " + HEAD, undoing="node2 restarted " + WORKER
        )
        assert (
            "upgrade: llama_health: http://node1:8000 is loading: it has been loading for ever: rolled back, b1 serves "
            "again, "
        ) in cluster.refused("upgrade", "-e", "tag=b2-mute")

    return Simulation(once(tmp_path_factory, "rolled_back", make), deployed.home)


def disturbed(cluster):
    """Events that change what serves."""
    return [
        event
        for event in cluster.events
        if event.split()[1] in ("configure", "stopped", "started", "restarted", "activate")
    ]


def test_output_of_first_and_second_run(deployed, cluster):
    """A table of services, and few lines more."""
    first = json.loads((deployed.folder / "first.json").read_text())
    assert len(first) <= 20
    assert [line.partition(" ")[0] for line in first[-3:-1]] == ["next:", "logs:"]
    assert " changed, verified in " in first[-1]
    status, lines = cluster.run_lines("site", **BRIEF)
    assert status == 0, lines
    assert len(lines) <= 6, "\n".join(lines)
    assert lines[-3].split()[:3] == ["service", "nodes", "layers"]
    assert re.fullmatch(r"chat +node1, node2 +0, 30 +10.0 +http://node1:8000/v1 +answers, tools: called", lines[-2])
    assert lines[-1].startswith("no change, verified in ")
    assert not any(line.startswith(("next:", "logs:")) for line in lines)


def test_ten_services_are_a_row_each(cluster):
    chat = cluster.inventory["llama_nodes"]["vars"]["llama_services"]["chat"]
    small = {"model": "m", "quant": "F16"}
    nine = {"service%d" % number: dict(small, head="node%d" % (1 + number % 2)) for number in range(1, 10)}
    given = ("-e", json.dumps({"llama_services": dict(nine, chat=chat)}))
    for name in simulation.NODES:
        (cluster.node(name) / "health.json").write_text(json.dumps({"n_ctx": 4096, "slots": 2}))
    status, lines = cluster.run_lines("site", *given, **BRIEF)
    assert status == 0 and len(lines) <= 40, "\n".join(lines)
    status, lines = cluster.run_lines("site", *given, **BRIEF)
    assert status == 0 and len(lines) <= 15, "\n".join(lines)
    rows = [line for line in lines if "answers" in line]
    assert [row.split()[0] for row in rows] == ["chat", *sorted(nine)] and len({len(row) for row in rows}) == 1
    assert "  2 x 4096  " in rows[0] and max(map(len, lines)) <= 120


# verify


def test_worker_without_its_layers_is_refused(cluster):
    sizes = {"model_mib": 1.0, "kv_mib": 1.0, "compute_mib": 1.0}
    loaded = {"reason": None, "devices": [dict(sizes, device="RPC0", endpoint="10.0.0.2:50052", layers=29)]}
    (cluster.node("node1") / "load.json").write_text(json.dumps(loaded))
    assert (
        "llama_services.chat: worker 10.0.0.2:50052 holds 29 layers of m, 30 needed: see journalctl -u "
        "llama-head-chat.service on node1"
    ) in cluster.refused("_verify")


def test_unknown_bytes_of_ss_are_reported(cluster):
    unknown = {
        "workers": [{"endpoint": "10.0.0.2:50052", "connected": True, "bytes_sent": None, "bytes_received": None}]
    }
    (cluster.node("node1") / "health.json").write_text(json.dumps(unknown))
    assert "chat" in cluster.done("_verify")


# The conversation


def talks(cluster):
    return [event for event in cluster.events if event.split()[1] in ("talk", "fill")]


def test_unchanged_run_asks_only_plainly(cluster):
    cluster.done("site")
    assert talks(cluster) == ["node1 talk plain with " + HEAD]
    (cluster.node("node1") / "run" / HEAD).unlink()
    output = cluster.done("site")
    assert talks(cluster) == ["node1 talk full with " + HEAD]
    assert "http://node1:8000/v1 answers, tools: called" in output


def test_verify_talks_fully_and_fills_slot(cluster):
    cluster.done("verify")
    assert talks(cluster) == ["node1 talk full with " + HEAD]
    output = cluster.done("verify", "-e", "deep=true")
    assert talks(cluster) == ["node1 talk full with " + HEAD, "node1 fill " + HEAD]
    assert "answers, tools: called 3686 of the 4096 tokens of a slot read in 15 s" in output


def test_speed_of_long_prompt_is_kept_with_plan(cluster):
    kept = cluster.node("node1") / "var/lib/llama-cluster/prompt-chat.json"
    cluster.done("verify", "-e", "deep=true")
    assert not kept.exists(), "without a plan its conditions are unknown"
    plan = {"node": "node1", "model": "m", "devices": [], "layers": {}, "tensor_split": [], "cpu_moe": 0}
    plan["inputs"] = ["m", 1]
    given = json.dumps({"preflight_plan": {"services": {"chat": [plan]}}})
    cluster.done("verify", "-e", "deep=true", "-e", given)
    found = json.loads(kept.read_text())
    assert (found["tokens"], found["seconds"], found["inputs"]) == (3686, 14.7, ["m", 1])
    assert re.match(r"^20\d\d-\d\d-\d\dT", found["measured_at"])


BROKEN = "a request with tools is answered 500 (Object expected), 200 is needed: set another chat_template or build"


def test_service_with_broken_conversation_is_refused(cluster):
    (cluster.node("node1") / "conversation").write_text(BROKEN)
    assert "http://node1:8000 is degraded: " + BROKEN in cluster.refused("_verify")


def test_switch_with_broken_conversation_is_undone(deployed, cluster):
    (cluster.node("node1") / "conversation").write_text(BROKEN)
    assert BROKEN in cluster.refused("switch_model", "-e", "service=chat quant=Q8_0")
    assert models(cluster) == ["/opt/models/m.gguf"] and cluster.configuration() == deployed.configuration()
    assert cluster.builds() == ALL_B1


def test_rollback_with_broken_conversation_completes_and_fails(upgraded, tmp_path):
    cluster = upgraded.copy(tmp_path)
    (cluster.node("node1") / "conversation").write_text(BROKEN)
    assert BROKEN in cluster.refused("rollback")
    assert cluster.builds() == ALL_B1 and cluster.current() == ["b1", "b1"]
    assert cluster.snapshots() == [["last.json"], ["last.json"]]


# Check mode


@pytest.mark.parametrize(
    "state,playbook,settings",
    [
        ("deployed", "maintenance", "node=node2"),
        ("held", "maintenance", "node=node2 state=return"),
        ("upgraded", "rollback", "tag=b2"),
        ("deployed", "upgrade", "tag=b2"),
        ("deployed", "switch_model", "service=chat quant=Q8_0"),
        ("manual", "adopt", "undo=false"),
    ],
)
def test_check_mode_changes_nothing(request, tmp_path_factory, state, playbook, settings):
    cluster = request.getfixturevalue(state).copy(tmp_path_factory.mktemp("checked"))
    before = cluster.files()
    output = cluster.done(playbook, "--check", "--diff", "-e", settings)
    assert cluster.files() == before and disturbed(cluster) == []
    # It reports the changes that it would make.
    assert re.search(r"changed=[1-9]", output)


# Before a start


def test_different_builds_start_nothing(cluster):
    cluster.install("node2", "b1", "another program")
    (cluster.node("node2") / "run" / WORKER).unlink()
    output = cluster.refused("_apply")
    assert (
        "/opt/llama.cpp/releases/b1: different builds on the nodes (node1 has " in output
        and "one identical build is needed: remove it on those that differ and run with --tags build" in output
    )
    assert disturbed(cluster) == []


def test_a_build_with_changed_files_starts_nothing(cluster):
    (cluster.release("node2", "b1") / "program").write_text("changed")
    (cluster.node("node2") / "run" / WORKER).unlink()
    assert (
        "node2: program of build b1 differ from its build.json, an intact build is needed: remove the release and run "
        "with --tags build"
    ) in cluster.refused("_apply")
    assert disturbed(cluster) == []


# Maintenance


def test_running_requests_end_before_anything_stops(cluster):
    cluster.done("maintenance", "-e", "node=node2")
    assert cluster.events == [
        "node1 drain %s for 300 s" % HEAD,
        "node2 copy /etc/llama-cluster/held.json",
        "node1 stopped " + HEAD,
        "node2 stopped " + WORKER,
        "node2 disabled " + WORKER,
        "node1 started " + HEAD,
    ]
    held = cluster.configuration()
    # An upgrade with a held node is refused.
    assert (
        "upgrade: node2 is held for maintenance, a node that takes part is needed: return it with maintenance.yml -e "
        "node=node2 -e state=return"
    ) in cluster.refused("upgrade", *TO_B2)
    assert disturbed(cluster) == [] and cluster.configuration() == held


def test_a_node_without_a_unit_cannot_be_held(cluster):
    (cluster.node("node2") / "etc/systemd/system" / WORKER).unlink()
    (cluster.node("node2") / "etc/systemd/system/multi-user.target.wants" / WORKER).unlink()
    (cluster.node("node2") / "run" / WORKER).unlink()
    assert (
        "maintenance: no unit of a service seen on node2, at least one is needed to hold it: run site.yml first"
        in cluster.refused("maintenance", "-e", "node=node2")
    )
    assert cluster.events == []


@pytest.fixture(scope="module")
def held(deployed, tmp_path_factory):
    """node2 is held, as maintenance.yml leaves it."""
    cluster = deployed.copy(tmp_path_factory.mktemp("held"))
    (cluster.node("node2") / "etc/llama-cluster/held.json").write_text('{"since": "2026-11-22T00:00:00Z"}')
    (cluster.node("node2") / "etc/systemd/system/multi-user.target.wants" / WORKER).unlink()
    for path in (cluster.node("node2") / "run" / WORKER, cluster.node("node1") / "run" / HEAD):
        path.unlink()
    return cluster


def test_unfit_node_does_not_return(held, tmp_path):
    cluster = held.copy(tmp_path)
    returns = ("-e", "node=node2 state=return")
    cluster.install("node2", "b1", "another program")
    assert "/opt/llama.cpp/releases/b1: different builds on the nodes (node1 has " in cluster.refused(
        "maintenance", *returns
    )
    assert cluster.events == []
    cluster.install("node2", "b1")
    (cluster.release("node2", "b1") / "program").unlink()
    assert "node2: program of build b1 differ from its build.json, an intact build is needed" in cluster.refused(
        "maintenance", *returns
    )
    assert cluster.events == []
    cluster.install("node2", "b1")
    for accelerator, reason in (("cuda", "no nvidia-smi"), ("vulkan", "no render node")):
        builds = {"llama_builds": {"default": {"version": "b1", "accelerator": accelerator}}}
        assert (
            f"node2: no GPU seen ({reason}), the one that its build for {accelerator} needs is missing: correct that, "
            "then return it"
        ) in cluster.refused("maintenance", *returns, "-e", json.dumps(builds))
        assert cluster.events == []


def test_fit_node_returns(held, tmp_path):
    cluster = held.copy(tmp_path)
    cluster.done("maintenance", "-e", "node=node2 state=return")
    assert cluster.events[:4] == [
        "node2 remove /etc/llama-cluster/held.json",
        "node2 enabled " + WORKER,
        "node2 started " + WORKER,
        "node1 started " + HEAD,
    ]
    assert cluster.builds() == ALL_B1


# Upgrades


def test_staged_builds_that_differ_stop_nothing(cluster):
    cluster.install("node2", "b2", "another program")
    before = cluster.configuration()
    output = cluster.refused("upgrade", *TO_B2)
    assert (
        "/opt/llama.cpp/releases/b2: different builds on the nodes (node1 has " in output
        and "remove it on those that differ and run with --tags build" in output
    )
    assert disturbed(cluster) == [] and cluster.configuration() == before and cluster.snapshots() == [[], []]


def test_build_that_does_not_serve_is_undone(deployed, rolled_back):
    assert rolled_back.builds() == ALL_B1 and rolled_back.current() == ["b1", "b1"]
    assert rolled_back.configuration() == deployed.configuration() and rolled_back.snapshots() == [[], []]


def test_slow_build_is_rolled_back(upgraded, tmp_path):
    """Without upgrade_min_ratio. A run that died has kept the 10 tokens/s of the old build."""
    cluster = upgraded.copy(tmp_path, "at-proving")
    (cluster.node("node1") / "health.json").write_text('{"tokens_per_second": 7.9}')
    assert "llama_services.chat generates 7.9 tokens/s, 8.0 are needed (0.8 of the 10.0 " in cluster.refused(
        "upgrade", *TO_B2
    )
    assert cluster.builds() == ALL_B1


def test_unmeasured_build_is_reported(upgraded, tmp_path):
    cluster = upgraded.copy(tmp_path, "at-proving")
    (cluster.node("node1") / "health.json").write_text('{"state": "busy", "reason": "1 of 1 slots work"}')
    assert "chat: its speed was not measured (busy, 1 of 1 slots work) and may be lower than before: " in cluster.done(
        "upgrade", *TO_B2
    )


def test_build_with_deaf_worker_is_rolled_back(deployed, cluster):
    output = cluster.refused("upgrade", "-e", "tag=b2-deaf")
    assert (
        "llama-rpc-chat.service: no listener at 10.0.0.2:50052 of node2 15 s after the start, a worker that listens is "
        "needed" in output
    )
    assert "rolled back, b1 serves again" in output
    assert cluster.builds() == ALL_B1 and cluster.configuration() == deployed.configuration()


def test_lost_node_restores_the_others(deployed, cluster):
    cluster.lose("node2 restarted " + WORKER)
    output = cluster.refused("upgrade", *TO_B2)
    assert (
        "upgrade: node2 cannot be reached any more: the old one is not back either (" in output
        and "correct this and run rollback.yml" in output
    )
    assert cluster.builds()["head-chat"] == "b1" and cluster.current() == ["b1", "b1"]
    assert cluster.snapshots() == [["open.json"], ["open.json"]]
    (cluster.node("node2") / "lost").unlink()
    cluster.done("rollback")
    assert cluster.builds() == ALL_B1 and cluster.configuration() == deployed.configuration()


def test_node_that_cannot_restore_restores_the_others(deployed, cluster):
    cluster.fail("node2 snapshot restored")
    output = cluster.refused("upgrade", "-e", "tag=b2-mute")
    assert (
        "it has been loading for ever: the old one is not back either (llama_health: http://node1:8000 is degraded: "
        in output
    )
    assert "; no space left), correct this and run rollback.yml" in output
    head = "nodes/node1/etc/systemd/system/" + HEAD
    assert cluster.builds()["head-chat"] == "b1" and cluster.configuration()[head] == deployed.configuration()[head]
    assert cluster.snapshots() == [["open.json"], ["open.json"]]


def test_run_that_died_staging_changed_nothing(deployed, upgraded, tmp_path):
    cluster = upgraded.copy(tmp_path, "at-staged")
    assert cluster.builds() == ALL_B1 and cluster.current() == ["b1", "b1"]
    assert cluster.configuration() == deployed.configuration()


# The table of docs/operations.md: what serves after a run that died there, and what finishes it.
@pytest.mark.parametrize(
    "moment,serves,finishes,then",
    [
        ("written", ALL_B1, "site", ALL_B2),
        ("written", ALL_B1, "rollback", ALL_B1),
        ("down", {"rpc-chat": "b1"}, "site", ALL_B2),
        ("down", {"rpc-chat": "b1"}, "rollback", ALL_B1),
        ("proving", ALL_B2, "upgrade", ALL_B2),
    ],
)
def test_a_run_that_died_is_finished(deployed, upgraded, tmp_path, moment, serves, finishes, then):
    cluster = upgraded.copy(tmp_path, "at-" + moment)
    assert cluster.builds() == serves and cluster.current() == ["b1", "b1"]
    assert cluster.snapshots() == [["open.json"], ["open.json"]]
    (cluster.node("node1") / "health.json").write_text('{"tokens_per_second": 8.0}')
    output = cluster.done(finishes, *(TO_B2 if finishes != "rollback" else ()))
    assert cluster.builds() == then and set(cluster.current()) == set(then.values())
    assert cluster.configuration() == (deployed if then == ALL_B1 else upgraded).configuration()
    # From here on rollback.yml restores the state before the switch.
    assert cluster.snapshots() == [["last.json"], ["last.json"]]
    if finishes == "upgrade":
        assert "chat: b2 serves, which finishes what an earlier run began" in output
        # Against what was measured before the switch.
        assert "chat: 8.0 tokens/s, prompts 50.0 tokens/s (median of 1); before: 10.0 and 50.0 with b1" in output


def test_a_rollback_that_died_is_finished_by_rollback(deployed, rolled_back, tmp_path):
    cluster = rolled_back.copy(tmp_path, "at-undoing")
    assert "head-chat" not in cluster.builds()
    cluster.done("rollback")
    assert cluster.builds() == ALL_B1 and cluster.configuration() == deployed.configuration()


# A node is gone for good


def test_removed_node_is_not_contacted(upgraded, tmp_path):
    """It was lost in the middle of an upgrade; its service has other nodes now."""
    cluster = upgraded.copy(tmp_path, "at-written")
    before = cluster.files()
    inventory = copy.deepcopy(simulation.INVENTORY)
    del inventory["llama_nodes"]["hosts"]["node2"]
    inventory["llama_nodes"]["vars"]["llama_services"]["chat"] = {
        key: simulation.SERVICE[key] for key in ("model", "quant", "head", "port")
    }
    cluster.inventory = inventory
    (cluster.node("node1") / "load.json").write_text('{"reason": null, "devices": []}')
    cluster.done("site", *TO_B2)
    assert not any("node2" in event for event in cluster.events)
    assert {"node1 stopped " + HEAD, "node1 started " + HEAD} <= set(disturbed(cluster))
    assert cluster.builds()["head-chat"] == "b2"
    assert cluster.snapshots()[0] == ["last.json"]
    of_node2 = [path for path in before if path.startswith("nodes/node2/")]
    assert of_node2 and all(cluster.files()[path] == before[path] for path in of_node2)


def test_no_rollback_with_a_node_that_was_replaced(upgraded, tmp_path):
    cluster = upgraded.copy(tmp_path)
    shutil.rmtree(cluster.node("node2") / "var/lib/llama-cluster/rollback")
    output = cluster.refused("rollback")
    assert re.search(r"rollback: no snapshot of \S+ on node2, one that upgrade.yml took is needed", output)
    assert disturbed(cluster) == []


# Another quant of a model


def models(cluster):
    """The models of what runs on node1."""
    processes = [json.loads(path.read_text()) for path in sorted((cluster.node("node1") / "run").iterdir())]
    return [process["arguments"][process["arguments"].index("--model") + 1] for process in processes]


def test_switch_restarts_only_head_and_rolls_back(deployed, cluster):
    output = cluster.done("switch_model", "-e", "service=chat quant=Q8_0")
    assert models(cluster) == ["/opt/models/m8.gguf"]
    assert disturbed(cluster) == ["node1 configure " + HEAD, "node1 stopped " + HEAD, "node1 started " + HEAD]
    # Nothing stops before the model is there.
    assert cluster.events.index("node1 model fetch") < cluster.events.index("node1 configure " + HEAD)
    assert "chat: m8.gguf serves, /opt/models/m.gguf stays on node1" in output
    assert (
        "the inventory says F16: set the quant of llama_services.chat to Q8_0 there, or the next site.yml switches back"
        in output
    )
    assert cluster.snapshots() == [["last.json"], ["last.json"]]
    # A second run changes nothing, and leaves the way back.
    cluster.done("switch_model", "-e", "service=chat quant=Q8_0")
    assert disturbed(cluster) == [] and cluster.snapshots() == [["last.json"], ["last.json"]]
    assert "node1 ask " + HEAD in cluster.events
    cluster.done("rollback")
    assert models(cluster) == ["/opt/models/m.gguf"] and cluster.configuration() == deployed.configuration()


def test_switch_keeps_other_services(cluster):
    """The unit of a service that is in no inventory any more, as before the next run of site.yml."""
    other = HEAD.replace("chat", "other")
    for folder in ("etc/systemd/system", "run"):
        path = cluster.node("node1") / folder / HEAD
        path.with_name(other).write_text(path.read_text().replace('"8000"', '"8001"'))
    cluster.done("switch_model", "-e", "service=chat quant=Q8_0 retire=after")
    assert not any(other in event for event in disturbed(cluster)) and "node1 model retire" in cluster.events
    # Without its model there is nothing to go back to.
    assert cluster.snapshots() == [[], []]


def test_model_that_does_not_load_is_undone(deployed, cluster):
    assert (
        "llama_services.chat: the new model does not serve (llama_health: http://node1:8000 is loading: it has been "
        "loading for ever), the old one serves again: see journalctl -t llama-head-chat on node1"
    ) in cluster.refused("switch_model", "-e", "service=chat quant=Q4_X")
    assert models(cluster) == ["/opt/models/m.gguf"] and cluster.configuration() == deployed.configuration()
    assert cluster.snapshots() == [[], []] and "node1 model retire" not in cluster.events


@pytest.mark.parametrize("when", ["first", "after"])
def test_unremovable_old_model_is_refused_before_switch(deployed, cluster, when):
    cluster.fail("node1 model record")
    cluster.refused("switch_model", "-e", "service=chat quant=Q8_0 retire=" + when)
    assert cluster.events[-1] == "node1 model record"
    assert (
        disturbed(cluster) == []
        and cluster.configuration() == deployed.configuration()
        and cluster.snapshots() == [[], []]
    )


def test_model_that_cannot_be_fetched_stops_nothing(deployed, cluster):
    cluster.fail("node1 model fetch")
    assert "no space left" in cluster.refused("switch_model", "-e", "service=chat quant=Q8_0")
    assert (
        disturbed(cluster) == []
        and cluster.configuration() == deployed.configuration()
        and cluster.snapshots() == [[], []]
    )


def test_parked_model_returns_before_its_head_starts(deployed, cluster):
    cluster.fail("node1 model fetch")
    assert (
        "llama_services.chat: the new model does not serve (no space left), m.gguf is back from node2 and serves again"
        in cluster.refused("switch_model", "-e", "service=chat quant=Q8_0 park=node2")
    )
    assert disturbed(cluster) == ["node1 stopped " + HEAD, "node1 started " + HEAD]
    assert cluster.events.index("node1 model unpark") < cluster.events.index("node1 started " + HEAD)
    assert cluster.configuration() == deployed.configuration() and cluster.snapshots() == [[], []]


def test_lost_parked_model_is_named(deployed, cluster):
    cluster.fail("node1 model unpark")
    assert (
        "it has been loading for ever), the old one does not answer either (no space left): see journalctl -t "
        "llama-head-chat on node1"
    ) in cluster.refused("switch_model", "-e", "service=chat quant=Q4_X park=node2")
    # The next run, or rollback.yml, goes on with it.
    assert cluster.snapshots() == [["open.json"], ["open.json"]]
    cluster.done("rollback")
    assert models(cluster) == ["/opt/models/m.gguf"] and cluster.configuration() == deployed.configuration()


def test_switch_is_refused_with_a_held_node(held, tmp_path):
    cluster = held.copy(tmp_path)
    before = cluster.files()
    assert (
        "switch_model: node2 is held for maintenance, a node that takes part is needed: return it with maintenance.yml "
        "-e node=node2"
    ) in cluster.refused("switch_model", "-e", "service=chat quant=Q8_0")
    assert cluster.files() == before and cluster.events == []


# Adoption


@pytest.fixture
def manual(deployed, tmp_path):
    """A manual deployment serves; only the build is managed."""
    cluster = deployed.copy(tmp_path)
    for name, kind in (("node1", "head"), ("node2", "worker")):
        (cluster.node(name) / "by-hand").write_text(kind)
        for folder in ("etc/systemd/system", "run"):
            for path in sorted((cluster.node(name) / folder).rglob("llama-*")):
                path.unlink()
    return cluster


def serves_manually(cluster):
    return [(cluster.node(name) / "by-hand").exists() for name in ("node1", "node2")]


def recorded(cluster):
    return [(cluster.node(name) / "var/lib/llama-cluster/adopted/record.json").exists() for name in ("node1", "node2")]


def test_heads_stop_before_workers_and_start_after_them(manual):
    output = manual.done("adopt")
    order = [
        "node1 adoption stop head",
        "node2 adoption stop worker",
        "node2 started " + WORKER,
        "node1 started " + HEAD,
        "node1 ask " + HEAD,
    ]
    assert [event for event in manual.events if event in order] == order
    assert manual.events.index("node2 adoption put_aside") < manual.events.index("node2 started " + WORKER)
    assert "adopt: nothing answered for at most " in output and "adopt.yml -e undo=true brings it back" in output
    assert manual.builds() == ALL_B1 and serves_manually(manual) == [False, False] and recorded(manual) == [True, True]
    # Nothing is left to do, and nothing is undone but when it is asked for.
    output = manual.done("adopt")
    assert "adopt: no manual deployment on node1, node2, nothing is to be done" in output and disturbed(manual) == []
    assert "adopt: undone, the old one serves again; nothing answered for " in manual.done("adopt", "-e", "undo=true")
    order = [
        "node1 remove all of head_server",
        "node2 remove all of rpc_worker",
        "node2 adoption start worker",
        "node1 adoption start head",
    ]
    assert [event for event in manual.events if event in order] == order
    assert serves_manually(manual) == [True, True] and recorded(manual) == [False, False]


@pytest.mark.parametrize("broken", [False, True])
def test_failed_adoption_restores_the_manual_deployment(manual, broken):
    for name in ("node1", "node2"):
        manual.install(name, "b1-mute")
    if broken:
        (manual.node("node1") / "broken").touch()
    output = manual.refused("adopt", "-e", "tag=b1-mute")
    end = "and the old one does not answer either: old no listener" if broken else "the old one serves again"
    reason = "llama_health: http://node1:8000 is loading: it has been loading for ever"
    assert (
        "adopt: the new deployment does not serve (%s), %s: correct that, then run adopt.yml again" % (reason, end)
        in output
    )
    # The record stays for as long as something is to be repaired by it.
    assert serves_manually(manual) == [True, True] and recorded(manual) == [broken, broken]
    if broken:
        assert (
            "adopt: the managed deployment is gone, and the old one does not answer either: old no listener: see "
            "journalctl on the node"
        ) in manual.refused("adopt", "-e", "undo=true")


# Teardown


def removed(cluster):
    """{node: the roles whose things went, in order}"""
    return {
        node: [event.split()[-1] for event in cluster.events if event.startswith(node + " remove all of ")]
        for node in ("node1", "node2")
    }


@pytest.mark.parametrize("models", [False, True])
def test_teardown_removes_models_only_on_request(cluster, models):
    output = cluster.done("teardown", *(("-e", "teardown_models=true") if models else ()))
    roles = ["router_server", "head_server", "rpc_worker", "llama_cpp", *["model"] * models, "node_setup"]
    assert removed(cluster) == dict.fromkeys(("node1", "node2"), roles)
    assert ("Models in /opt/models were kept; run with -e teardown_models=true" in output) is not models


def test_teardown_refuses_while_an_adoption_can_be_undone(cluster):
    """One node's record is enough: on the others nothing goes either."""
    record = cluster.node("node2") / "var/lib/llama-cluster/adopted/record.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"created": "2026-10-01T08:00:00Z", "finished": True, "heads": []}))
    assert (
        "the deployment of before 2026-10-01T08:00:00Z is saved there on node2, none may be: bring it back with "
        "adopt.yml -e undo=true"
    ) in cluster.refused("teardown", "-e", "teardown_models=true")
    assert cluster.events == []


def test_port_closed_to_clients_fails_verify(cluster):
    (cluster.node("node1") / "closed").touch()
    asker = cluster.node("asker")
    asker.write_text("10.0.0.2")
    assert (
        "llama_services.chat.port: node2 (10.0.0.2) gets no answer from http://node1:8000/v1 (No route to host), which "
        "answers on node1 itself"
    ) in cluster.refused("verify")
    # From there the port need not be reachable.
    asker.write_text("192.0.2.9")
    assert "chat: not asked from another machine, node2 is no client of its port (10.0.0.0/24)" in cluster.done(
        "verify"
    )


def test_missing_service_cannot_be_switched(cluster):
    (cluster.node("node1") / "etc/systemd/system" / HEAD).unlink()
    (cluster.node("node1") / "run" / HEAD).unlink()
    before = cluster.files()
    assert "%s: missing on node1, a deployed service is needed: run playbooks/site.yml first" % HEAD in cluster.refused(
        "switch_model", "-e", "service=chat quant=F16"
    )
    assert cluster.files() == before and cluster.events == []


def test_services_of_e_cannot_be_switched(deployed, tmp_path):
    cluster = deployed.copy(tmp_path)
    services = json.dumps({"llama_services": simulation.INVENTORY["llama_nodes"]["vars"]["llama_services"]})
    assert "switch_model: llama_services given with -e, which nothing can change in a run" in cluster.refused(
        "switch_model", "-e", "service=chat quant=Q8_0", "-e", services
    )
    assert disturbed(cluster) == []


def test_verify_names_drop_ins_of_operators(deployed, tmp_path):
    cluster = deployed.copy(tmp_path)
    path = "/etc/systemd/system/%s.d/override.conf" % HEAD
    (cluster.node("node1") / path.lstrip("/")).parent.mkdir()
    (cluster.node("node1") / path.lstrip("/")).touch()
    assert "note: %s is changed by %s on node1, which this collection did not write" % (HEAD, path) in cluster.done(
        "_verify"
    )
