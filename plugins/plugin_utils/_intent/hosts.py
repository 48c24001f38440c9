# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of an inventory: what a pattern means, and the addresses of a host. Private to the collection."""

import ipaddress
import re
from typing import Any

from ...module_utils._text import Refusal
from .records import Groups, HostVars
from .values import did_you_mean, shown


def expand(pattern: object, groups: Groups) -> list[str]:
    """Hosts of an Ansible pattern (host, group, ``a:b``, ``a:!b``, ``a:&b``, commas for colons), in inventory order."""
    known = list(groups.get("all", []))
    chosen: list[str] = []
    excluded: set[str] = set()
    required: set[str] | None = None
    for term in re.sub(r"[:,]", " ", str(pattern)).split():
        sign, name = (term[0], term[1:]) if term[0] in "!&" else ("", term)
        if name in groups:
            hosts = list(groups[name])
        elif name in known:
            hosts = [name]
        else:
            raise Refusal(
                "%s is neither a host nor a group of this inventory%s"
                % (name, did_you_mean(name, known + sorted(groups), ": correct the name, or add it to hosts.yml"))
            )
        if sign == "!":
            excluded.update(hosts)
        elif sign == "&":
            required = set(hosts) if required is None else required & set(hosts)
        else:
            chosen.extend(host for host in hosts if host not in chosen)
    return [host for host in chosen if host not in excluded and (required is None or host in required)]


def node_address(host: str, hostvars: HostVars) -> str:
    """The address clients reach a node at: llama_address, else ansible_host, else its inventory name."""
    facts = hostvars[host]
    return facts.get("llama_address") or facts.get("ansible_host") or host


def rpc_address(head: str, hostvars: HostVars) -> str:
    """The address a head comes from to its workers."""
    return hostvars[head].get("llama_fabric_address") or node_address(head, hostvars)


def network_mistake(clients: Any) -> tuple[str, str, str] | None:
    """-> (the wrong value of llama_clients, what is needed, next step), or None."""
    if not isinstance(clients, (list, tuple)):
        return shown(clients), "a list of IPv4 networks is", "write [10.0.0.0/24]"
    for text in clients:
        # 10.0.0.0 without a mask is one address, which no client has.
        if not _network(text) or re.match(r"^[0-9.]+\.0\Z", str(text)):
            whole = _network(text, strict=False) if "/" in str(text) else None
            return shown(text), "an IPv4 network with its mask is", f"write {whole or '10.0.0.0/24'}"
    return None


def _network(text: Any, strict: bool = True) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(str(text), strict)
    except ValueError:
        return None


def networks_of(clients: Any) -> list[ipaddress.IPv4Network]:
    """Errors: Refusal."""
    wrong = network_mistake(clients)
    if wrong:
        raise Refusal("llama_clients: %s seen, %s needed: %s" % wrong)
    return [ipaddress.IPv4Network(str(text)) for text in clients]
