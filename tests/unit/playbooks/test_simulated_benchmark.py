# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks over simulated nodes (simulation.py)."""

import copy
import json
import re

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import INVENTORY, SERVICE, deployment

SERVICES = {
    "chat": dict(SERVICE, tensor_split={"node2": 30}),
    "solo": {"model": "n", "quant": "F16", "head": "llama_nodes", "port": 8001},
}
MODELS = {
    name: {
        "quants": {"F16": {"urls": ["file:///%s.gguf" % name], "file": name + ".gguf"}},
        "aliases": [name + "-alias"],
    }
    for name in "mn"
}


@pytest.fixture
def cluster(tmp_path_factory, tmp_path):
    """A split service, and one with a replica on each node."""
    made = deployment(
        tmp_path_factory, "measured", "-e", json.dumps({"llama_services": SERVICES, "llama_models": MODELS})
    )
    found = made.copy(tmp_path)
    found.inventory = copy.deepcopy(INVENTORY)
    found.inventory["llama_nodes"]["vars"].update(llama_services=SERVICES, llama_models=MODELS)
    return found


def measured(cluster, *arguments):
    """-> (status, output, events, [names of what was kept])"""
    reports = str(cluster.folder / "reports")
    status, output = cluster.run(
        "benchmark", "-e", "acceptance_report_dir=" + reports, "-e", "prompts=short", "-e", "concurrency=1", *arguments
    )
    events = [event for event in cluster.events if event.split()[1] in ("watch", "measure")]
    return status, output, events, sorted(kept(cluster))


def kept(cluster):
    """The files of the controller, which lie below the nodes that send them."""
    return {path.stem: path for path in (cluster.folder / "nodes").rglob("latest-*.json")}


def result(cluster, name):
    return json.loads(kept(cluster)["latest-" + name].read_text())


def without_names(events):
    return [re.sub(r" until bench-[a-z]{12}\.stop\Z", "", event) for event in events]


def test_each_service_is_measured_and_its_nodes_watched(cluster):
    status, output, events, names = measured(cluster)
    assert status == 0, output
    assert without_names(events) == [
        "node1 watch node1",
        "node1 watch node2",
        "node1 measure m of http://node1:8000",
        "node1 watch node1",
        "node1 measure n of http://node1:8001",
        "node2 watch node2",
        "node2 measure n of http://node2:8001",
    ]
    assert names == ["latest-chat", "latest-solo.node1", "latest-solo.node2"]
    assert result(cluster, "chat")["unwatched"] == {}
    # Each measurement has a sign of its own, which no other run can touch or leave.
    assert len({event.rpartition(" ")[2] for event in events if " watch " in event}) == 3


@pytest.mark.parametrize(
    ("file", "said"),
    [("unwatched", "llama_bench_watch: out of memory"), ("unreached", "node2 cannot be reached")],
)
def test_unwatched_node_loses_only_its_samples(cluster, file, said):
    (cluster.node("node2") / file).touch()
    status, output, _events, names = measured(cluster, "-e", "service=chat")
    assert status == 0, output
    found = result(cluster, "chat")
    assert found["unwatched"] == {"node2": said} and found["cells"][0]["nodes"]["node1"]["cpu"] == 0.5
    assert found["cells"][0]["nodes"]["node2"] is None and names == ["latest-chat"]
    assert "node2 was not watched: " + said in output


def test_other_services_are_measured_after_a_failure(cluster):
    (cluster.node("node1") / "unmeasured").write_text("a request is not answered")
    status, output, _events, names = measured(cluster)
    assert status != 0
    assert names == ["latest-solo.node2"]
    for label in ("chat", "solo on node1"):
        assert label + ": llama_bench: a request is not answered" in output
    assert output.index("kept as ") < output.index("Require that all was measured")


def test_slower_service_fails_the_run(cluster):
    assert measured(cluster)[0] == 0
    (cluster.node("node1") / "health.json").write_text('{"tokens_per_second": 5.0}')
    before = cluster.folder / "before.json"
    before.write_text(json.dumps(result(cluster, "chat")))
    limited = ("--limit", "node1,node2")
    status, output, _events, _names = measured(cluster, "-e", "service=chat", "-e", "compare=%s" % before, *limited)
    assert status != 0
    assert "chat: short at 0 tokens, 1 at a time: tokens/s 5.0 seen, at least 9.5 is needed" in output
    assert result(cluster, "chat")["cells"][0]["figures"]["tokens_per_second"] == 5.0
