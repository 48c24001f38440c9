# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cards that a service may use, and that its units see. Private to the collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ...module_utils._plan.devices import Device
from ...module_utils._plan.place import ServicePlan
from ...module_utils._settings import is_stopped
from ...module_utils._text import Refusal
from .._intent.builds import entry_of
from .._intent.hosts import expand
from .._intent.records import Groups, Services, Settings
from . import refusals
from .stopped import Inventory as Planned
from .stopped import add_stopped, misfits

Found = dict[str, list[str]]  # UUIDs by node


class Inventory(Planned, Protocol):
    services: Services
    groups: Groups
    builds: Mapping[str, Any]
    nodes: Mapping[str, Mapping[str, Any]]
    devices: dict[str, list[Device]]

    def earlier(self, name: str, nodes: Iterable[str]) -> list[ServicePlan]: ...


def seen(service: Settings, builds: Mapping[str, Any]) -> Settings:
    """A service with what its build sees of cards: one for the CPU sees none, whatever its nodes have."""
    return dict(service, cards=[]) if needs_no_card(service, builds) and "cards" not in service else service


def needs_no_card(service: Settings, builds: Mapping[str, Any]) -> bool:
    """Whether the build of a service is for the CPU. With auto it is where nobody sees a card, which the plan follows
    by itself."""
    return entry_of(service, builds).get("accelerator") == "cpu"


def add(inventory: Inventory, name: str) -> Found | None:
    """Adds a service to the plan, with the cards alone that it may use. -> what its units see on each of its nodes that
    are in the plan; None where it may use all."""
    service, devices = inventory.services[name], inventory.devices
    if "cards" not in service:
        _place(inventory, name)
        return None
    hosts = _hosts(inventory, service)
    earlier = _earlier(inventory, name)
    try:
        own = {node: _own(inventory, name, node, earlier) for node in hosts if node in devices}
        inventory.devices = dict(devices, **own)
        lacks = misfits(inventory, name) if earlier else []
        inventory.devices = devices
        # Other replicas stay where they are.
        moves = hosts if service.get("workers") else [lack.described.node for lack in lacks]
        if lacks:
            own = {node: _own(inventory, name, node, {} if node in moves else earlier) for node in own}
    except Refusal as problem:
        inventory.refused.append(str(problem))
        return {}
    inventory.devices = dict(devices, **own)
    _place(inventory, name)
    inventory.devices = devices
    # Without a card a unit sees none.
    return {node: [device.uuid for device in found if device.kind == "GPU"] for node, found in own.items()}


def _hosts(inventory: Inventory, service: Mapping[str, Any]) -> list[str]:
    return expand(service["head"], inventory.groups) + expand(service.get("workers", ""), inventory.groups)


def _place(inventory: Inventory, name: str) -> None:
    if is_stopped(inventory.services[name]):
        add_stopped(inventory, name)
    else:
        inventory.add(name)


def _earlier(inventory: Inventory, name: str) -> dict[str, set[str]]:
    """The cards by node that a count of them chose in an earlier run: others would mean a restart."""
    found: dict[str, set[str]] = {}
    if isinstance(inventory.services[name]["cards"], int):
        for part in inventory.earlier(name, _hosts(inventory, inventory.services[name])):
            for row in part.plan.devices:
                found.setdefault(row.node, set()).update([row.device] if row.kind == "GPU" else [])
    return found


def _own(inventory: Inventory, name: str, node: str, earlier: Mapping[str, set[str]]) -> list[Device]:
    """Errors: Refusal."""
    wanted, devices = inventory.services[name]["cards"], inventory.devices[node]
    cards = [device for device in devices if device.kind == "GPU"]
    if wanted == []:
        main = inventory.nodes[node].get("main")
        if cards and not main:
            of_build = needs_no_card(inventory.services[name], inventory.builds)
            raise Refusal(refusals.no_main_memory(name, node, of_build))
        return [Device(**main)] if cards and main else devices
    if isinstance(wanted, list):
        unknown = [index for index in wanted if "GPU%d" % index not in [card.device for card in cards]]
        if unknown:
            raise Refusal(refusals.no_such_card(name, node, unknown[0], [card.device[3:] for card in cards]))
        return [card for card in cards if int(card.device[3:]) in wanted]
    if wanted > len(cards):
        raise Refusal(refusals.too_many_cards(name, node, wanted, len(cards)))
    same = [card for card in cards if card.device in earlier.get(node, ())]
    if len(same) == wanted:
        return same
    unknown_claims = [other for other in inventory.uncounted if node in _hosts(inventory, inventory.services[other])]
    if unknown_claims:
        raise Refusal(refusals.count_beside_uncounted(name, node, wanted, unknown_claims))
    # By what the inventory puts there, not by what is free now: the choice is in the digest of the unit.
    chosen = sorted(cards, key=lambda card: _taken(inventory, card))[:wanted]
    return [card for card in cards if card in chosen]


def _taken(inventory: Inventory, card: Device) -> tuple[int, int, int]:
    """The cards with the least of other services first, then the largest ones by whole GiB, then by index."""
    claims = inventory.claimed.get((card.node, card.device), {})
    return (sum(claims.values()), -round(card.total_mib / 1024), int(card.device[3:]))


def claimed_twice(devices: Mapping[str, list[Device]]) -> list[str]:
    """Lines on cards that several names of the inventory have, which a plan counts as several."""
    nodes: dict[str, list[str]] = {}
    for node, own in sorted(devices.items()):
        for uuid in {device.uuid for device in own if device.uuid}:
            nodes.setdefault(uuid, []).append(node)
    return [
        f"note: {' and '.join(names)} have the same card, {uuid}, which is counted for each of them"
        for uuid, names in sorted(nodes.items())
        if len(names) > 1
    ]
