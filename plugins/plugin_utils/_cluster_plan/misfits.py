# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A service that does not fit, and what would. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._model.left import leaving
from ...module_utils._model.memory import Settings, Shape
from ...module_utils._plan.advice import nearest
from ...module_utils._plan.devices import Device
from ...module_utils._plan.place import Plan, ServicePlan, plan
from .._intent.check import weights

Beside = dict[tuple[str, str], dict[str, int | None]]  # MiB of each device that other services and processes have


class Misfit(NamedTuple):
    """A server that does not fit: where else it would is known when all others have their place."""

    name: str
    shape: Shape
    settings: Settings
    devices: list[Device]
    local: int
    main: Device | None
    described: ServicePlan
    counts: list[int] | None
    words: list[str]
    beside: Beside


def advice(
    shape: Shape,
    settings: Settings,
    devices: list[Device],
    local: int,
    model: Mapping[str, Any],
    quant: str,
    counts: list[int] | None = None,
    more: bool = True,
    main: Device | None = None,
) -> list[str]:
    """What to do to the nearest things that would fit. model: its entry in llama_models; the others as for
    nearest()."""
    sizes: dict[str, int | None] = {other: weights(model, other)[0] for other in model["quants"] if other != quant}
    return nearest(
        shape,
        settings,
        devices,
        local,
        quant,
        dict(sizes, **{"": weights(model, quant)[0]}),
        counts,
        more,
        main,
    )


def leave_room(one: Misfit, least: Mapping[str, Sequence[Plan]]) -> list[str]:
    """Words for neighbours with cpu_moe auto that could leave it room. least: what they and their replicas need
    at least of the cards."""

    def beside(device: Device, name: str) -> Device:
        place = (device.node, device.device)
        needed = sum(row.total_mib for part in least[name] for row in part.devices if (row.node, row.device) == place)
        taken = one.beside.get(place, {}).get(name) or 0
        return device._replace(claimed_mib=device.claimed_mib - taken + needed)

    found = []
    for name in sorted({name for claims in one.beside.values() for name in claims if name in least}):
        devices = [beside(device, name) for device in one.devices]
        main = beside(one.main, name) if one.main else None
        fits = plan(one.shape, one.settings, devices, one.local, counts=one.counts, main=main).fits
        if fits and all(part.fits for part in least[name]):
            found.append(f"write a larger cpu_moe for {name}")
    return found


def fewer_layers(
    whole: Shape, shape: Shape, settings: Settings, devices: Sequence[Device], main: Device | None
) -> list[str]:
    """Words for the most layers on the cards that fit, where some are left to main memory. shape: whole with those."""
    for blocks in range(shape.block_count - 1, 0, -1) if shape.left else ():
        fewer = leaving(whole, whole.block_count - blocks)
        if plan(fewer, settings, devices, len(devices), main=main).fits:
            return ["lower n_gpu_layers to %d" % (blocks + 1)]
    return []


def layers(planned: Plan) -> str:
    """Layers per node, as an operator would write them."""
    rows = [row for row in planned.devices if row.layers or row.kind == "GPU"]
    return ", ".join("%s %d" % (row.node, row.layers) for row in rows)
