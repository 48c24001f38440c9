# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which other node would hold a service that does not fit. Private to the collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ...module_utils._plan import table
from ...module_utils._plan.devices import Device
from ...module_utils._plan.place import Plan, Row, plan
from ...module_utils._settings import value
from .._intent.records import Models, Services
from . import refusals
from .misfits import Misfit, advice, leave_room
from .own_cards import needs_no_card


class Inventory(Protocol):
    """What is planned, of all services."""

    services: Services
    models: Models
    builds: Mapping[str, Any]
    typed: set[str]
    least: dict[str, list[Plan]]
    nodes: Mapping[str, Mapping[str, Any]]
    claimed: dict[tuple[str, str], dict[str, int]]

    def main_memory(self, node: str) -> Device | None: ...

    def devices_of(self, nodes: list[str]) -> list[Device]: ...

    def claim(self, name: str, rows: Iterable[Row]) -> None: ...

    def has_replicas(self, name: str) -> bool: ...


def misfit_refusal(inventory: Inventory, one: Misfit) -> str:
    """Why a server does not fit, and what would."""
    if one.words or one.counts or "models" in inventory.services[one.name]:
        elsewhere = []
    elif inventory.has_replicas(one.name):
        elsewhere = [f"leave {one.described.node} out of head"]
    else:
        elsewhere = other_nodes(inventory, one)
    words = one.words or elsewhere + advice(
        one.shape,
        one.settings,
        one.devices,
        one.local,
        inventory.models[one.described.model],
        one.described.quant,
        one.counts,
        not elsewhere,
        one.main,
    )
    words = words + leave_room(one, inventory.least)
    if one.name in inventory.typed:  # both ways to say it are refused together
        words = [said.replace("set cache to", "set cache_type_k and cache_type_v to") for said in words]
    return refusals.does_not_fit(one.name, inventory.services[one.name], one.described, words, one.beside)


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
            others.append((f" beside {table.join(sorted(claims))}" if claims else "", node, found))
    others.sort(key=lambda other: other[0] != "")
    for beside, node, found in others:
        planned = plan(shape, settings, found, len(found), main=inventory.main_memory(node))
        if planned.fits:
            inventory.claim(one.name, planned.devices)
            return [f"make {node} its head{beside}{' and drop workers' if service.get('workers') else ''}"]
    if without:
        found = inventory.devices_of([devices[-1].node])
        planned = plan(shape, settings, found, len(found))
        if found[0].kind == "GPU" and planned.fits:
            inventory.claim(one.name, planned.devices)
            if needs_no_card(service, inventory.builds):
                return [f"write accelerator auto in llama_builds.{value(service, 'build')}"]
            return ["drop cards"]
    # Neither goes with workers.
    if one.local and not (without or "cpu_moe" in service or one.shape.left):
        for beside, node, found in others:
            planned = plan(shape, settings, found + devices, one.local)
            if planned.fits:
                inventory.claim(one.name, planned.devices)
                return [f"add {node} to workers{beside}"]
    return []
