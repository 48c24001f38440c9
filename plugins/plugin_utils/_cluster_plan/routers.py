# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many models of a router are loaded at a time, and where. Any of them may be loaded together: each has one place,
and the largest ones of a device count. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._llama.args import build_number
from ...module_utils._model.memory import Settings, Shape
from ...module_utils._plan.devices import Device
from ...module_utils._plan.place import Plan, Row, ServicePlan, plan
from ...module_utils._plan.stored import inputs_of

# The first measured build that lets a request for another model wait until the one that has to go is idle.
LOADS_WAIT = 11434


class Served(NamedTuple):
    """A model of a router."""

    model: str
    quant: str
    source: str  # header or catalog
    shape: Shape
    settings: Settings


class Decision(NamedTuple):
    """The models of a router on one node. inputs: what each model's plan was made for; claims: what they need together,
    nothing where one of them does not fit; refused: sentences; lines: for the plan."""

    plans: list[Plan]
    inputs: list[list[Any]]
    loaded: int  # at a time
    claims: list[Row]
    refused: list[str]
    lines: list[str]


def counts_models(service: Mapping[str, Any]) -> bool:
    """Whether the plan says how many models of a router are loaded at a time."""
    return "models" in service and "models_max" not in service


def decide(
    name: str,
    wanted: int | None,
    cases: Sequence[Served],
    devices: Sequence[Device],
    main: Device | None,
    earlier: Sequence[ServicePlan],
    build: str | None,
) -> Decision:
    """wanted: models_max of the inventory; main: main memory beside cards; earlier: what was kept of its models, which
    holds for as long as it fits, since another number would mean a restart."""
    places = [*devices, main] if main else devices
    plans = _place(cases, devices, main, True)
    most = _fitting(plans, places)
    inputs = [[one.model, one.quant, one.source, *inputs_of(one.shape, one.settings, devices)] for one in cases]
    same = sorted(part.inputs for part in earlier) == sorted(inputs)
    kept = earlier[0].models_max if same else 0
    count = min(wanted or (kept if 0 < kept <= most else most), len(cases))
    if count == 1:
        # One model at a time needs no card of its own.
        plans = _place(cases, devices, main, False)
    if not all(one.fits for one in plans):
        return Decision(plans, inputs, count, [], [], [])
    words = "%s loads %d of its %d models at a time on %s" % (name, count, len(cases), devices[0].node)
    lines = [words] if count < len(cases) else []
    return Decision(plans, inputs, count, _largest(plans, count), _refuse(name, count, most, plans, build), lines)


def _place(cases: Sequence[Served], devices: Sequence[Device], main: Device | None, apart: bool) -> list[Plan]:
    """A plan for each model, the largest first. apart: on another card than those before it where it fits there."""
    found: dict[str, Plan] = {}
    taken: dict[str, int] = {}
    for case in sorted(cases, key=lambda one: -sum(one.shape.block_bytes)):
        offered = [device._replace(claimed_mib=device.claimed_mib + taken.get(device.device, 0)) for device in devices]
        beside = plan(case.shape, case.settings, offered, len(offered), main=main)
        counts = beside.counts if apart and beside.fits else None
        planned = plan(case.shape, case.settings, devices, len(devices), counts=counts, main=main)
        for row in planned.devices:
            taken[row.device] = taken.get(row.device, 0) + row.total_mib
        found[case.model] = planned
    return [found[case.model] for case in cases]


def _fitting(plans: Sequence[Plan], devices: Sequence[Device]) -> int:
    """How many of the models fit together, whichever they are."""
    room = {device.device: device.free_mib() for device in devices}
    # A card that works in main memory holds what is there too.
    unified = {device.device: device.spare_mib for device in devices if device.unified}
    for count in range(len(plans), 1, -1):
        sizes = {row.device: row.total_mib for row in _largest(plans, count)}
        for name, spare in unified.items():
            sizes[name] = sizes.get(name, 0) + max(0, sizes.get("main", 0) - spare)
        if all(size <= room[name] for name, size in sizes.items()):
            return count
    return 1


def _largest(plans: Sequence[Plan], count: int) -> list[Row]:
    """For each device a row with what so many models need of it at most. Its margin counts once."""
    rows: dict[str, list[Row]] = {}
    for one in plans:
        for row in one.devices:
            rows.setdefault(row.device, []).append(row)
    found = []
    for own in rows.values():
        sizes = sorted((row.total_mib - row.margin_mib for row in own), reverse=True)[:count]
        margin = max(row.margin_mib for row in own)
        found.append(own[0]._replace(total_mib=sum(sizes) + margin if any(sizes) else 0))
    return found


def _refuse(name: str, count: int, most: int, plans: Sequence[Plan], build: str | None) -> list[str]:
    """Why so many models at a time are too many, or too few."""
    entry = "llama_services.%s.models_max: %d seen" % (name, count)
    if count > most:
        worst = max(_largest(plans, count), key=lambda row: row.total_mib - (row.free_mib or 0))
        return [
            "%s, at most %d is allowed, since more need %d MiB of %s of %s and %d MiB are there: lower it or drop the "
            "key" % (entry, most, worst.total_mib, worst.device, worst.node, worst.free_mib or 0)
        ]
    if count < len(plans) and (build_number(build) or LOADS_WAIT) < LOADS_WAIT:
        return [
            "%s with build %s, all %d models at a time are needed, since it stops one that is at work to "
            "load another, which b%d and newer do not: take a newer build or fewer models"
            % (entry, build, len(plans), LOADS_WAIT)
        ]
    return []
