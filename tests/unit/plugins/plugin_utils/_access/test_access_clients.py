# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.clients import client_access

HEAD = {"service": "chat", "port": 8000, "address": "10.0.0.31"}
SHOWN = "2: eth0    inet 10.0.0.31/24 brd 10.0.0.255 scope global eth0\\       valid_lft forever preferred_lft forever"
RULE = 'rule family="ipv4" source address="%s" port port="8000" protocol="tcp" accept'
# nft 1.0.6, what iptables 1.8.9 and nft made of rules as distributions have them.
IPTABLES = """\
table ip filter {
    chain INPUT {
        type filter hook input priority filter; policy %s;
        iifname "lo" counter packets 0 bytes 0 accept
        ct state related,established counter packets 0 bytes 0 accept
        meta l4proto tcp ct state new tcp dport 22 counter packets 0 bytes 0 accept
        meta l4proto icmp counter packets 0 bytes 0 accept
        fib daddr type multicast counter packets 0 bytes 0 accept
        ip daddr 224.0.0.251 udp dport 5353 counter packets 0 bytes 0 accept
        %s
    }

    chain OUTPUT {
        type filter hook output priority filter; policy accept;
        counter packets 0 bytes 0 accept
    }
}
"""
NFT = """\
table inet llama_cluster {
    chain input {
        type filter hook input priority -10; policy accept;
        ip saddr 10.1.0.1 tcp dport 50052 accept comment "llama-cluster 0123456789abcdef"
        tcp dport 50052 reject with tcp reset
    }
}
table inet firewalld {
    chain filter_INPUT {
        type filter hook input priority filter + 10; policy accept;
        reject with icmpx admin-prohibited
    }
}
table inet filter {
    chain input {
        type filter hook input priority filter; policy drop;
        iif "lo" accept comment "loop { x"
        ct state { established, related } accept
        ct state vmap { established : accept, related : accept }
        meta l4proto { icmp, ipv6-icmp } accept
        %s
        log prefix "refused: " drop
    }
}
"""
REFUSAL = (
    "llama_services.chat.port: table %s of node1 keeps 10.0.0.0/24 from port 8000, an open port is needed: run `%s` "
    "there and keep it in that firewall's "
    "configuration, or name other networks in llama_clients"
)


def heads(clients=(), shown=SHOWN, **more):
    return client_access([HEAD], {HEAD["address"]: shown}, clients, **more)


def refusals(ruleset):
    return heads(ruleset=ruleset, host="node1")[0]["refused"]


def test_clients_are_those_of_the_heads_own_network():
    (head,) = heads()
    assert (head["interface"], head["networks"], head["rules"]) == (
        "eth0",
        ["10.0.0.0/24"],
        {RULE % "10.0.0.0/24": "eth0"},
    )


def test_clients_are_those_of_the_networks_that_are_named():
    (head,) = heads(["192.0.2.0/24", "10.7.0.1"], source="192.0.2.9")
    assert head["rules"] == {RULE % "192.0.2.0/24": "eth0", RULE % "10.7.0.1/32": "eth0"}
    assert head["admits"]
    assert not heads(["192.0.2.0/24"], source="10.0.0.32")[0]["admits"]


def test_nobody_is_let_in_to_a_service_that_is_stopped():
    stopped = dict(HEAD, state="stopped")
    assert client_access([stopped], {HEAD["address"]: SHOWN}, [], ruleset=NFT % "") == []
    assert len(client_access([stopped, dict(HEAD, state="started")], {HEAD["address"]: SHOWN}, [])) == 1


def test_a_head_that_its_own_node_alone_may_use_is_open_to_nobody_else():
    """A gateway on the node of its only head: nothing is opened, and no firewall is in the way."""
    ruleset = IPTABLES % ("drop", "")
    (found,) = client_access([HEAD], {HEAD["address"]: SHOWN}, ["127.0.0.0/8"], "10.0.0.9", ruleset, "node1")
    assert (found["networks"], found["rules"], found["refused"], found["admits"]) == ([], {}, [], False)


