# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import fabric

ADDRESSES = """\
1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
2: eth0    inet 10.0.0.31/24 brd 10.0.0.255 scope global noprefixroute eth0\\       valid_lft forever preferred_lft
  forever
3: ib0    inet 10.100.0.31/24 brd 10.100.0.255 scope global noprefixroute ib0\\       valid_lft forever preferred_lft
  forever
4: tun0    inet 10.9.0.2 peer 10.9.0.1/32 scope global tun0\\       valid_lft forever preferred_lft forever
7: eth1@if8    inet 10.214.0.11/24 brd 10.214.0.255 scope global eth1\\       valid_lft forever preferred_lft forever
"""
OVER_IB0 = "10.100.0.32 dev ib0 src 10.100.0.31 uid 0 \\    cache \n"
OVER_ETH0 = "10.100.0.32 via 10.0.0.1 dev eth0 src 10.0.0.31 uid 0 \\    cache \n"


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text("%s\n" % content)


@pytest.fixture(name="sysfs")
def fixture_sysfs(tmp_path):
    """A node with an Ethernet card and port 2 of an InfiniBand card, laid out as the kernel does."""
    root = tmp_path / "sys"
    net, card = root / "class/net", root / "devices/pci0000:3a/0000:3b:00.0"
    write(net / "eth0", type=1, mtu=1500, operstate="up", speed=1000)
    write(net / "eth0/statistics", rx_errors=1, tx_errors=2, rx_dropped=3, tx_dropped=4)
    write(net / "ib0", type=32, mtu=2044, operstate="up", speed=56000, dev_port=1, mode="datagram")
    write(net / "ib0/statistics", rx_errors=0, tx_errors=0, rx_dropped=0, tx_dropped=5)
    (net / "ib0/device").symlink_to(card)
    for port, state in ((1, "1: DOWN"), (2, "4: ACTIVE")):
        write(
            card / "infiniband/mlx5_0/ports" / str(port),
            link_layer="InfiniBand",
            state=state,
            rate="100 Gb/sec (2X HDR)",
        )
        write(
            card / "infiniband/mlx5_0/ports" / str(port) / "counters",
            symbol_error=6,
            link_downed=7,
            port_xmit_discards=8,
        )
    return root


