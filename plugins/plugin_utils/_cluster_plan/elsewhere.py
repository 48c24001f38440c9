# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which other node would hold a service that does not fit. Private to the collection."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ...module_utils._plan import table
from ...module_utils._plan.devices import Device
from ...module_utils._plan.place import Row, plan
from .._intent.records import Services
from .misfits import Misfit


class Inventory(Protocol):
    """What is planned, of all services."""

    services: Services
    nodes: Mapping[str, Mapping[str, Any]]
    claimed: dict[tuple[str, str], dict[str, int]]

    def main_memory(self, node: str) -> Device | None: ...

    def devices_of(self, nodes: list[str]) -> list[Device]: ...

    def claim(self, name: str, rows: Iterable[Row]) -> None: ...


def other_nodes(inventory: Inventory, one: Misfit) -> list[str]:
    """Words for other nodes of the inventory that would hold a service, those that nobody uses first; it is given
    their memory."""
    shape, settings, devices = one.shape, one.settings, one.devices
    used = {device.node for device in devices}
    service, others = inventory.services[one.name], []
    without = service.get("cards") == []
    for node in inventory.nodes:
        main = inventory.main_memory(node)
        found = [main] if without and main else inventory.devices_of([node])
        if node not in used and found and found[0].kind == devices[-1].kind:
            claims = {name for device in found for name in inventory.claimed.get((node, device.device), {})}
            others.append((" beside %s" % table.join(sorted(claims)) if claims else "", node, found))
    others.sort(key=lambda other: other[0] != "")
    for beside, node, found in others:
        planned = plan(shape, settings, found, len(found), main=inventory.main_memory(node))
        if planned.fits:
            inventory.claim(one.name, planned.devices)
            return ["make %s its head%s%s" % (node, beside, " and drop workers" if service.get("workers") else "")]
    if without:
        found = inventory.devices_of([devices[-1].node])
        planned = plan(shape, settings, found, len(found))
        if found[0].kind == "GPU" and planned.fits:
            inventory.claim(one.name, planned.devices)
            return ["drop cards"]
    # Neither goes with workers.
    if one.local and not without and "cpu_moe" not in service:
        for beside, node, found in others:
            planned = plan(shape, settings, found + devices, one.local)
            if planned.fits:
                inventory.claim(one.name, planned.devices)
                return ["add %s to workers%s" % (node, beside)]
    return []
