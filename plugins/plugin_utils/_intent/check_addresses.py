# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of an inventory that are one machine. Private to the collection."""

from collections.abc import Mapping
from typing import Any

from . import gateway, monitoring
from .records import Groups, HostVars

# By the others several hosts may have one address: they are told apart in another way.
SSH = ("ssh", "smart", "paramiko", "paramiko_ssh", "libssh", "ansible.netcommon.libssh")
WAY = ("ansible_host", "ansible_port", "ansible_ssh_common_args", "ansible_ssh_extra_args")


def machine_errors(groups: Groups, hostvars: HostVars) -> list[str]:
    """Two names of one machine: ports, cards and units are counted by name, so both would get the same ones."""
    hosts = dict.fromkeys([*gateway.all_hosts(groups), *monitoring.hosts(groups)])
    found, taken = [], dict[tuple[str, ...], str]()
    for host in hosts:
        way = _way(hostvars[host])
        other = taken.setdefault(way, host) if way else host
        if other != host:
            found.append(
                "ansible_host: %s seen for %s and %s, an address of its own is needed: correct it, or write %s in "
                "every group of that machine" % (way[0], other, host, other)
            )
    addresses: dict[str, str] = {}
    for node in groups["llama_nodes"]:
        own = hostvars[node].get("llama_address")
        other = addresses.setdefault(str(own), node) if own else node
        if other != node:
            found.append(
                f"llama_address: {own} seen for {other} and {node}, an address of its own is needed: correct it"
            )
    return found


def _way(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """How a machine is reached, empty where that says nothing of which machine it is."""
    if not facts.get("ansible_host") or str(facts.get("ansible_connection") or "ssh") not in SSH:
        return ()
    return tuple(str(facts.get(name) or ("22" if name == "ansible_port" else "")) for name in WAY)
