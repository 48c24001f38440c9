# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface that carries RPC, and whether RPC would leave it. Reads sysfs and asks `ip`, sends nothing. Private to
the collection.

What sysfs has: Documentation/ABI/stable/sysfs-class-infiniband and Documentation/ABI/testing/sysfs-class-net of the
kernel, Documentation/infiniband/ipoib.rst for the mode.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from typing import Any

from .._text import Refusal

Facts = dict[str, Any]
# ARPHRD_* of the kernel's if_arp.h.
LINK_LAYERS = {1: "Ethernet", 32: "InfiniBand", 772: "loopback"}
INTERFACE_ERRORS = ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
PORT_ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_constraint_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
)


def collect(address: str, peers: Sequence[str] = (), interface: str | None = None, sysfs: str = "/sys") -> Facts:
    """Facts of the fabric as this node sees it, see llama_fabric_facts.

    address: the node's llama_fabric_address. peers: the same of the other nodes. interface: the one that address is
    expected on.
    Errors: Refusal.
    """
    addresses = parse_addresses(_ip("addr", "show")[1])
    facts: Facts = {"address": address, "interface": addresses.get(address)}
    facts.update(describe(facts["interface"], sysfs))
    facts["peers"] = [_peer(peer, facts) for peer in peers if peer != address]
    facts["warnings"] = warnings(facts, addresses, interface)
    return facts


def interface_of(address: str) -> str | None:
    """The interface that has an IPv4 address; None without one. Errors: Refusal."""
    return parse_addresses(_ip("addr", "show")[1]).get(address)


def _ip(*arguments: str) -> tuple[int, str]:
    """(exit status, output) of `ip` for IPv4; one line for each entry, a form that iproute2 of EL8 and of today
    share."""
    # Debian keeps it where only root looks.
    environment = dict(os.environ, LC_ALL="C", PATH=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    command = ["ip", "-o", "-4"] + list(arguments)
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, env=environment
        )
    except OSError as error:
        raise Refusal(
            "ip cannot be run (%s): install the package iproute2, or iproute on Enterprise Linux"
            % os.strerror(error.errno or 0)
        ) from None
    output = process.communicate()[0]
    return process.returncode, output


def parse_addresses(text: str) -> dict[str, str]:
    """`ip -o -4 addr show` -> {address: interface}."""
    return {
        address: name
        for name, address in re.findall(r"^\d+: ([^\s@]+)\S*\s+inet (\d+\.\d+\.\d+\.\d+)", text, re.MULTILINE)
    }


def parse_route(text: str) -> tuple[str | None, str | None]:
    """`ip -o -4 route get ADDRESS` -> (interface, source address), each None where it does not say."""
    interface, source = (re.search(rf"\b{word} (\S+)", text) for word in ("dev", "src"))
    return interface and interface.group(1), source and source.group(1)


def _peer(address: str, facts: Facts) -> Facts:
    """How the kernel would send to a peer; llama.cpp's RPC client leaves the source to it."""
    status, output = _ip("route", "get", address)
    interface, source = parse_route(output)
    return {
        "address": address,
        "interface": interface,
        "source": source,
        # Workers accept their head only by its fabric address.
        "on_fabric": interface is not None and (interface, source) == (facts["interface"], facts["address"]),
        "problem": " ".join(output.split()) if status else None,
    }


def describe(interface: str | None, sysfs: str = "/sys") -> Facts:
    """{link_layer, state, mtu, rate_gbps, ipoib_mode, errors, port} of an interface; None for what it does not have."""
    folder = os.path.join(sysfs, "class/net", interface or "")
    port = _port(folder) if interface else None
    layer = LINK_LAYERS.get(_number(folder, "type") or 0)
    speed = _number(folder, "speed") or -1  # Mbit/s, -1 where it is not known
    return {
        "link_layer": layer,
        "state": _read(folder, "operstate"),
        "mtu": _number(folder, "mtu"),
        # A bond of Ethernet cards is faster than each of their ports.
        "rate_gbps": port["rate_gbps"] if port and layer == "InfiniBand" else speed / 1000.0 if speed > 0 else None,
        "ipoib_mode": _read(folder, "mode"),  # a file of IPoIB interfaces
        "errors": {name: _number(folder, "statistics", name) for name in INTERFACE_ERRORS},
        "port": port,
    }


def _port(folder: str) -> Facts | None:
    """The RDMA port under an interface, through the bonds, bridges and VLANs above it; None without one."""
    devices = os.path.join(folder, "device/infiniband")
    if not os.path.isdir(devices):
        lower = [name for name in sorted(_list(folder)) if name.startswith("lower_")]
        return next((port for port in (_port(os.path.join(folder, name)) for name in lower) if port), None)
    device = sorted(_list(devices))[0]
    # Interfaces count a card's ports from 0, RDMA devices from 1.
    number = (_number(folder, "dev_port") or 0) + 1
    port = os.path.join(devices, device, "ports", str(number))
    rate = re.match(r"^(\d+(?:\.\d+)?) Gb/sec", _read(port, "rate") or "")
    return {
        "device": device,
        "port": number,
        "link_layer": _read(port, "link_layer"),
        # '4: ACTIVE'
        "state": (_read(port, "state") or "").rpartition(" ")[2] or None,
        "rate": _read(port, "rate"),
        "rate_gbps": float(rate.group(1)) if rate else None,
        "errors": {name: _number(port, "counters", name) for name in PORT_ERRORS},
    }


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(*path: str) -> str | None:
    """A file of sysfs without its line end; None where it is missing, empty or refuses, as the speed of a link that is
    down does."""
    try:
        with open(os.path.join(*path), encoding="ascii") as stream:
            return stream.read().strip() or None
    except (OSError, ValueError):
        return None


def _number(*path: str) -> int | None:
    try:
        return int(_read(*path) or "")
    except ValueError:
        return None


def warnings(facts: Facts, addresses: dict[str, str], expected: str | None = None) -> list[str]:
    """Sentences about what would take RPC off the fabric. facts: of collect. addresses: {address: interface} of the
    node."""
    address, interface = facts["address"], facts["interface"]
    if not interface:
        own = ", ".join("%s (%s)" % pair for pair in sorted(addresses.items()) if pair[1] != "lo") or "no address"
        return [
            "llama_fabric_address: %s is on no interface of this node, which has %s, one of these is needed: correct "
            "hosts.yml or bring the interface up" % (address, own)
        ]
    found = []
    if expected and interface != expected:
        found.append(
            "llama_fabric_interface: %s is on %s, %s is needed: correct hosts.yml or the node's network"
            % (address, interface, expected)
        )
    # Interfaces without a link report 'unknown'.
    if facts["state"] not in ("up", "unknown", None):
        found.append(
            "llama_fabric_address: %s with %s is %s, up is needed: see ip link and the cable"
            % (interface, address, facts["state"])
        )
    for peer in facts["peers"]:
        if peer["problem"]:
            found.append(
                "llama_fabric_address: there is no route from %s to %s (%s), one over %s is needed: see ip route"
                % (address, peer["address"], peer["problem"], interface)
            )
        elif not peer["on_fabric"]:
            found.append(
                "llama_fabric_address: RPC to %s would leave over %s with source %s, %s with source %s is needed: see "
                "ip route get %s"
                % (peer["address"], peer["interface"], peer["source"], interface, address, peer["address"])
            )
    return found
