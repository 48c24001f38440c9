# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks with a service that the inventory has stopped, over simulated nodes (simulation.py)."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import INVENTORY, deployment

HEAD, WORKER = "llama-head-chat.service", "llama-rpc-chat.service"
RUNS = {"head-chat": "b1", "rpc-chat": "b1"}
CHAT = INVENTORY["llama_nodes"]["vars"]["llama_services"]["chat"]
SAYS = "stopped, as the inventory says"


def services(**state):
    """These services as an option of a playbook."""
    ports = {"chat": {}, "other": {"port": 8001, "rpc_port": 50053}}
    found = {name: dict(CHAT, **ports[name], state=value) for name, value in state.items()}
    return ("-e", json.dumps({"llama_services": found}))


STOPPED, STARTED = services(chat="stopped"), services(chat="started")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The result of site.yml with a stopped service."""

    def proves(cluster, output):
        assert SAYS in output and cluster.builds() == {}
        assert changes(cluster) == ["node2 configure " + WORKER, "node1 configure " + HEAD]

    return deployment(tmp_path_factory, "stopped", *STOPPED, proves=proves)


@pytest.fixture
def cluster(stopped, tmp_path):
    return stopped.copy(tmp_path)


def changes(cluster):
    """Events that change what is configured or runs."""
    quiet = ("ask", "stage", "activate", "model", "snapshot", "talk")
    return [event for event in cluster.events if event.split()[1] not in quiet]


def test_second_run_changes_nothing_without_waiting(cluster):
    assert SAYS in cluster.done("site", *STOPPED)
    assert changes(cluster) == [] and not any(" ask " in event for event in cluster.events)


def test_site_starts_and_stops_a_service(cluster):
    cluster.done("site", *STARTED)
    assert cluster.builds() == RUNS
    assert SAYS in cluster.done("site", *STOPPED) and cluster.builds() == {}
    assert [event for event in changes(cluster) if " configure " not in event] == [
        "node1 stopped " + HEAD,
        "node2 stopped " + WORKER,
    ]


def test_check_mode_predicts_without_waiting(cluster):
    before = cluster.files()
    assert "changed=1" in cluster.done("site", "--check", *STARTED)
    assert cluster.files() == before and changes(cluster) == []
    cluster.done("site", *STARTED)
    before = cluster.files()
    output = cluster.done("site", "--check", *STOPPED)
    assert cluster.files() == before and SAYS not in output
    # The head: configured, stopped, disabled.
    assert "changed=3" in output


def test_verify_refuses_running_stopped_service(cluster):
    cluster.done("site", *STARTED)
    assert (
        "llama_services.chat.state: stopped seen, and llama-rpc-chat.service is active on node2, inactive is needed: "
        "run site.yml, which stops it"
    ) in cluster.refused("verify", *STOPPED)


def test_another_service_runs_beside_it(cluster):
    both = services(chat="stopped", other="started")
    assert SAYS in cluster.done("site", *both)
    assert sorted(cluster.builds()) == ["head-other", "rpc-other"]
    cluster.done("site", *both)
    assert changes(cluster) == []


def test_an_upgrade_writes_its_units_and_starts_nothing(cluster):
    output = cluster.done("upgrade", *STOPPED, "-e", "tag=b2")
    assert SAYS in output and cluster.builds() == {} and cluster.current() == ["b2", "b2"]
    assert all(" configure " in event for event in changes(cluster))


@pytest.mark.parametrize("before, after", [(STOPPED, STARTED), (STARTED, STOPPED)], ids=["started", "stopped"])
def test_a_rollback_undoes_a_start_and_a_stop(cluster, before, after):
    cluster.done("site", *before)
    ran = cluster.builds()
    cluster.done("upgrade", *after)
    assert cluster.builds() != ran
    cluster.done("rollback", *after)
    assert cluster.builds() == ran


def test_maintenance_neither_starts_nor_enables_it(cluster):
    cluster.done("maintenance", *STOPPED, "-e", "node=node2")
    assert changes(cluster) == ["node2 copy /etc/llama-cluster/held.json"]
    cluster.done("maintenance", *STOPPED, "-e", "node=node2 state=return")
    assert changes(cluster) == ["node2 remove /etc/llama-cluster/held.json"] and cluster.builds() == {}


def test_quant_of_stopped_service_is_not_switched(cluster):
    output = cluster.refused("switch_model", *STOPPED, "-e", "service=chat quant=Q8_0")
    assert cluster.events == []
    assert (
        "switch_model: llama_services.chat.state stopped seen, started is needed, since the new model has to answer: "
        "set the quant of the service in the inventory and run site.yml" in output
    )


def test_adoption_does_not_start_it(cluster):
    for name, kind in (("node1", "head"), ("node2", "worker")):
        (cluster.node(name) / "by-hand").write_text(kind)
    cluster.done("adopt", *services(chat="stopped", other="started"))
    assert sorted(cluster.builds()) == ["head-other", "rpc-other"]
