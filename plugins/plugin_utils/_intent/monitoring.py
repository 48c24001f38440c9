# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Monitoring in the inventory: its hosts, and the port of the samplers. Private to the collection."""

from .gateway import addresses, all_hosts
from .hosts import node_address
from .records import Groups, HostVars

GROUP = "llama_monitoring"
SAMPLER_PORT = 9754


def hosts(groups: Groups) -> list[str]:
    return list(groups.get(GROUP) or [])


def sampled(groups: Groups) -> list[str]:
    """The hosts with a sampler: nodes, hosts of the gateway, and the one that submits jobs."""
    return list(dict.fromkeys([*all_hosts(groups), *(groups.get("llama_slurm") or [])]))


def sampler_port(host: str, hostvars: HostVars) -> int:
    """The port of a host's sampler; the default is role monitoring's."""
    return int(hostvars[host].get("monitoring_sampler_port") or SAMPLER_PORT)


def monitoring_addresses(host: str, groups: Groups, hostvars: HostVars) -> list[str]:
    """The addresses that the sampler of a host answers."""
    others = [one for other in hosts(groups) if other != host for one in addresses(other, hostvars)]
    own = ["127.0.0.1", node_address(host, hostvars)] if host in hosts(groups) else []
    return list(dict.fromkeys([*own, *others]))


def sampler_access(host: str, groups: Groups, hostvars: HostVars) -> list[str]:
    """ADDRESS/32:PORT for each monitoring host that reads the samples of another host."""
    port = sampler_port(host, hostvars)
    others = [one for other in hosts(groups) if other != host for one in addresses(other, hostvars)]
    return ["%s/32:%d" % (one, port) for one in dict.fromkeys(others)]