@pytest.fixture(name="collect")
def fixture_collect(sysfs, tmp_path, monkeypatch):
    """collect() on that node, with these answers of `ip route get`: {peer: (exit status, output)}."""
    tool = tmp_path / "bin/ip"
    write(tool.parent)
    (tool.parent / "addr").write_text(ADDRESSES)
    tool.write_text(
        '#!/bin/sh\ncd "${0%/*}"\ncase "$*" in "-o -4 addr show") cat addr ;; "-o -4 route get "*) cat "$5"; exit '
        '"$(cat "$5.status")" ;; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)

    def collect(routes=None, address="10.100.0.31", interface=None):
        for peer, (status, output) in (routes or {}).items():
            (tool.parent / peer).write_text(output)
            (tool.parent / (peer + ".status")).write_text(str(status))
        return fabric.collect(address, list(routes or {}), interface, str(sysfs))

    return collect


def test_a_node_on_infiniband(collect):
    no_counter = dict.fromkeys(fabric.PORT_ERRORS)
    assert collect({"10.100.0.32": (0, OVER_IB0)}, interface="ib0") == {
        "address": "10.100.0.31",
        "interface": "ib0",
        "link_layer": "InfiniBand",
        "state": "up",
        "mtu": 2044,
        "rate_gbps": 100.0,
        "ipoib_mode": "datagram",
        "errors": {"rx_errors": 0, "tx_errors": 0, "rx_dropped": 0, "tx_dropped": 5},
        "port": {
            "device": "mlx5_0",
            "port": 2,
            "link_layer": "InfiniBand",
            "state": "ACTIVE",
            "rate": "100 Gb/sec (2X HDR)",
            "rate_gbps": 100.0,
            "errors": dict(no_counter, symbol_error=6, link_downed=7, port_xmit_discards=8),
        },
        "peers": [
            {"address": "10.100.0.32", "interface": "ib0", "source": "10.100.0.31", "on_fabric": True, "problem": None}
        ],
        "warnings": [],
    }


def test_a_node_on_ethernet(collect):
    facts = collect(address="10.0.0.31")
    assert (facts["interface"], facts["link_layer"], facts["mtu"], facts["rate_gbps"], facts["ipoib_mode"]) == (
        "eth0",
        "Ethernet",
        1500,
        1.0,
        None,
    )
    assert facts["errors"] == {"rx_errors": 1, "tx_errors": 2, "rx_dropped": 3, "tx_dropped": 4}
    assert (facts["port"], facts["warnings"]) == (None, [])


def test_an_address_on_no_interface(collect):
    facts = collect({"10.100.0.32": (0, OVER_ETH0)}, address="10.100.0.99", interface="ib0")
    assert (facts["interface"], facts["link_layer"], facts["mtu"], facts["port"], facts["peers"][0]["on_fabric"]) == (
        None,
        None,
        None,
        None,
        False,
    )
    assert facts["warnings"] == [
        "llama_fabric_address: 10.100.0.99 is on no interface of this node, which has 10.0.0.31 (eth0), 10.100.0.31 "
        "(ib0), 10.214.0.11 (eth1), 10.9.0.2 (tun0), one of these is needed: correct hosts.yml or bring the interface "
        "up"
    ]


def test_address_on_an_unexpected_interface(collect):
    facts = collect(address="10.0.0.31", interface="ib0")
    assert facts["warnings"] == [
        "llama_fabric_interface: 10.0.0.31 is on eth0, ib0 is needed: correct hosts.yml or the node's network"
    ]


@pytest.mark.parametrize(
    ("status", "output", "warning"),
    [
        (
            0,
            OVER_ETH0,
            "llama_fabric_address: RPC to 10.100.0.32 would leave over eth0 with source 10.0.0.31, ib0 with source "
            "10.100.0.31 is needed: see ip route get 10.100.0.32",
        ),
        (
            0,
            OVER_IB0.replace("src 10.100.0.31", "src 10.0.0.31"),
            "llama_fabric_address: RPC to 10.100.0.32 would leave over ib0 with source 10.0.0.31, ib0 with source "
            "10.100.0.31 is needed: see ip route get 10.100.0.32",
        ),
        (
            0,
            OVER_IB0.replace("dev ib0", "dev eth0"),
            "llama_fabric_address: RPC to 10.100.0.32 would leave over eth0 with source 10.100.0.31, ib0 with source "
            "10.100.0.31 is needed: see ip route get 10.100.0.32",
        ),
        (
            2,
            "RTNETLINK answers: Network is unreachable\n",
            "llama_fabric_address: there is no route from 10.100.0.31 to 10.100.0.32 (RTNETLINK answers: Network is "
            "unreachable), one over ib0 is needed: see ip route",
        ),
    ],
)
def test_rpc_that_would_leave_the_fabric(collect, status, output, warning):
    facts = collect({"10.100.0.32": (status, output), "10.100.0.33": (0, OVER_IB0)})
    assert [peer["on_fabric"] for peer in facts["peers"]] == [False, True]
    assert facts["warnings"] == [warning]


def test_a_node_is_no_peer_of_itself(collect):
    assert (
        collect({"10.100.0.31": (0, "local 10.100.0.31 dev lo src 10.100.0.31 uid 0 \\    cache <local> \n")})["peers"]
        == []
    )


@pytest.mark.parametrize(("state", "warned"), [("down", True), ("lowerlayerdown", True), ("unknown", False)])
def test_a_link_that_is_down(collect, sysfs, state, warned):
    write(sysfs / "class/net/ib0", operstate=state)
    warnings = ["llama_fabric_address: ib0 with 10.100.0.31 is %s, up is needed: see ip link and the cable" % state]
    assert collect()["warnings"] == (warnings if warned else [])


def test_without_ip_the_package_is_named(monkeypatch, tmp_path):
    def missing(*_arguments, **_options):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(fabric.subprocess, "Popen", missing)
    with pytest.raises(
        fabric.Refusal, match=r"ip cannot be run \(No such file or directory\): install the package iproute2"
    ):
        fabric.collect("10.100.0.31", sysfs=str(tmp_path))


def test_addresses():
    assert fabric.parse_addresses(ADDRESSES) == {
        "127.0.0.1": "lo",
        "10.0.0.31": "eth0",
        "10.100.0.31": "ib0",
        "10.9.0.2": "tun0",
        "10.214.0.11": "eth1",
    }


@pytest.mark.parametrize(
    ("text", "route"),
    [
        (OVER_IB0, ("ib0", "10.100.0.31")),
        (OVER_ETH0, ("eth0", "10.0.0.31")),
        ("10.100.0.32 dev wg0 uid 0 \\    cache \n", ("wg0", None)),
        ("", (None, None)),
    ],
)
def test_route(text, route):
    assert fabric.parse_route(text) == route


def test_the_port_under_a_vlan_on_a_bond(sysfs):
    net = sysfs / "class/net"
    for upper, lower in (("bond0", "ib0"), ("bond0.7", "bond0")):
        write(net / upper, type=32, mtu=2044, operstate="up", mode="connected")
        (net / upper / ("lower_" + lower)).symlink_to(net / lower)
    facts = fabric.describe("bond0.7", str(sysfs))
    assert (facts["port"]["device"], facts["port"]["port"], facts["rate_gbps"], facts["ipoib_mode"]) == (
        "mlx5_0",
        2,
        100.0,
        "connected",
    )


def test_roce_has_a_port_and_the_interface_rate(sysfs):
    net, card = sysfs / "class/net", sysfs / "devices/0000:5e:00.0"
    write(net / "eth9", type=1, mtu=9000, operstate="up", speed=25000, dev_port=0)
    (net / "eth9/device").symlink_to(card)
    write(card / "infiniband/mlx5_2/ports/1", link_layer="Ethernet", state="4: ACTIVE", rate="25 Gb/sec (1X EDR)")
    write(net / "bond9", type=1, mtu=9000, operstate="up", speed=50000)
    (net / "bond9/lower_eth9").symlink_to(net / "eth9")
    facts = fabric.describe("bond9", str(sysfs))
    assert (facts["link_layer"], facts["rate_gbps"], facts["ipoib_mode"]) == ("Ethernet", 50.0, None)
    assert (facts["port"]["device"], facts["port"]["port"], facts["port"]["link_layer"]) == ("mlx5_2", 1, "Ethernet")


@pytest.mark.parametrize(("speed", "rate"), [("10000", 10.0), ("-1", None), ("", None)])
def test_a_rate_that_is_not_known_is_null(sysfs, speed, rate):
    write(sysfs / "class/net/eth0", speed=speed)
    assert fabric.describe("eth0", str(sysfs))["rate_gbps"] == rate
