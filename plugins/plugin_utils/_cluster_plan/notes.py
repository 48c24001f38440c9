# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan says below its tables: threads, and how long a full prompt takes. Private to the collection."""

from collections.abc import Mapping
from typing import Any, Protocol

from ...module_utils._plan.full_prompt import NOT_KNOWN, Measured, full_prompt
from ...module_utils._plan.place import ServicePlan
from .._intent.records import Services
from . import threads


class Inventory(Protocol):
    """What is planned, of all services."""

    services: Services
    nodes: Mapping[str, Mapping[str, Any]]
    planned: dict[str, list[ServicePlan]]
    measured: dict[tuple[str, str], Measured | None]


def lines(inventory: Inventory, found: Mapping[str, Any], only: str) -> list[str]:
    """found: of memory_plan(); only: one service. Nothing of services that are planned as they were."""
    wanted = [name for name in sorted(inventory.planned) if name == (only or name) and name not in found["unchanged"]]
    prompts, unknown = [], []
    for name in wanted:
        if inventory.services[name].get("embeddings") or "models" in inventory.services[name]:
            continue
        parts = inventory.planned[name]
        for part in parts:
            label = "%s on %s" % (name, part.node) if len(parts) > 1 else name
            said = full_prompt(part.slot_ctx_size, part.inputs, inventory.measured.get((name, part.node)))
            prompts += ["%s: %s" % (label, said)] if said else []
            unknown += [] if said else [label]
    prompts += ["%s: %s" % (", ".join(unknown), NOT_KNOWN)] if unknown else []
    shared = {name: own for name, own in found["threads"].items() if name == (only or name)}
    line = threads.line(shared, inventory.nodes)
    return prompts + ([line] if line else [])
