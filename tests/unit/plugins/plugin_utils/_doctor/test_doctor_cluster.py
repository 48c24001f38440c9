# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that take several nodes to see, the doctor's report, and the rules of drills."""

from pathlib import Path

import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._doctor import cluster

ROOT = Path(__file__).resolve().parents[5]


def unit(kind, build, endpoint=None, workers=()):
    return {
        "kind": kind,
        "service": "chat",
        "active_state": "active",
        "build": build,
        "endpoint": endpoint,
        "rpc_endpoints": list(workers),
    }


def node(**seen):
    return dict({"failed": {}, "units": [], "ahead": 0.4, "at": 21600.2}, **seen)


def results(**nodes):
    return {name: {"doctor_node": {"evidence": seen, "findings": [], "since": 0.0}} for name, seen in nodes.items()}


def report(**nodes):
    return cluster.doctor_report(results(**nodes), list(nodes))


def test_healthy_nodes_have_no_findings():
    found = report(
        node1=node(units=[unit("head", "b2", workers=["10.1.0.2:50052"])]),
        node2=node(units=[unit("rpc", "b2", "10.1.0.2:50052")]),
    )
    assert (found["lines"], found["code"]) == (["healthy"], 0)


def test_two_builds_of_service_are_found():
    found = report(
        node1=node(units=[unit("head", "b2", workers=["10.1.0.2:50052"])]),
        node2=node(units=[unit("rpc", "b1", "10.1.0.2:50052")]),
    )
    assert [one["rule"] for one in found["findings"]] == ["two_builds"]
    assert "chat runs two llama.cpp builds: b1 on node2, b2 on node1" in found["lines"][0]
    assert found["code"] == 1


def test_clock_skew_is_found():
    assert [one["rule"] for one in report(node1=node(), node2=node(ahead=-3600.0))["findings"]] == ["clock_skew"]


def test_unreached_node_is_named():
    hosts = results(node1=node(failed={"cards": "no answer in 15 s"}))
    found = cluster.doctor_report(hosts, ["node1", "node2"])
    assert found["code"] == 2
    assert found["lines"] == [
        "not looked at: node1: cards: no answer in 15 s",
        "not looked at: node2: it was not reached",
    ]


def test_timeline_has_inventory_names():
    events = [
        {
            "at": 1795548339.5,
            "node": "ip-10-1-0-2",
            "unit": "llama-rpc-chat.service",
            "kind": "exited",
            "text": "code=killed, status=9/KILL",
        }
    ]
    hosts = {
        "node1": {"doctor_node": {"events": [], "since": 1.0}},
        "node2": {"doctor_node": {"events": events, "since": 1.0}},
    }
    found = cluster.doctor_report(hosts, ["node1", "node2"], "chat")
    assert found["code"] == 0
    assert "node2 llama-rpc-chat.service: its process ended" in found["lines"][1]


def test_every_drill_has_a_rule():
    catalog = yaml.safe_load((ROOT / "roles/drill/vars/main.yml").read_text())["__drill_catalog"]
    named = {drill for rule in cluster.load() for drill in rule.get("drills", ())}
    # One is not possible here, one breaks nothing. A job that comes back has its reason in llama-jobs list.
    jobs = {drill for drill in catalog if drill.startswith("job_")}
    assert named == set(catalog) - jobs - {"clock_step", "three_endpoints"}


def test_repaired_fault_does_not_fail_run():
    over = {"severity": "notice", "over": True, "at": 5.0, "node": "node1", "service": "chat", "rule": "worker_killed"}
    over.update(sentence="it was killed", cause="c", fix="f", command="x", count=1)
    hosts = results(node1=node())
    hosts["node1"]["doctor_node"]["findings"] = [over]
    found = cluster.doctor_report(hosts, ["node1"])
    assert (found["code"], found["lines"][-1]) == (0, "healthy; repaired in the last 6 h: 1")
    wrong = dict(over, severity="problem", over=False, command="ansible-playbook x.yml -i inventories/mine; ls")
    hosts["node1"]["doctor_node"]["findings"] = [over, wrong]
    found = cluster.doctor_report(hosts, ["node1"], "", [str(Path.cwd() / "inventories/lab"), "/srv/my own"])
    assert (found["code"], found["end"]) == (1, "1 finding")
    # Commands have the inventories of the run.
    assert "  run:   ansible-playbook x.yml -i inventories/lab -i '/srv/my own'; ls" in found["lines"]
