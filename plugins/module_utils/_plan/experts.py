# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many layers of a mixture of experts keep their experts in the head's main memory. Private to the collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from .._model.memory import Settings, Shape
from .devices import Device
from .place import Plan, plan

# A service's cpu_moe; 0 where it has none.
Wish = Union[str, int]


def plan_experts(
    shape: Shape,
    settings: Settings,
    devices: Sequence[Device],
    main: Device | None,
    wish: Wish,
    force_split: bool = False,
    counts: list[int] | None = None,
    earlier: Plan | None = None,
) -> tuple[Shape, Plan]:
    """-> (the model with its experts where they are, its plan); for auto the fewest layers that fit, all of them where
    nothing fits.

    devices: all of them the head's own; main: its main memory; earlier: a plan for the same model and devices, which
    is kept where it still fits. On a head without a GPU all weights lie in main memory anyway.
    """
    beside = devices[-1].kind == "GPU"

    def with_layers(layers: int, counts: list[int] | None, main: Device | None) -> tuple[Shape, Plan]:
        kept = shape.keeping(layers) if beside else shape
        return kept, plan(kept, settings, devices, len(devices), force_split, counts, main)

    if earlier:
        found = with_layers(earlier.cpu_moe, counts or earlier.counts, main)
        if found[1].fits:
            return found
    if wish != "auto":
        return with_layers(shape.block_count if wish == "all" else int(wish), counts, main)
    if not beside or with_layers(0, counts, None)[1].fits:
        return with_layers(0, counts, main)
    # What main memory holds is looked at last: it holds the fewest layers best.
    low, high = 1, shape.block_count
    while low < high:
        middle = (low + high) // 2
        if with_layers(middle, counts, None)[1].fits:
            high = middle
        else:
            low = middle + 1
    return with_layers(low, counts, main)
