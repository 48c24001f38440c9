# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.ports import client_access

HEAD = {"service": "chat", "port": 8000, "address": "10.0.0.31"}
SHOWN = "2: eth0    inet 10.0.0.31/24 brd 10.0.0.255 scope global eth0\\       valid_lft forever preferred_lft forever"
RULE = 'rule family="ipv4" source address="%s" port port="8000" protocol="tcp" accept'


def heads(clients=(), shown=SHOWN, **more):
    return client_access([HEAD], {HEAD["address"]: shown}, clients, **more)


def test_clients_are_of_the_heads_own_network():
    (head,) = heads()
    assert (head["interface"], head["networks"], head["rules"]) == (
        "eth0",
        ["10.0.0.0/24"],
        {RULE % "10.0.0.0/24": "eth0"},
    )


def test_clients_are_of_the_configured_networks():
    (head,) = heads(["192.0.2.0/24", "10.7.0.1"], source="192.0.2.9")
    assert head["rules"] == {RULE % "192.0.2.0/24": "eth0", RULE % "10.7.0.1/32": "eth0"}
    assert head["admits"]
    assert not heads(["192.0.2.0/24"], source="10.0.0.32")[0]["admits"]


def test_stopped_service_has_no_clients():
    stopped = dict(HEAD, state="stopped")
    assert client_access([stopped], {HEAD["address"]: SHOWN}, []) == []
    assert len(client_access([stopped, dict(HEAD, state="started")], {HEAD["address"]: SHOWN}, [])) == 1


def test_loopback_clients_open_nothing():
    """A gateway on the node of its only head: nothing is opened."""
    (found,) = heads(["127.0.0.0/8"], source="10.0.0.9")
    assert (found["networks"], found["rules"], found["admits"]) == ([], {}, False)


def test_head_without_an_interface_has_no_rule():
    assert heads(["10.0.0.0/8"], "1: lo    inet 127.0.0.1/8 scope host lo")[0]["rules"] == {}
    assert heads([], "")[0]["rules"] == {}
    assert heads(["10.0.0.0/8"], "")[0]["rules"] == {RULE % "10.0.0.0/8": ""}
    # Without its interface.
    assert client_access([HEAD], {}, ["10.0.0.0/8"])[0]["interface"] == ""


@pytest.mark.parametrize(
    ("clients", "seen"),
    [
        ("10.0.0.0/8", "'10.0.0.0/8' seen, a list"),
        (["10.0.0.31/24"], "'10.0.0.31/24' seen, an IPv4 network with its mask is needed: write 10.0.0.0/24"),
        (["fe80::/64"], "'fe80::/64' seen"),
    ],
)
def test_invalid_networks_are_refused(clients, seen):
    with pytest.raises(Refusal, match="llama_clients: " + seen):
        heads(clients)