def test_nobody_is_let_in_to_the_loopback_or_to_an_address_that_is_nowhere():
    assert heads(["10.0.0.0/8"], "1: lo    inet 127.0.0.1/8 scope host lo")[0]["rules"] == {}
    assert heads([], "")[0]["rules"] == {}
    assert heads(["10.0.0.0/8"], "")[0]["rules"] == {RULE % "10.0.0.0/8": ""}
    # Nobody asked for its interface.
    assert client_access([HEAD], {}, ["10.0.0.0/8"])[0]["interface"] == ""


@pytest.mark.parametrize(
    ("clients", "seen"),
    [
        ("10.0.0.0/8", "'10.0.0.0/8' seen, a list"),
        (["10.0.0.31/24"], "'10.0.0.31/24' seen, an IPv4 network is needed: write 10.0.0.0/24"),
        (["fe80::/64"], "'fe80::/64' seen"),
    ],
)
def test_networks_that_are_none_are_refused(clients, seen):
    with pytest.raises(Refusal, match="llama_clients: " + seen):
        heads(clients)


@pytest.mark.parametrize(
    ("ruleset", "table", "line"),
    [
        (IPTABLES % ("drop", ""), "ip filter", "iptables -I INPUT -s 10.0.0.0/24 -p tcp --dport 8000 -j ACCEPT"),
        (
            IPTABLES % ("accept", "counter packets 3 bytes 180 reject with icmp type host-prohibited"),
            "ip filter",
            "iptables -I INPUT -s 10.0.0.0/24 -p tcp --dport 8000 -j ACCEPT",
        ),
        (
            IPTABLES
            % (
                "drop",
                "counter packets 0 bytes 0 jump ufw-user-input\n}\n\nchain ufw-user-input {\nip saddr 10.9.0.0/24 tcp "
                "dport 8000 accept",
            ),
            "ip filter",
            "ufw allow proto tcp from 10.0.0.0/24 to any port 8000",
        ),
        (
            NFT % "tcp dport { 22, 443 } accept",
            "inet filter",
            "nft insert rule inet filter input ip saddr 10.0.0.0/24 tcp dport 8000 accept",
        ),
        (
            NFT % "tcp dport { 7990-7999, 8001-8010 } accept",
            "inet filter",
            "nft insert rule inet filter input ip saddr 10.0.0.0/24 tcp dport 8000 accept",
        ),
    ],
    ids=["policy", "last rule", "ufw", "nft", "ports beside it"],
)
def test_a_firewall_that_keeps_clients_out_is_refused_with_the_line_to_add(ruleset, table, line):
    assert refusals(ruleset) == [REFUSAL % (table, line)]


@pytest.mark.parametrize(
    "ruleset",
    [
        "",
        IPTABLES % ("accept", ""),
        IPTABLES % ("drop", "meta l4proto tcp tcp dport { 80, 443, 8000-8100 }  counter packets 0 bytes 0 accept"),
        IPTABLES % ("drop", "ip saddr 10.0.0.0/8 counter packets 0 bytes 0 accept"),
        IPTABLES
        % (
            "drop",
            "counter packets 0 bytes 0 jump ufw-user-input\n}\n\nchain ufw-user-input {\nip saddr 10.0.0.0/24 tcp "
            "dport 8000 accept",
        ),
        IPTABLES % ("drop", 'xt match "set" tcp dport 8000 counter packets 0 bytes 0 accept'),
        NFT % "tcp dport 7990-8000 accept",
        NFT % "tcp dport { 22, 8000-8010 } accept",
        NFT % "ip saddr @admins accept",
        NFT % 'iifname "eth0" accept',
        NFT % "tcp dport vmap { 22 : accept, 8000 : accept }",
        NFT % "ct state new tcp dport != 25 accept",
        # Of IPv6, and of what goes through.
        *(
            "table %s filter {\n chain c {\n type filter hook %s priority filter; policy drop;\n drop\n }\n}\n" % seen
            for seen in (("ip6", "input"), ("bridge", "input"), ("ip", "forward"))
        ),
    ],
)
def test_what_may_let_clients_in_is_not_refused(ruleset):
    assert refusals(ruleset) == []
