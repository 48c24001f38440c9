# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The threads of services that compute in main memory beside others of their node. Private to the collection."""

from collections.abc import Mapping
from typing import Any, Protocol

from ...module_utils._plan.devices import Device
from ...module_utils._plan.place import ServicePlan
from ...module_utils._settings import is_stopped, kind_of, value
from .._intent.hosts import expand
from .._intent.records import Groups, Services


class Inventory(Protocol):
    """What is planned, of all services."""

    services: Services
    groups: Groups
    nodes: Mapping[str, Mapping[str, Any]]
    devices: dict[str, list[Device]]
    planned: dict[str, list[ServicePlan]]


def shares(inventory: Inventory) -> dict[str, dict[str, int]]:
    """{service: {node: threads}} of those that give none: each has an equal part of the physical cores that the others
    leave. One that computes there alone has what llama-server takes.

    It follows from the inventory and from what a node has, never from what is free.
    """
    found: dict[str, dict[str, int]] = {}
    for node, facts in inventory.nodes.items():
        cores = int(facts.get("physical_cores") or 0)
        names = [name for name in sorted(inventory.services) if _computes(inventory, name, node)]
        given = [inventory.services[name].get("threads", 0) for name in names]
        share = max((cores - sum(given)) // max(given.count(0), 1), 1)
        for name in names if cores and len(names) > 1 else ():
            if "threads" not in inventory.services[name]:
                found.setdefault(name, {})[node] = share
    return found


def _computes(inventory: Inventory, name: str, node: str) -> bool:
    """Whether a service that runs has layers or experts in the main memory of a node, its head's."""
    service = inventory.services[name]
    if kind_of(service) != "server" or is_stopped(service) or service.get("workers"):
        return False
    if node not in expand(service["head"], inventory.groups):
        return False
    if service.get("cards") == [] or inventory.devices[node][0].kind == "main":
        return True
    experts = [part.plan.cpu_moe for part in inventory.planned.get(name, []) if part.node == node]
    return value(service, "n_gpu_layers") != "auto" or bool(experts[0] if experts else service.get("cpu_moe"))


def line(found: Mapping[str, Mapping[str, int]], nodes: Mapping[str, Mapping[str, Any]]) -> str:
    """The same as an operator reads it, empty where nobody shares."""
    by_node: dict[str, list[str]] = {}
    for name, threads in sorted(found.items()):
        for node, count in threads.items():
            by_node.setdefault(node, []).append("%s %d" % (name, count))
    parts = [
        f"{', '.join(words)} of the {int(nodes[node]['physical_cores'])} cores of {node}"
        for node, words in sorted(by_node.items())
    ]
    return f"threads of services in main memory: {'; '.join(parts)}" if parts else ""
