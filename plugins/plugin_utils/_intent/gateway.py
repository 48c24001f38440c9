# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway in the inventory: its hosts and their settings, the names by which services are asked for, and
who may use the ports of heads. Private to the collection."""

from collections.abc import Iterator, Mapping
from typing import Any

from ...module_utils._settings import PORT, is_stopped
from .hosts import expand, networks_of, node_address
from .records import Groups, HostVars, Models, Service, Services, Settings
from .routers import quants
from .values import IPV4, is_a, number, shown

GROUP = "llama_gateway"
# The clients of a head on its own node.
LOOPBACK = "127.0.0.0/8"
# The defaults of role gateway, which no other host sees.
DEFAULTS: dict[str, Any] = {
    "gateway_addresses": ["0.0.0.0"],
    "gateway_tls": {},
    "gateway_auth": "required",
    "gateway_keys": {},
    "gateway_unknown_model": "404",
    "gateway_tiers": {"fast": 8080, "reasoning": 8081},
    "gateway_queue": 64,
    "gateway_patience": 60,
    "gateway_max_body": "32m",
}


def hosts(groups: Groups) -> list[str]:
    return list(groups.get(GROUP) or [])


def all_hosts(groups: Groups) -> list[str]:
    """Nodes, and the gateway's hosts, which may be others."""
    return list(dict.fromkeys([*groups["llama_nodes"], *hosts(groups)]))


def setting(name: str, facts: Mapping[str, Any]) -> Any:
    """A variable of role gateway, as a host of the gateway has it."""
    found = facts.get(name)
    if name == "gateway_port" and found is None:
        return 443 if setting("gateway_tls", facts) else 8000
    return DEFAULTS.get(name) if found is None else found


def names(service: Settings, models: Models) -> Iterator[tuple[str, str]]:
    """(model, name) for each name by which clients ask for what a service serves, the one that it is listed by
    first."""
    for model in quants(service):
        for name in dict.fromkeys(service.get("names") or [model, *(models[model].get("aliases") or [])]):
            yield model, name


def addresses(host: str, hostvars: HostVars) -> list[str]:
    """The IPv4 addresses that the inventory knows of a host: it may come from any of them."""
    facts = hostvars[host]
    known = [node_address(host, hostvars), facts.get("ansible_host"), facts.get("llama_fabric_address")]
    return list(dict.fromkeys(str(one) for one in known if IPV4.match(str(one))))


def client_networks(service_of: list[Service], host: str, groups: Groups, hostvars: HostVars) -> list[str]:
    """The networks that may use the ports of a node's heads; none is for the network of each head.

    Those of llama_clients, and where it is given the hosts of monitoring. Behind a gateway its hosts in any case, and
    the nodes of workers, whose watchdog looks whether their head listens; only the loopback if the node itself is
    the only client. service_of: of managed().
    """
    given = [str(network) for network in networks_of(hostvars[host].get("llama_clients") or [])]
    behind = hosts(groups)
    if not behind and not given:
        return []
    monitoring = groups.get("llama_monitoring") or []
    workers = [worker for one in service_of if behind and host in one.heads for worker in one.workers]
    others = [one for one in dict.fromkeys([*behind, *workers, *monitoring]) if one != host]
    found = dict.fromkeys([*given, *(f"{one}/32" for other in others for one in addresses(other, hostvars))])
    return list(found) or [LOOPBACK]


def client_access(service_of: list[Service], host: str, groups: Groups, hostvars: HostVars) -> list[str]:
    """NETWORK:PORT for each client of a head on a node behind a gateway, other than the node itself; empty without
    one, or if the node is the only client. A stopped service has no port."""
    if not hosts(groups):
        return []
    networks = client_networks(service_of, host, groups, hostvars)
    own = [one for one in service_of if host in one.heads and not is_stopped(one.settings)]
    return ["%s:%d" % (network, one.port) for one in own for network in networks]


def tiers(services: Services) -> dict[str, str]:
    """{tier: the service that answers there}"""
    return {one["tier"]: name for name, one in services.items() if one.get("tier")}


def reserved(facts: Mapping[str, Any]) -> dict[int, str]:
    """{port of a host: what has it beside services and the gateway}"""
    ssh, share = number(facts.get("ansible_port") or 22), number(facts.get("model_share_port") or 50099)
    return {port: name for port, name in ((ssh, "sshd"), (share, "model_share_port")) if is_a(port, int)}


def claims(service_of: list[Service], host: str, services: Services, groups: Groups) -> dict[int, str]:
    """{port of a host: the entry that has it there}"""
    found = {one.port: f"{one.name}.port" for one in service_of if host in one.heads}
    for name, one in services.items():
        if "rpc_port" in one and host in expand(one.get("workers", ""), groups):
            found.setdefault(one["rpc_port"], f"{name}.rpc_port")
    return found


def port_errors(host: str, wanted: Mapping[str, Any], taken: Mapping[int, str]) -> list[str]:
    """A sentence for each port of a host that is invalid or taken by another entry. wanted: {entry: what it says};
    taken: {port: the entry that has it}."""
    found, known = [], dict(taken)
    for entry, given in wanted.items():
        port = number(given)
        if not is_a(port, int) or not PORT[0] <= port <= PORT[1]:
            found.append("%s: %s seen, %d to %d is needed: choose another number" % (entry, shown(given), *PORT))
        elif known.setdefault(port, entry) != entry:
            found.append(
                "%s: %d on %s is taken by %s, a port of its own is needed: choose another"
                % (entry, port, host, known[port])
            )
    return found
