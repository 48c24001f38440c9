"""drill.yml: what it breaks recovers and is timed, what it did is undone, and it asks before it breaks what is no
lab."""

import json
import os
import pathlib

import pytest

# Drills from their first line to their last, as docs/measuring.md has them; what is broken in the others:
# test_break.py of scenario node_setup.
WHOLE = ["worker_kill_generating", "firewall_lost", "port_taken", "worker_stop_idle"]
UNITS = {"node1": "llama-head-chat", "node2": "llama-rpc-chat", "node3": "llama-rpc-chat"}


def report(lab):
    cache = os.environ.get("LLAMA_CLUSTER_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "llama-cluster"
    )
    return {
        one["drill"]: one
        for one in json.loads(pathlib.Path(cache, "reports", lab.name, "drill-chat.json").read_text())["drills"]
    }


def processes(lab):
    return {
        name: getattr(lab, name).check_output("systemctl show -p MainPID --value %s", unit)
        for name, unit in UNITS.items()
    }


def nothing_is_left(lab):
    for name in UNITS:
        node = getattr(lab, name)
        assert (
            node.check_output(
                "find /run/systemd/system -name '*llama*'; ls -d /run/llama-drill* /root/.ansible_async/* 2>/dev/null; "
                "true"
            )
            == ""
        ), name
        assert "llama_drill" not in node.check_output("nft list tables")
        assert node.check_output("findmnt -S llama-drill; true") == ""
        assert "llama-drill" not in node.check_output("systemctl list-units --all --plain --no-legend 'llama-drill*'")


def test_check_mode_only_tells(lab):
    before = processes(lab)
    status, output = lab.playbook("drill", "--check")
    assert status == 0, output
    assert "drills of chat on lab: head node1, workers node2, node3" in output
    assert "head_kill: kill -9 of the head in the middle of an answer" in output
    assert "three_endpoints: not run, chat has fewer than three workers" in output
    assert lab.changed(output) == 0
    assert processes(lab) == before


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-e", "drills=head_kill,cut_power"], "drills: cut_power seen, names among worker_kill_generating, "),
        (
            ["-e", "drills=three_endpoints"],
            "drills: three_endpoints: chat has fewer than three workers: leave them out of -e drills=",
        ),
        (
            ["-e", "drill_lab=false", "-e", "drill_confirm=mine"],
            "drill_confirm: mine seen, lab is needed, the name of the cluster to break",
        ),
        (
            ["-e", "drill_lab=false", "-e", "drills=head_kill"],
            "drill_confirm: nothing seen, lab is needed, the name of the cluster to break",
        ),
        (["-e", "service=chit"], "drill: service chit seen, one of chat is needed"),
    ],
)
def test_refusals_break_nothing(lab, arguments, reason):
    before = processes(lab)
    status, output = lab.playbook("drill", *arguments)
    assert status != 0 and reason in output, output
    assert processes(lab) == before


def test_what_is_broken_recovers_and_is_timed(lab):
    before = processes(lab)
    status, output = lab.playbook("drill", "-e", "drills=" + ",".join(WHOLE[:3]), "-e", "drill_deadline=180")
    assert status == 0, output
    assert "drill detection s held s restart s load s total s result worker_kill_generating " in output
    found = report(lab)
    assert [one["result"] for one in found.values()] == ["recovered"] * 3
    killed = found["worker_kill_generating"]["phases"]
    assert 0 < killed["detection"] < 2
    assert killed["total"] == pytest.approx(killed["detection"] + killed["restart"] + killed["load"], abs=0.01)
    assert 0 < killed["client_cut"] < killed["total"]
    assert set(killed["noticed_by"]) == {"node2 llama-rpc-chat.service", "node1 llama-head-chat.service"}
    assert found["firewall_lost"]["phases"]["detection"] < 10
    # While another program had the port nothing could recover.
    taken = found["port_taken"]
    assert taken["broken_at"] < taken["restored_at"] < taken["recovery"]["answered_at"]
    after = processes(lab)
    assert before["node1"] != after["node1"] and before["node2"] != after["node2"] and before["node3"] == after["node3"]
    nothing_is_left(lab)


def test_late_recovery_is_named_and_undone(lab):
    status, output = lab.playbook("drill", "-e", "drills=" + WHOLE[3], "-e", "drill_deadline=1")
    assert (
        status != 0
        and "drill: worker_stop_idle failed (Require an answer: chat: no answer in 1 s, one is needed; the head is "
        in output
    ), output
    assert report(lab)["worker_stop_idle"]["result"] == "failed"
    assert lab.node2.check_output("ps -o stat= -C ggml-rpc-server")[:1] != "T"
    nothing_is_left(lab)
