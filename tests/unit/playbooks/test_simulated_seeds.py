# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml with tensor caches that are seeded, over simulated nodes (simulation.py)."""

import copy
import re

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    BRIEF,
    INVENTORY,
    deployment,
)


@pytest.fixture(name="cluster")
def fixture_cluster(tmp_path_factory, tmp_path):
    """A cluster whose service is to be seeded from now on."""
    cluster = deployment(tmp_path_factory, "deployed", **BRIEF).copy(tmp_path)
    cluster.inventory = copy.deepcopy(INVENTORY)
    cluster.inventory["llama_nodes"]["vars"]["llama_services"]["chat"]["rpc_cache"] = "seeded"
    return cluster


def of_seeds(cluster):
    return [event for event in cluster.events if "share" in event or "sharing" in event or "seed" in event]


COPIED = [
    "node1 share ['m.gguf'] with ['10.0.0.2']",
    "node2 seed chat layers [0, 30] from http://10.0.0.1:50099/",
    "node1 stop sharing",
]


def test_site_seeds_workers_once(cluster):
    for arguments, expected, changes in ((["--check"], [], 1), ([], COPIED, 1), (["--check"], [], 0), ([], [], 0)):
        output = cluster.done("site", *arguments)
        assert of_seeds(cluster) == expected
        assert re.findall(r"node[12] : ok=\d+ changed=(\d+)", output) == ["0", str(changes)]


def test_failed_seeding_ends_the_sharing(cluster):
    (cluster.node("node2") / "unseeded").touch()
    assert "no room" in cluster.refused("site")
    assert of_seeds(cluster) == COPIED
    (cluster.node("node2") / "unseeded").unlink()
    cluster.done("site")
    assert of_seeds(cluster) == COPIED


def test_other_caches_share_nothing(cluster):
    cluster.inventory["llama_nodes"]["vars"]["llama_services"]["chat"]["rpc_cache"] = True
    cluster.done("site")
    assert of_seeds(cluster) == []


@pytest.fixture(name="seeded")
def fixture_seeded(cluster):
    cluster.done("site")
    return cluster


QUANT = ("-e", "service=chat quant=Q8_0")


def test_switch_seeds_the_new_quant(seeded):
    seeded.done("switch_model", "--check", *QUANT)
    assert of_seeds(seeded) == []
    seeded.done("switch_model", *QUANT)
    assert of_seeds(seeded) == ["node1 share ['m8.gguf'] with ['10.0.0.2']", *COPIED[1:]]
    fetched, stopped = "node1 model fetch", "node1 stopped llama-head-chat.service"
    assert seeded.events.index(fetched) < seeded.events.index(COPIED[1]) < seeded.events.index(stopped)


def test_failed_seeding_leaves_the_old_quant(seeded):
    (seeded.node("node2") / "unseeded").touch()
    before = seeded.configuration()
    assert "no room" in seeded.refused("switch_model", *QUANT)
    assert seeded.configuration() == before
    assert seeded.snapshots() == [[], []] and "node1 stop sharing" in seeded.events


@pytest.mark.parametrize("arguments", [[], ["-e", "service=chat"]], ids=["all", "one"])
def test_upgrade_seeds_what_is_missing(cluster, arguments):
    cluster.done("upgrade", *arguments)
    assert of_seeds(cluster) == COPIED
