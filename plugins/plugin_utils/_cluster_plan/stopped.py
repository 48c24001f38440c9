# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a service that the inventory has stopped. Private to the collection."""

from typing import Any, Protocol

from . import refusals

Claims = dict[tuple[str, str], dict[str, int]]


class Inventory(Protocol):
    """What is planned so far, of all services that run."""

    planned: dict[str, Any]
    refused: list[str]
    uncounted: list[str]
    sharing: list[str]
    claimed: Claims
    misfits: list[Any]

    def add(self, name: str) -> None: ...


def add_stopped(inventory: Inventory, name: str) -> None:
    """It takes nothing from the others: planned beside those that run, else as if it ran alone. A line says which, and
    what does not even fit alone is refused."""
    lacks = misfits(inventory, name)
    inventory.misfits.extend(_aside(inventory, name, {} if lacks else inventory.claimed))
    if name in inventory.planned:
        shortages = "".join(", " + refusals.shortage(lack.described, lack.beside) for lack in lacks)
        inventory.sharing.append(
            f"{name}: stopped, not counted; it {'does not fit' if lacks else 'fits'} beside what runs{shortages}"
        )


def misfits(inventory: Inventory, name: str) -> list[Any]:
    """What does not fit of a service, or of its replicas, beside what is planned so far. Nothing is said of it."""
    refused, uncounted = list(inventory.refused), list(inventory.uncounted)
    found = _aside(inventory, name, inventory.claimed)
    inventory.refused, inventory.uncounted = refused, uncounted
    return found


def _aside(inventory: Inventory, name: str, claimed: Claims) -> list[Any]:
    """A service added where others have these claims, of which it leaves none. -> itself, or those of its replicas,
    where it does not fit"""
    kept = inventory.claimed, inventory.misfits, inventory.sharing
    claimed = {device: dict(of_device) for device, of_device in claimed.items()}
    inventory.claimed, inventory.misfits, inventory.sharing = claimed, [], []
    inventory.add(name)
    found = inventory.misfits
    inventory.claimed, inventory.misfits, inventory.sharing = kept
    return found
