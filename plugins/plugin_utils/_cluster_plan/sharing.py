# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done about a service whose cards others use too. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.memory import Settings, Shape
from ...module_utils._plan.devices import Device
from ...module_utils._plan.experts import plan_experts
from ...module_utils._plan.place import Plan, plan
from ...module_utils._plan.table import join


def claimed_mib(
    claimed: Mapping[tuple[str, str], Mapping[str, int]], device: Device, nodes: Mapping[str, Mapping[str, Any]]
) -> int:
    """MiB that services have of a device: main memory, and a card that works there, are one. nodes: as for
    memory_plan()."""
    unified = [one["device"] for one in nodes[device.node]["devices"] if one.get("unified")]
    one_memory = [*unified, "main"] if unified else []
    names = one_memory if device.device in one_memory else [device.device]
    return sum(mib for name in names for mib in claimed.get((device.node, name), {}).values())


def lines(
    name: str,
    others: Sequence[str],
    shape: Shape,
    settings: Settings,
    devices: Sequence[Device],
    local: int,
    planned: Plan,
    main: Device | None = None,
) -> list[str]:
    """What is done about a service that shares devices with others, and what the other choices are. main: the head's
    main memory beside its cards, where it keeps experts; a shape without any there has as few there as fit."""
    names = ", ".join(others)
    kinds = [device.kind for device in [*devices, *([main] if main else [])] if device.claimed_mib]
    memory = join([words for kind, words in (("GPU", "cards"), ("main", "main memory")) if kind in kinds])
    found = [
        f"{name} shares {memory} with {names}:",
        f"  beside {names}, as in the table: {_choice(planned)}",
    ]
    apart = [device for device in devices if not device.claimed_mib]
    left = sorted({device.node for device in devices} - {device.node for device in apart})
    own = sum(not device.claimed_mib for device in devices[len(devices) - local :])
    # The head cannot be left out.
    alone = plan(shape, settings, apart, own) if apart and left and (own or not local) else None
    if alone:
        found.append(f"  apart, with {join(left)} left out of workers: {_choice(alone)}")
    freed = [device._replace(claimed_mib=0) for device in devices]
    beside = main._replace(claimed_mib=0) if main else None
    if planned.cpu_moe and not shape.cpu_moe:
        free = plan_experts(shape, settings, freed, beside, "auto")[1]
    else:
        free = plan(shape, settings, freed, local, True, main=beside)
    found.append(f"  alternating, with {names} stopped: {_choice(free)}")
    decision = "beside %s, as in the table" if planned.fits else "none, it does not fit beside %s"
    if alone and alone.fits:
        decision += f"; to keep them apart leave {join(left)} out of workers"
    return [*found, "  decision: " + decision % names]


def _choice(planned: Plan) -> str:
    shares = [
        "%s %d layers, %d of %d MiB" % (row.node, row.layers, row.total_mib, row.free_mib or 0)
        for row in planned.devices
    ]
    return f"{'fits' if planned.fits else 'does not fit'} ({'; '.join(shares)})"
