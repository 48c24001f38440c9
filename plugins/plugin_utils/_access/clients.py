# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients of a head's port, and the rules of firewalld for them. Private to the collection."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._settings import is_stopped
from .._intent.hosts import networks_of

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
RULE = 'rule family="ipv4" source address="%s" port port="%d" protocol="tcp" accept'
# "2: eth0    inet 10.0.0.31/24 brd 10.0.0.255 scope global eth0"
SHOWN = re.compile(r"^\d+: (\S+)\s+inet (\S+)", re.MULTILINE)


def client_access(
    instances: Sequence[Mapping[str, Any]],
    interfaces: Mapping[str, str],
    clients: Any,
    source: str = "",
) -> list[dict[str, Any]]:
    """-> [{service, port, address, interface, networks, rules, admits}] of a node's heads that are not stopped.

    instances: of head_instances; interfaces: {address: what `ip -oneline -4 address show to ADDRESS` prints}; clients:
    networks, none for the head's own. interface: empty if no interface has the address; rules: {rich rule of firewalld:
    interface}; admits: whether networks have source.
    """
    found = []
    wanted = networks_of(clients)
    for head in instances:
        if is_stopped(head):  # another program may use its port
            continue
        match = SHOWN.search(interfaces.get(head["address"], ""))
        interface, own = match.groups() if match else ("", None)
        networks = wanted or ([ipaddress.IPv4Network(own, strict=False)] if own else [])
        # The loopback has only local clients.
        networks = [] if interface == "lo" else [one for one in networks if not one.is_loopback]
        found.append(
            {
                "service": head["service"],
                "port": head["port"],
                "address": head["address"],
                "interface": interface,
                "networks": [str(network) for network in networks],
                "rules": {RULE % (network, head["port"]): interface for network in networks},
                "admits": bool(source) and any(ipaddress.ip_address(source) in network for network in networks),
            }
        )
    return found
