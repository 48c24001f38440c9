# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports of services on a node: what is in their way, and the clients of heads. Private to the collection."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...module_utils._node.units import unit_kind
from ...module_utils._settings import is_stopped
from .._intent.hosts import networks_of
from .._intent.values import plain

# A listener of `ss -Hltnp`, and one of its holders. A process chooses its own name, a line feed in it too, up to 15
# bytes: too few to hold the start of a listener, or the end of one holder and the start of the next.
LISTENER = re.compile(r'^LISTEN[ \t]+\d+[ \t]+\d+[ \t]+([^\s"]+):(\d+)[ \t]', re.MULTILINE)
HOLDER = re.compile(r'\("(.{0,15})",pid=(\d+),fd=\d+\)', re.DOTALL)
# Servers that adopt.yml stops.
SERVERS = ("llama-server", "ggml-rpc-server", "rpc-server")
# Units of role gateway.
GATEWAY = ("nginx.service", "llama-gateway.service")
ADOPT = "run adopt.yml, which takes over unmanaged servers,"


def port_conflicts(
    wanted: Sequence[tuple[str, str, int]],
    listeners: str,
    free: Collection[int],
    managed: Mapping[str, str] | None = None,
) -> list[str]:
    """Sentences for wanted (entry, address, port) triples that a process listens on.

    listeners: the text of `ss -Hltnp`; free: the processes that will have given up their ports;
    managed: {process: unit} of the collection's units on that node.
    """
    found = []
    _before, *parts = LISTENER.split(listeners)
    for local, port, rest in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        address = local.strip("[]").split("%")[0]
        holders = HOLDER.findall(rest)
        if any(int(pid) in free for _name, pid in holders):
            continue
        for entry, wanted_address, wanted_port in wanted:
            if port == str(wanted_port) and address in (wanted_address, "0.0.0.0", "*", "::"):
                found.append(f"{entry}: port {port} of {wanted_address} {_held(holders, managed or {})}")
    return found


def _held(holders: Sequence[tuple[str, str]], managed: Mapping[str, str]) -> str:
    units = [managed[pid] for _name, pid in holders if pid in managed]
    if units:
        tags = "rpc,head,router" if unit_kind(units[0])[0] else "gateway" if units[0] in GATEWAY else "monitoring"
        return (
            "belongs to our %s, which this run does not move before it needs the port, a free one is needed: run "
            "site.yml --tags %s first, or choose another port" % (units[0], tags)
        )
    holder = f"{plain(holders[0][0])} (pid {holders[0][1]})" if holders else "another process"
    step = ADOPT if holders and holders[0][0] in SERVERS else "stop that process"
    return f"is in use by {holder}, a free port is needed: {step} or choose another port"


def processes_of(kinds: Collection[str], managed: Mapping[str, str]) -> set[int]:
    """Processes of managed units of these kinds: rpc, head and router."""
    return {int(pid) for pid, unit in managed.items() if unit_kind(unit)[0] in kinds}


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
