# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan says below its tables: threads, builds, and how long a full prompt takes. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ...module_utils._llama.args import PIN
from ...module_utils._plan.full_prompt import NOT_KNOWN, Measured, full_prompt
from ...module_utils._settings import value
from .._intent.builds import DEFAULT, version_of
from . import outlook, threads


class Inventory(outlook.Inventory, Protocol):
    builds: Mapping[str, Any]
    complete: bool
    measured: dict[tuple[str, str], Measured | None]


def lines(inventory: Inventory, found: Mapping[str, Any], only: str) -> list[str]:
    """found: of memory_plan(); only: one service. Nothing of services that are planned as they were."""
    reach = [outlook.words(inventory, name) for name in sorted(inventory.planned) if name == (only or name)]
    wanted = [name for name in sorted(inventory.planned) if name == (only or name) and name not in found["unchanged"]]
    prompts, unknown = [], []
    for name in wanted:
        if {"embeddings", "reranking", "models"} & {key for key, given in inventory.services[name].items() if given}:
            continue
        parts = inventory.planned[name]
        for part in parts:
            label = f"{name} on {part.node}" if len(parts) > 1 else name
            said = full_prompt(part.slot_ctx_size, part.inputs, inventory.measured.get((name, part.node)))
            prompts += [f"{label}: {said}"] if said else []
            unknown += [] if said else [label]
    prompts += [f"{', '.join(unknown)}: {NOT_KNOWN}"] if unknown else []
    shared = {name: own for name, own in found["threads"].items() if name == (only or name)}
    line = threads.line(shared, inventory.nodes)
    return (
        [line for line in reach if line and inventory.complete]
        + prompts
        + ([line] if line else [])
        + _builds(inventory, only)
    )


def _builds(inventory: Inventory, only: str) -> list[str]:
    """A line on who runs which build, where that is not the pinned release for all of them."""
    builds = inventory.builds
    if len(builds) == 1 and version_of(builds[DEFAULT] or {}) == PIN:
        return []
    users: dict[str, list[str]] = {}
    for name, service in sorted(inventory.services.items()):
        if name == (only or name):
            users.setdefault(value(service, "build"), []).append(name)
    parts = [
        f"{build} {version_of(builds[build] or {})}: {', '.join(users.get(build, ['no service']))}"
        for build in sorted(builds, key=lambda build: (build != DEFAULT, build))
        if build in users or not only
    ]
    return ["builds: " + "; ".join(parts)]
