# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which ways one model would run on given nodes: on one of them, with its experts in main memory, split over them.
Private to the collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._model.memory import Settings, Shape
from .devices import Device, main_memory, of_cards
from .experts import plan_experts
from .place import Plan, plan
from .table import join


class Ways(NamedTuple):
    """lines: a sentence for each way; experts: the plan with the fewest experts in main memory, None where none fits or
    none is needed, with the model and the devices that it is for."""

    lines: list[str]
    experts: tuple[Shape, list[Device], Plan] | None


def ways(
    shape: Shape,
    settings: Settings,
    every: Sequence[Device],
    memory: Sequence[Device],
    together: Plan,
    local: int,
) -> Ways:
    """every: the devices of all nodes; memory: main memory beside GPUs; together: the plan on all of them, local of
    them the head's own."""
    nodes: list[str] = []
    for device in every:
        if device.node not in nodes:
            nodes.append(device.node)
    own = {node: [device for device in every if device.node == node] for node in nodes}
    alone = [node for node in nodes if plan(shape, settings, own[node], len(own[node])).fits]
    offloaded = []
    for device in memory:
        kept, found = plan_experts(shape, settings, own[device.node], device, "auto")
        if found.fits and found.cpu_moe:
            offloaded.append((kept, own[device.node], found))
    lines = [
        f"one node: fits {join(alone)}" if alone else f"one node: fits none of {join(nodes)}",
        "experts in main memory: "
        + _experts(shape, any(one.kind == "GPU" for one in every), nodes, alone, memory, offloaded),
    ]
    if len(nodes) > 1:
        split = plan(shape, settings, every[: len(every) - len(own[nodes[-1]]) + local], local, True)
        lines.append(
            f"split over {join(nodes)}: "
            + ("does not fit" if not split.fits else "fits, and is slower than one node" if alone else "fits")
        )
    offloaded.sort(key=lambda one: one[2].cpu_moe)
    return Ways(lines, offloaded[0] if offloaded and not alone and not together.fits else None)


def _experts(
    shape: Shape,
    cards: bool,
    nodes: Sequence[str],
    alone: Sequence[str],
    memory: Sequence[Device],
    fitting: Sequence[tuple[Shape, list[Device], Plan]],
) -> str:
    if not any(shape.expert_bytes):
        return "none, it is no mixture of experts"
    if fitting:
        return "fits " + join(
            [
                "%s with cpu_moe: auto (%d of %d layers, %d MiB of main memory)"
                % (devices[0].node, found.cpu_moe, shape.block_count, found.devices[-1].total_mib)
                for _kept, devices, found in fitting
            ]
        )
    if len(alone) == len(nodes):
        return "not needed"
    if not cards:
        return "none, without cards all weights lie in main memory"
    if not memory:
        return "not known, the main memory of a node with cards is not given, as in devices=24GB+main:256GB"
    return f"fits none of {join([device.node for device in memory])}"


def split_cards(described: Sequence[dict[str, Any]], margin_mib: int) -> tuple[list[Device], list[Device]]:
    """[{node, name, memory_mib, main...}] -> (the devices that layers lie on, main memory beside cards)"""
    every = of_cards(described, margin_mib)
    with_cards = {device.node for device in every if device.kind == "GPU"}
    return every, [
        main_memory(one["node"], one, margin_mib) for one in described if one.get("main") and one["node"] in with_cards
    ]
