# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which services playbooks report to samplers as changed, over simulated nodes (simulation.py). The resulting files are
checked in test_monitoring_scrape.py."""

import copy

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    BRIEF,
    INVENTORY,
    NODES,
    deployment,
)

CONFIG = "etc/llama-cluster/sampler.json"
SWITCH = ("switch_model", "-e", "service=chat quant=Q8_0")


@pytest.fixture(name="cluster")
def fixture_cluster(tmp_path_factory, tmp_path):
    """A cluster with samplers."""
    cluster = deployment(tmp_path_factory, "deployed", **BRIEF).copy(tmp_path)
    cluster.inventory = copy.deepcopy(INVENTORY)
    cluster.inventory["llama_monitoring"] = {"hosts": {"node1": None}}
    for name in NODES:
        (cluster.node(name) / CONFIG).write_text("before")
    return cluster


def written(cluster):
    """The same on all nodes."""
    (one,) = {(cluster.node(name) / CONFIG).read_text() for name in NODES}
    return one


def done(cluster, playbook, *arguments, fails=False):
    status, output = cluster.run(playbook, *arguments)
    assert (status != 0) is fails, output


def test_upgrade_and_rollback_configure_all_services(cluster):
    done(cluster, "upgrade", "-e", "tag=b2")
    assert written(cluster) == "[]"
    assert cluster.events.index("node1 copy /" + CONFIG) > cluster.events.index("node1 ask llama-head-chat.service")
    done(cluster, "rollback")
    assert written(cluster) == "before"


def test_of_one_service_it_tells_them_of_that(cluster):
    done(cluster, "upgrade", "-e", "tag=b2 service=chat")
    assert written(cluster) == '["chat"]'


def test_undone_change_is_not_configured(cluster):
    done(cluster, "upgrade", "-e", "tag=b2-mute", fails=True)
    assert written(cluster) == "before"


def test_a_switch_tells_them_of_its_service(cluster):
    done(cluster, *SWITCH)
    assert written(cluster) == '["chat"]'
    done(cluster, "rollback")
    assert written(cluster) == "before"


def test_trial_is_not_configured(cluster):
    """Its end does not change the samplers."""
    done(cluster, SWITCH[0], "-e", SWITCH[2] + " trial=12h")
    assert written(cluster) == "before"


def test_unmonitored_cluster_has_no_samplers(cluster):
    cluster.inventory = INVENTORY
    done(cluster, *SWITCH)
    assert written(cluster) == "before"
