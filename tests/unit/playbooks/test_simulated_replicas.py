# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks with a service that has replicas, over simulated nodes (simulation.py)."""

import copy
import json
import re

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import deployment

UNIT = "llama-head-embed.service"
EMBED = {"model": "m", "quant": "F16", "head": "llama_nodes", "port": 8000}
BOTH = ["node1", "node2"]


def services(**changes):
    """The service as an option of a playbook."""
    return ("-e", json.dumps({"llama_services": {"embed": dict(EMBED, **changes)}}))


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    def proves(cluster, output):
        assert nodes(cluster, "started") == BOTH
        # Both endpoints, with one port.
        assert all("http://%s:8000/v1" % name in output for name in BOTH)

    return deployment(tmp_path_factory, "replicas", *services(), proves=proves)


@pytest.fixture
def cluster(deployed, tmp_path):
    return deployed.copy(tmp_path)


def nodes(cluster, what):
    """The nodes on which this was done to the unit."""
    return sorted(event.split()[0] for event in cluster.events if event.split()[1:] == [what, UNIT])


def changed(cluster):
    """The nodes whose unit was written, stopped or started."""
    return sorted({name for what in ("configure", "started", "stopped") for name in nodes(cluster, what)})


def running(cluster):
    return [name for name in BOTH if (cluster.node(name) / "run" / UNIT).exists()]


def test_second_and_limited_run_change_nothing(cluster):
    cluster.done("site", *services())
    assert changed(cluster) == []
    cluster.done("site", *services(), "--limit", "node2")
    assert changed(cluster) == [] and running(cluster) == BOTH


def test_host_joins_and_leaves_others_stay(cluster):
    cluster.done("site", *services(head="node1"))
    assert changed(cluster) == ["node2"] and running(cluster) == ["node1"]
    cluster.done("site", *services())
    assert changed(cluster) == ["node2"] and running(cluster) == BOTH


def test_service_moves_to_another_node(cluster):
    cluster.done("site", *services(head="node1"))
    cluster.done("site", *services(head="node2"))
    assert changed(cluster) == BOTH and running(cluster) == ["node2"]


def test_held_node_stops_only_its_replica(cluster):
    output = cluster.done("maintenance", *services(), "-e", "node=node2")
    assert "node2 is held, no service waits for it; embed answers on node1" in output
    assert changed(cluster) == ["node2"] and running(cluster) == ["node1"]
    output = cluster.done("site", *services())
    assert changed(cluster) == [] and "embed: not verified, node2 held for maintenance" in output
    cluster.done("maintenance", *services(), "-e", "node=node2 state=return")
    assert changed(cluster) == ["node2"] and running(cluster) == BOTH


def test_status_has_a_line_for_each(cluster):
    output = cluster.done("status", *services())
    assert all(re.search(r"embed on %s +%s +ready +http://%s:8000/v1" % ((name,) * 3), output) for name in BOTH)


def in_its_inventory(cluster):
    """Defines the service in the inventory: a quant given with -e could not be switched."""
    inventory = copy.deepcopy(cluster.inventory)
    inventory["llama_nodes"]["vars"]["llama_services"] = {"embed": EMBED}
    cluster.inventory = inventory


def test_switch_changes_all_replicas_and_rolls_back(cluster):
    in_its_inventory(cluster)
    cluster.done("switch_model", "-e", "service=embed quant=Q8_0")
    assert nodes(cluster, "stopped") == BOTH == nodes(cluster, "started")
    cluster.done("rollback")
    assert nodes(cluster, "started") == BOTH == running(cluster)


def test_failed_model_is_undone_on_all_replicas(cluster):
    in_its_inventory(cluster)
    before = cluster.configuration()
    assert "the old one serves again" in cluster.refused("switch_model", "-e", "service=embed quant=Q4_X")
    assert cluster.configuration() == before and running(cluster) == BOTH


def test_options_for_one_head_are_refused(cluster):
    assert (
        "switch_model: park node2 seen, and embed has replicas on node1, node2, one head is needed for it: take -e "
        "retire=first, or free space there"
    ) in cluster.refused("switch_model", *services(), "-e", "service=embed quant=Q8_0 park=node2")
    for given, seen in (("", "no node given"), ("node=node9", "node node9 seen")):
        assert (
            "drill: %s, one of node1, node2 is needed, where embed has replicas: add -e node=node1" % seen
            in cluster.refused("drill", *services(), "-e", "service=embed " + given, "--check")
        )
    assert cluster.events == []
