# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""benchmark.yml --tags link over simulated nodes (simulation.py)."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import INVENTORY, deployment

OPEN = "node1 lets in at node2: 10.0.0.1:50098 for 140s"
CLOSED = ["node1 link absent at node2", "node1 lets in at node2: no host for 140s"]


@pytest.fixture
def cluster(tmp_path_factory, tmp_path):
    return deployment(tmp_path_factory, "linked").copy(tmp_path)


def measured(cluster, *arguments):
    reports = str(cluster.folder / "reports")
    status, output = cluster.run("benchmark", "--tags", "link", "-e", "acceptance_report_dir=" + reports, *arguments)
    return status, output, [event for event in cluster.events if event.split()[1] in ("lets", "link")]


def reports(cluster):
    """The files of the controller, which lie below the node that sends them."""
    return sorted(cluster.folder.glob("nodes/*/**/link/*.json"))


def test_pair_is_measured_both_ways(cluster):
    status, output, events = measured(cluster, "--limit", "node1,node2")
    assert status == 0, output
    assert events == [
        OPEN,
        "node1 link serving at node2 from 10.0.0.1",
        "node1 link measured at node1 there",
        "node1 link serving at node2 from 10.0.0.1",
        "node1 link measured at node1 back",
        *CLOSED,
    ]
    assert "changed=0" in output and "changed=1" not in output
    kept, latest = reports(cluster)
    assert latest.name == "latest.json" and kept.read_text() == latest.read_text()
    ways = [(one["from"], one["to"], one["gbit_per_second"]) for one in json.loads(latest.read_text())["pairs"]]
    assert ways == [("node1", "node2", 9.4), ("node2", "node1", 9.4)]
    assert "idle link, 8 streams of TCP for 10 s each way" in output and "/reports/link/" + kept.name in output


def test_failed_pair_leaves_nothing_open(cluster):
    (cluster.node("node2") / "unlinked").touch()
    status, output, events = measured(cluster)
    assert status != 0
    assert events == [OPEN, "node1 link serving at node2 from 10.0.0.1", *CLOSED]
    assert "node1 and node2: link_capacity: iperf3: not found on node2" in output
    assert reports(cluster) == []


def test_no_link_is_measured_while_requests_run(cluster):
    (cluster.node("node1") / "busy").touch()
    status, output, events = measured(cluster)
    assert status != 0
    assert (
        "llama_services.chat: busy seen on node1 (1 of 1 slots works), idle services are needed to measure a link: "
        "wait until they are" in output
    )
    assert events == []


def test_link_is_measured_before_a_deployment(cluster):
    (cluster.node("node1") / "unasked").write_text("unit %s does not exist on this node: name the head's unit")
    status, output, events = measured(cluster)
    assert status == 0, output
    assert len(events) == 7 and len(reports(cluster)) == 2


def test_service_without_answer_leaves_link_unmeasured(cluster):
    (cluster.node("node1") / "unasked").write_text("%s refuses the key")
    status, output, events = measured(cluster)
    assert status != 0 and events == []
    assert "llama-head-chat.service refuses the key" in output


def test_a_dry_run_says_what_it_would_measure(cluster):
    status, output, events = measured(cluster, "--check")
    assert status == 0, output
    assert "node1 and node2: would be measured, 10 s each way" in output
    assert (events, reports(cluster)) == ([], [])


def test_without_workers_elsewhere_there_is_no_link(cluster):
    services = {"chat": {"model": "m", "quant": "F16", "head": "node1", "port": 8000}}
    assert INVENTORY["llama_nodes"]["vars"]["llama_services"]["chat"]["workers"] == "node2"
    status, output, events = measured(cluster, "-e", json.dumps({"llama_services": services}))
    assert status == 0, output
    assert "link: nothing measured" in output
    assert (events, reports(cluster)) == ([], [])
