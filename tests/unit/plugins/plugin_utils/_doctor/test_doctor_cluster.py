# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only all nodes together show, the doctor's report, and that every drill is named."""

from pathlib import Path

import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._doctor import cluster, rules

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


def told(**nodes):
    return {name: {"doctor_node": {"evidence": seen, "findings": [], "since": 0.0}} for name, seen in nodes.items()}


def report(**nodes):
    return cluster.doctor_report(told(**nodes), list(nodes))


def test_nodes_that_are_well_have_no_findings():
    found = report(
        node1=node(units=[unit("head", "b2", workers=["10.1.0.2:50052"])]),
        node2=node(units=[unit("rpc", "b2", "10.1.0.2:50052")]),
    )
    assert (found["lines"], found["code"]) == (["healthy"], 0)


def test_two_builds_of_one_service():
    found = report(
        node1=node(units=[unit("head", "b2", workers=["10.1.0.2:50052"])]),
        node2=node(units=[unit("rpc", "b1", "10.1.0.2:50052")]),
    )
    assert [one["rule"] for one in found["findings"]] == ["two_builds"]
    assert "chat runs two llama.cpp builds: b1 on node2, b2 on node1" in found["lines"][0]
    assert found["code"] == 1


def test_a_plan_counts_with_cards_that_are_there():
    plans = [{"service": "chat", "of": "node2", "device": device, "total_mib": 32768} for device in ("GPU0", "GPU1")]
    cards = [{"index": 0, "total": 32768 << 20}]
    found = report(node1=node(plans=plans), node2=node(cards=cards))
    assert [one["sentence"] for one in found["findings"]] == [
        "the plan of chat is stale: it counts with GPU1 of node2, which is not there"
    ]
    cards = [{"index": 0, "total": 16384 << 20}, {"index": 1, "total": 32768 << 20}]
    found = report(node1=node(plans=plans), node2=node(cards=cards))
    assert "32768 MiB on GPU0 of node2, which has 16384 MiB" in found["findings"][0]["sentence"]
    # Nobody saw them: the driver does not answer, which is a finding of its own.
    assert report(node1=node(plans=plans), node2=node(cards=[]))["findings"] == []


def test_clocks_and_links():
    fabrics = [{"address": "10.1.0.1", "link_layer": layer} for layer in ("InfiniBand", "Ethernet")]
    found = report(node1=node(fabric=fabrics[0]), node2=node(fabric=fabrics[1], ahead=-3600.0))
    assert sorted(one["rule"] for one in found["findings"]) == ["clock_skew", "fabric_mixed"]
    assert report(node1=node(fabric=fabrics[0]), node2=node(fabric=fabrics[0]))["findings"] == []


def test_a_node_that_was_not_looked_at_is_named_and_the_others_are_judged():
    hosts = told(node1=node(failed={"cards": "no answer in 15 s"}))
    found = cluster.doctor_report(hosts, ["node1", "node2"])
    assert found["code"] == 2
    assert found["lines"] == [
        "not looked at: node1: cards: no answer in 15 s",
        "not looked at: node2: it was not reached",
    ]


def test_a_story_is_told_over_all_nodes_by_the_names_of_the_inventory():
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


def test_every_drill_is_named_by_a_rule():
    catalog = yaml.safe_load((ROOT / "roles/drill/vars/main.yml").read_text())["__drill_catalog"]
    named = {drill for rule in rules.load() for drill in rule.get("drills", ())}
    # One is not possible here, one breaks nothing.
    assert named == set(catalog) - {"clock_step", "three_endpoints"}


def test_what_has_repaired_itself_is_no_failure_of_the_run():
    over = {"severity": "notice", "over": True, "at": 5.0, "node": "node1", "service": "chat", "rule": "worker_killed"}
    over.update(sentence="it was killed", cause="c", fix="f", command="x", count=1)
    hosts = told(node1=node())
    hosts["node1"]["doctor_node"]["findings"] = [over]
    found = cluster.doctor_report(hosts, ["node1"])
    assert (found["code"], found["lines"][-1]) == (0, "healthy; repaired in the last 6 h: 1")
    wrong = dict(over, severity="problem", over=False, command="ansible-playbook x.yml -i inventories/mine; ls")
    hosts["node1"]["doctor_node"]["findings"] = [over, wrong]
    found = cluster.doctor_report(hosts, ["node1"], "", [str(Path.cwd() / "inventories/lab"), "/srv/my own"])
    assert (found["code"], found["end"]) == (1, "1 finding")
    # The command is for who reads it: with the inventories of the run.
    assert "  run:   ansible-playbook x.yml -i inventories/lab -i '/srv/my own'; ls" in found["lines"]
