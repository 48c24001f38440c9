# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which adopt.yml replaces a gateway made by hand and puts it back, over simulated nodes (simulation.py);
the gateway's host is no node."""

import copy

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import INVENTORY, deployment

SITE = "/etc/nginx/sites-enabled/ai-inference"


@pytest.fixture
def by_hand(tmp_path_factory, tmp_path):
    """Nodes and a gateway that were made by hand."""
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


def test_it_is_replaced_when_the_new_services_serve_and_put_back_after_the_old_ones(by_hand):
    assert "gateway1: %s: a site of nginx" % SITE in by_hand.done("adopt")
    assert steps(by_hand) == ["save", "stop", "save", "put_aside", "ours", "finish"]
    events = by_hand.events
    last = max(number for number, event in enumerate(events) if event.startswith("node"))
    assert events.index("gateway1 front save") > last and "node1 ask" in " ".join(events[:last])
    output = by_hand.done("adopt")
    assert [event for event in by_hand.events if not event.endswith(" adoption finish")] == []
    assert "adopt: no manual deployment on " in output
    by_hand.done("adopt", "-e", "undo=true")
    assert is_there(by_hand)
    undone = by_hand.events
    at = [
        undone.index(event)
        for event in ("node1 adoption start head", "gateway1 front put_back", "gateway1 front start")
    ]
    # nginx has the old site before ours goes.
    at.append(undone.index("gateway1 remove all of gateway"))
    assert at == sorted(at)
    assert not (by_hand.node("gateway1") / "var/lib/llama-cluster/adopted-gateway/record.json").exists()


def test_where_ours_does_not_serve_the_old_one_comes_back_and_the_next_run_goes_on(by_hand):
    by_hand.fail("gateway1 front ours")
    assert (
        "adopt: the managed gateway does not serve (no space left), the manual one serves the new services again: "
        "correct that, then run adopt.yml again"
    ) in by_hand.refused("adopt")
    assert is_there(by_hand)
    assert steps(by_hand)[-3:] == ["put_back", "start", "forget"]
    # The services stay.
    assert not (by_hand.node("node1") / "by-hand").exists()
    by_hand.done("adopt")
    assert not is_there(by_hand)
    assert [event for event in by_hand.events if event.startswith("node1 st")] == []


def test_a_gateway_stays_where_the_new_services_do_not_serve(by_hand):
    for name in ("node1", "node2"):
        by_hand.install(name, "b1-mute")
    assert "the old one serves again" in by_hand.refused("adopt", "-e", "tag=b1-mute")
    assert is_there(by_hand) and steps(by_hand) == []


def test_check_mode_changes_nothing(by_hand):
    before = by_hand.files()
    by_hand.done("adopt", "--check")
    assert by_hand.files() == before
    assert steps(by_hand) == []


def test_what_clients_would_lose_needs_a_word_first(by_hand):
    del by_hand.inventory["llama_gateway"]["vars"]["gateway_auth"]
    assert "gateway_auth: not set, and %s on gateway1 asks for no key: set log_only to serve" % SITE in by_hand.refused(
        "adopt"
    )
    by_hand.inventory["llama_gateway"]["vars"]["gateway_auth"] = "log_only"
    (by_hand.node("node1") / "talkers").write_text("10.0.0.9 10.0.0.10")
    assert (
        "llama_clients: not set, and 10.0.0.9 talks to node1, 10.0.0.10 talks to node1 directly, where only the "
        "gateway will be let in: list these clients or their network in llama_clients, or set it to [] to leave the "
        "ports to the gateway"
    ) in by_hand.refused("adopt")
    assert by_hand.events == []
    by_hand.inventory["llama_nodes"]["vars"]["llama_clients"] = ["10.0.0.0/24"]
    by_hand.done("adopt")


def test_clients_of_the_tailnet_need_a_word_where_nginx_has_an_address_of_its_own(by_hand):
    (by_hand.node("gateway1") / "tailnet").write_text("100.101.5.9")
    by_hand.inventory["llama_gateway"]["vars"]["gateway_addresses"] = ["10.0.0.5"]
    assert (
        "gateway_tailscale: false, and 100.101.5.9 of the tailnet talks to gateway1, where nginx will listen on "
        "10.0.0.5 only: set gateway_tailscale to true, or drop gateway_addresses"
    ) in by_hand.refused("adopt")
    assert by_hand.events == []
    del by_hand.inventory["llama_gateway"]["vars"]["gateway_addresses"]
    by_hand.done("adopt")


def test_teardown_refuses_while_a_gateway_is_saved(by_hand):
    by_hand.done("adopt")
    by_hand.node("node1").joinpath("var/lib/llama-cluster/adopted/record.json").unlink()
    by_hand.node("node2").joinpath("var/lib/llama-cluster/adopted/record.json").unlink()
    assert (
        "/var/lib/llama-cluster/adopted-gateway: the deployment of before 2026-10-01T08:00:00Z is saved there on "
        "gateway1, none may be" in by_hand.refused("teardown")
    )
