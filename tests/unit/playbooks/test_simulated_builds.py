# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks with several builds side by side, and with one service, over simulated nodes
(simulation.py)."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import INVENTORY, deployment

CHAT = INVENTORY["llama_nodes"]["vars"]["llama_services"]["chat"]
BUILDS = {name: {"version": tag, "accelerator": "cpu"} for name, tag in (("default", "b1"), ("turbo", "b2"))}
# The units of chat, which is primary, have the short names.
BEFORE = {"head": "b1", "head-other": "b1", "rpc": "b1", "rpc-other": "b1"}
MOVED = dict(BEFORE, **{"head-other": "b2", "rpc-other": "b2"})
ALONE = ("-e", "service=other")


def intent(turbo="b2", chat="default", other="default", **more):
    """Two services that run these builds, as an option of a playbook."""
    services = {
        "chat": dict(CHAT, primary=True, build=chat),
        "other": dict(CHAT, port=8001, rpc_port=50053, build=other, **more),
    }
    builds = dict(BUILDS, turbo=dict(BUILDS["turbo"], version=turbo))
    return ("-e", json.dumps({"llama_services": services, "llama_builds": builds}))


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    cluster = deployment(tmp_path_factory, "builds", *intent())
    assert cluster.builds() == BEFORE
    return cluster


@pytest.fixture
def cluster(deployed, tmp_path):
    return deployed.copy(tmp_path)


def disturbed(cluster, service):
    """Events that change what is configured of a service or runs."""
    quiet = ("ask", "talk", "copy")
    units = {"chat": ("llama-head.", "llama-rpc."), "other": ("-other.",)}[service]
    return [event for event in cluster.events if any(name in event for name in units) and event.split()[1] not in quiet]


def test_one_service_moves_and_returns(cluster):
    before = {path: text for path, text in cluster.configuration().items() if "other" not in path}
    # Changes of other services in the inventory are not for this run.
    output = cluster.done("upgrade", *ALONE, *intent(chat="turbo", other="turbo"))
    assert "other: b2 serves, nothing served for " in output and "rollback.yml puts b1 of " in output
    assert cluster.builds() == MOVED and cluster.current() == ["b1", "b1"]
    assert disturbed(cluster, "chat") == []
    assert {path: text for path, text in cluster.configuration().items() if "other" not in path} == before
    status, output = cluster.run("upgrade", *ALONE, *intent(other="turbo"))
    assert (status, "other: nothing to do, b2 serves" in output) == (0, True), output
    cluster.done("rollback")
    assert cluster.builds() == BEFORE and disturbed(cluster, "chat") == []


def test_failed_build_of_one_service_is_undone(cluster):
    assert (
        "http://node1:8001 is loading: it has been loading for ever: rolled back, b1 serves again"
        in cluster.refused("upgrade", *ALONE, *intent(turbo="b2-mute", other="turbo"))
    )
    assert cluster.builds() == BEFORE and disturbed(cluster, "chat") == []
    assert cluster.snapshots() == [[], []]


def test_a_service_that_there_is_not_stops_nothing(cluster):
    assert "upgrade: service othr seen, one of chat, other is needed, did you mean other?" in cluster.refused(
        "upgrade", "-e", "service=othr", *intent(other="turbo")
    )
    assert cluster.events == []


def test_current_build_is_of_primary_service(cluster):
    assert "chat, other: b1, b2 serves, " in cluster.done("upgrade", *intent(chat="turbo"))
    assert cluster.builds() == {"head": "b2", "rpc": "b2", "head-other": "b1", "rpc-other": "b1"}
    assert cluster.current() == ["b2", "b2"]
    assert disturbed(cluster, "other") == []
