# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which adopt.yml replaces and restores a manual gateway, over simulated nodes (simulation.py); the
gateway's host is not a node."""

import copy

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import INVENTORY, deployment

SITE = "/etc/nginx/sites-enabled/ai-inference"


@pytest.fixture
def manual(tmp_path_factory, tmp_path):
    """Nodes with a manual deployment, and a manual gateway."""
    cluster = deployment(tmp_path_factory, "adopted_gateway").copy(tmp_path)
    for name, kind in (("node1", "head"), ("node2", "worker")):
        (cluster.node(name) / "by-hand").write_text(kind)
        for folder in ("etc/systemd/system", "run"):
            for path in sorted((cluster.node(name) / folder).rglob("llama-*")):
                path.unlink()
    cluster.inventory = copy.deepcopy(INVENTORY)
    cluster.inventory["llama_gateway"] = {
        "hosts": {"gateway1": {"ansible_connection": "local", "ansible_become": False}},
        "vars": {"gateway_auth": "log_only", "llama_services": INVENTORY["llama_nodes"]["vars"]["llama_services"]},
    }
    cluster.node("gateway1").mkdir()
    (cluster.node("gateway1") / "front").write_text("keyless")
    return cluster


def steps(cluster):
    return [event.partition("gateway1 front ")[2] for event in cluster.events if event.startswith("gateway1 front")]


def is_there(cluster):
    return (cluster.node("gateway1") / "front").exists()


def test_gateway_changes_after_services_and_is_restored(manual):
    assert "gateway1: %s: a site of nginx" % SITE in manual.done("adopt")
    assert steps(manual) == ["save", "stop", "save", "put_aside", "managed", "finish"]
    events = manual.events
    last = max(number for number, event in enumerate(events) if event.startswith("node"))
    assert events.index("gateway1 front save") > last and "node1 ask" in " ".join(events[:last])
    output = manual.done("adopt")
    assert [event for event in manual.events if not event.endswith(" adoption finish")] == []
    assert "adopt: no manual deployment on " in output
    manual.done("adopt", "-e", "undo=true")
    assert is_there(manual)
    undone = manual.events
    at = [
        undone.index(event)
        for event in ("node1 adoption start head", "gateway1 front put_back", "gateway1 front start")
    ]
    # nginx has the old site before the managed one goes.
    at.append(undone.index("gateway1 remove all of gateway"))
    assert at == sorted(at)
    assert not (manual.node("gateway1") / "var/lib/llama-cluster/adopted-gateway/record.json").exists()


def test_failed_gateway_is_restored_and_retried(manual):
    manual.fail("gateway1 front managed")
    assert (
        "adopt: the managed gateway does not serve (no space left), the manual one serves the new services again: "
        "correct that, then run adopt.yml again"
    ) in manual.refused("adopt")
    assert is_there(manual)
    assert steps(manual)[-3:] == ["put_back", "start", "forget"]
    # The services stay.
    assert not (manual.node("node1") / "by-hand").exists()
    manual.done("adopt")
    assert not is_there(manual)
    assert [event for event in manual.events if event.startswith("node1 st")] == []


def test_gateway_stays_if_services_fail(manual):
    for name in ("node1", "node2"):
        manual.install(name, "b1-mute")
    assert "the old one serves again" in manual.refused("adopt", "-e", "tag=b1-mute")
    assert is_there(manual) and steps(manual) == []


def test_check_mode_changes_nothing(manual):
    before = manual.files()
    manual.done("adopt", "--check")
    assert manual.files() == before
    assert steps(manual) == []


def test_adoption_requires_settings_for_existing_clients(manual):
    del manual.inventory["llama_gateway"]["vars"]["gateway_auth"]
    assert "gateway_auth: not set, and %s on gateway1 asks for no key: set log_only to serve" % SITE in manual.refused(
        "adopt"
    )
    manual.inventory["llama_gateway"]["vars"]["gateway_auth"] = "log_only"
    (manual.node("node1") / "talkers").write_text("10.0.0.9 10.0.0.10")
    assert (
        "llama_clients: not set, and 10.0.0.9 talks to node1, 10.0.0.10 talks to node1 directly, where only the "
        "gateway will be let in: list these clients or their network in llama_clients, or set it to [] to leave the "
        "ports to the gateway"
    ) in manual.refused("adopt")
    assert manual.events == []
    manual.inventory["llama_nodes"]["vars"]["llama_clients"] = ["10.0.0.0/24"]
    manual.done("adopt")


def test_tailnet_clients_with_gateway_addresses_are_refused(manual):
    (manual.node("gateway1") / "tailnet").write_text("100.101.5.9")
    manual.inventory["llama_gateway"]["vars"]["gateway_addresses"] = ["10.0.0.5"]
    assert (
        "gateway_tailscale: false, and 100.101.5.9 of the tailnet talks to gateway1, where nginx will listen on "
        "10.0.0.5 only: set gateway_tailscale to true, or drop gateway_addresses"
    ) in manual.refused("adopt")
    assert manual.events == []
    del manual.inventory["llama_gateway"]["vars"]["gateway_addresses"]
    manual.done("adopt")


def test_teardown_refuses_while_a_gateway_is_saved(manual):
    manual.done("adopt")
    manual.node("node1").joinpath("var/lib/llama-cluster/adopted/record.json").unlink()
    manual.node("node2").joinpath("var/lib/llama-cluster/adopted/record.json").unlink()
    assert (
        "/var/lib/llama-cluster/adopted-gateway: the deployment of before 2026-10-01T08:00:00Z is saved there on "
        "gateway1, none may be" in manual.refused("teardown")
    )
