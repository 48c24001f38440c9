# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of decisions on the nodes of heads, from what benchmarks have left on the controller."""

import copy
import json

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import BRIEF, deployment
from ansible_collections.thefermisea.llama_cluster.tests.unit.plugins.plugin_utils._reports import (
    test_reports_decisions as made,
)

PAGE = "opt/docs/architecture-decisions.md"
WRITTEN = ["node1 write /opt/docs", "node1 write /" + PAGE]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    return deployment(tmp_path_factory, "deployed", **BRIEF)


@pytest.fixture
def cluster(deployed, tmp_path):
    return deployed.copy(tmp_path)


def keep(cluster, *results):
    folder = cluster.folder / ".reports/benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(results):
        (folder / ("2026112%d-chat.json" % number)).write_text(json.dumps(one))


def decided(cluster, *arguments):
    return cluster.done("decisions", *arguments)


def test_page_without_benchmarks_says_so(cluster):
    output = decided(cluster)
    assert "not measured here" in output and "node1: /opt/docs/architecture-decisions.md" in output
    # The other nodes are not contacted.
    assert cluster.events == WRITTEN
    assert (
        "tokens/s of a request of quant Q8_0 or quant Q4_K_M is kept yet" in (cluster.node("node1") / PAGE).read_text()
    )
    decided(cluster)
    assert cluster.events == []


def test_same_results_change_nothing(cluster):
    decided(cluster)
    fast, slow = made.cell(12.7), made.cell(7.1)
    keep(cluster, made.result(slow), made.result(fast, quant="Q4_K_M", at=made.EARLIER))
    foretold = decided(cluster, "--check", "--diff")
    assert "+**CONTRADICTED**: 0.56 measured" in foretold and cluster.events == []
    output = decided(cluster)
    assert "contradicted by measurement: Q8_0 over Q4_K_M: Q8_0 generates 1.5 to 2 times as fast" in output
    assert "left out" not in output and cluster.events == WRITTEN[1:]
    decided(cluster)
    assert cluster.events == []


def test_drills_count_where_they_are_kept(cluster):
    (cluster.folder / ".reports").mkdir()
    report = made.drills({"result": "recovered", "broken_at": 1764104400.0, "phases": {"total": 12.3}})
    (cluster.folder / ".reports/drill-chat.json").write_text(json.dumps(report))
    decided(cluster)
    assert "confirmed: chat: recovered, the next answer 12.3 s" in (cluster.node("node1") / PAGE).read_text()


def test_every_head_has_the_page_printed_once(cluster):
    cluster.inventory = copy.deepcopy(cluster.inventory)
    services = cluster.inventory["llama_nodes"]["vars"]["llama_services"]
    services["coder"] = {"model": "m", "quant": "F16", "head": "node2", "port": 8001}
    output = decided(cluster)
    assert sorted(cluster.events) == sorted(WRITTEN + [one.replace("node1", "node2") for one in WRITTEN])
    assert output.count("decisions: %d, their claims: " % len(made.SHIPPED)) == 1
    assert "node1: /opt/docs/" in output and "node2: /opt/docs/" in output


def test_a_page_of_somebody_else_stays(cluster):
    (cluster.node("node1") / "opt/docs").mkdir()
    (cluster.node("node1") / PAGE).write_text("# A manual page\n")
    (cluster.node("node1") / "opt/docs/other.md").write_text("# Another\n")
    assert "a file that the collection has not written seen" in cluster.refused("decisions")
    assert (cluster.node("node1") / PAGE).read_text() == "# A manual page\n"


def test_a_benchmark_writes_it_and_site_does_not(deployed):
    assert not (deployed.node("node1") / "opt/docs").exists()
    plays = yaml.safe_load((deployed.collection / "playbooks/benchmark.yml").read_text())
    # Before the verdict, which fails.
    assert [play.get("ansible.builtin.import_playbook") for play in plays][-2:] == ["_decisions.yml", None]
