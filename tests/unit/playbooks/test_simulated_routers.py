# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks with a router, over simulated nodes (simulation.py)."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import deployment

UNIT = "llama-router-fast.service"
FAST = {"kind": "router", "head": "node1", "models": {"m": "F16", "n": "F16"}, "models_max": 1, "port": 8000}


def intent(**changes):
    models = {
        name: {
            "quants": {
                quant: {"urls": ["file:///" + file], "file": file}
                for quant, file in (("F16", name + ".gguf"), ("Q8_0", name + "8.gguf"), ("Q4_X", name + "-mute.gguf"))
            }
        }
        for name in "mn"
    }
    return ("-e", json.dumps({"llama_services": {"fast": dict(FAST, **changes)}, "llama_models": models}))


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    def proves(cluster, output):
        # Each model was talked with, by its name.
        assert [event for event in cluster.events if " talk " in event] == [
            "node1 talk full with %s for %s" % (UNIT, model) for model in "mn"
        ]
        assert "fast.m node1 all 10.0 http://node1:8000/v1 answers, tools: called" in output

    return deployment(tmp_path_factory, "routers", *intent(), proves=proves)


@pytest.fixture
def cluster(deployed, tmp_path):
    return deployed.copy(tmp_path)


def happened(cluster, *kinds):
    return [event for event in cluster.events if event.split()[1] in kinds]


def test_second_run_changes_and_asks_nothing(cluster):
    cluster.done("site", *intent())
    assert happened(cluster, "configure", "started", "stopped", "talk") == []
    cluster.done("verify", *intent())
    assert len(happened(cluster, "talk")) == 2


def test_router_is_held_and_returned(cluster):
    cluster.done("maintenance", *intent(), "-e", "node=node1")
    assert happened(cluster, "stopped") == ["node1 stopped " + UNIT]
    cluster.done("maintenance", *intent(), "-e", "node=node1 state=return")
    assert happened(cluster, "started") == ["node1 started " + UNIT]


def test_failed_quant_of_router_is_undone(cluster):
    output = cluster.done("upgrade", *intent(models={"m": "Q8_0", "n": "F16"}))
    assert len(happened(cluster, "talk")) == 2, output
    assert "rolled back" in cluster.refused("upgrade", *intent(models={"m": "Q8_0", "n": "Q4_X"}))
    unit = json.loads((cluster.node("node1") / "etc/systemd/system" / UNIT).read_text())
    assert "/opt/models/n.gguf" in unit["arguments"]


def test_removed_router_goes(cluster):
    chat = {"model": "m", "quant": "F16", "head": "node1", "port": 8000}
    variables = json.loads(intent()[1])
    cluster.done("site", "-e", json.dumps(dict(variables, llama_services={"chat": chat})))
    assert "node1 stopped " + UNIT in cluster.events
    assert not (cluster.node("node1") / "etc/systemd/system" / UNIT).exists()
