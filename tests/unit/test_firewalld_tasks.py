# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles tell firewalld, by their own tasks: every rule in the zone of the interface that packets come in on."""

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.firewalld_node import FirewalldNode

RULE = 'rule family="ipv4" source address="%s" port port="%d" protocol="tcp" accept'


@pytest.fixture(name="node")
def fixture_node(tmp_path):
    return FirewalldNode(tmp_path)


def test_a_model_is_lent_in_the_zone_of_the_fabric(node):
    lent = {"model_share_port": 50099, "__model_borrowers": ["10.1.0.32", "10.0.0.33"]}
    status, output = node.play("model", "firewalld.yml", __model_rule=["--timeout=6h", "--add-rich-rule"], **lent)
    assert status == 0, output
    assert node.rules() == {"internal": [RULE % ("10.1.0.32", 50099)], "public": [RULE % ("10.0.0.33", 50099)]}
    status, output = node.play("model", "firewalld.yml", __model_rule=["--remove-rich-rule"], **lent)
    assert status == 0, output
    assert node.rules() == {}


def clients(node, *networks, port=8000, address="10.0.0.31"):
    heads = [{"service": "chat", "port": port, "address": address}] if port else []
    record = node.folder / "client-rules"
    status, output = node.play("head_server", "clients.yml", head_server_instances=heads, head_server_clients=networks, __head_server_client_rules=str(record))
    assert status == 0, output
    assert node.rules() == node.rules("permanent")
    assert record.exists() == bool(heads)
    return "changed=0" not in output


def test_clients_of_the_heads_network_are_let_in_until_they_are_clients_no_more(node):
    node.rules_of_others("public", RULE % ("10.0.0.0/24", 22))
    theirs = [RULE % ("10.0.0.0/24", 22)]
    assert clients(node)
    assert node.rules() == {"public": theirs + [RULE % ("10.0.0.0/24", 8000)]}
    assert not clients(node)
    assert clients(node, "192.0.2.0/24", "198.51.100.0/24", address="10.1.0.31")
    assert node.rules() == {"public": theirs, "internal": [RULE % ("192.0.2.0/24", 8000), RULE % ("198.51.100.0/24", 8000)]}
    assert clients(node, port=None)
    assert node.rules() == {"public": theirs}


def test_a_worker_lets_its_head_in_in_the_zone_of_the_fabric(node):
    for incoming in (["10.1.0.32:50052"], []):
        status, output = node.play(
            "node_setup",
            "firewalld_rpc.yml",
            node_setup_rpc_access={"incoming": incoming, "outgoing": []},
            __node_setup_firewalld_earlier=[RULE % ("10.1.0.32", 50052)],
        )
        assert status == 0, output
        assert node.rules() == ({"internal": [RULE % ("10.1.0.32", 50052)]} if incoming else {})


def test_where_nobody_else_is_there_to_ask_a_line_says_so(node):
    """One node, which is the controller too."""
    head = {"service": "chat", "port": 8000, "address": "10.0.0.31", "endpoint": "http://10.0.0.31:8000/v1"}
    status, output = node.play("acceptance", "outside.yml", __acceptance_head=head, acceptance_clients=[])
    assert status == 0, output
    assert "chat: not asked from another machine, the controller is no client of its port (10.0.0.0/24)" in output
