# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes with which a model would fit: less context, a smaller cache, another quant, more cards. Private to the
collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Callable

from .._cache_keys import CACHE_TYPES
from .._model.kv_cache import row_bytes
from .._model.memory import Shape
from .._text import human
from .devices import Device
from .place import Case, Plan, plan, plan_experts, slot_context

CONTEXT_STEP = 1024
MAX_DEVICES = 15
"""llama.cpp schedules 16 backends, the CPU among them (GGML_SCHED_MAX_BACKENDS)."""
# Weights that are whole blocks of every type of cache.
ROW = 256


def nearest(case: Case, own: int | None = None, sizes: Mapping[str, int | None] | None = None) -> list[str]:
    """The smallest changes with which a model would fit, [] for none.

    own: bytes of its weights; sizes: {quant: bytes} of its other quants.
    """
    shape, settings, found = case.shape, case.settings, list[str]()
    kept = shape.cpu_moe or shape.left
    if case.main and case.local == len(case.devices) and any(shape.expert_bytes) and not kept:
        other = plan_experts(case, "auto")[1]
        words = "set cpu_moe to auto, the experts of %d layers lie in main memory then" % other.cpu_moe
        found += [words] if other.fits else []
    found += ["drop cache_ram"] if settings.cache_ram and case.fits(cache_ram=0) else []
    tokens = largest(case.fits, slot_context(shape, settings))
    found += ["lower slot_ctx_size to %d" % tokens] if tokens else []
    found += _smaller_cache(case) if settings.flash_attn else []
    found += _smaller_quant(case, own, sizes or {})
    return found + ([] if case.counts or kept else _more_cards(case))


def _smaller_cache(case: Case) -> list[str]:
    """Words for the first smaller type of cache that fits."""
    settings = case.settings
    types = ((settings.cache_type_k, settings.bits_k), (settings.cache_type_v, settings.bits_v))
    now = sum(row_bytes(kind, ROW, bits) for kind, bits in types)
    smaller = [one for one in CACHE_TYPES if 2 * row_bytes(one, ROW) < now]
    fitting = (one for one in smaller if case.fits(cache_type_k=one, cache_type_v=one, bits_k=None, bits_v=None))
    return [f"set cache to {one}" for one in [next(fitting, "")] if one]


def _smaller_quant(case: Case, own: int | None, sizes: Mapping[str, int | None]) -> list[str]:
    """Words for the largest of the model's other quants that fits."""
    smaller = {name: size for name, size in sizes.items() if own and size and size < own}
    for name in sorted(smaller, key=lambda name: (-smaller[name], name)):
        if case._replace(shape=scaled(case.shape, smaller[name] / (own or 1))).plan().fits:
            return [f"choose quant {name} ({human(smaller[name])})"]
    return []


def _more_cards(case: Case) -> list[str]:
    """Words for how many cards, like the smallest of these, would do."""
    cards = [device for device in case.devices if device.kind == "GPU"]
    if not cards:
        return []
    such = min(cards, key=Device.room)._replace(others_mib=0, claimed_mib=0)
    for count in range(len(case.devices) + 1, min(MAX_DEVICES, case.shape.block_count) + 1):
        many = [such._replace(node="card%d" % index) for index in range(count)]
        if plan(case.shape, case.settings, many, 1).fits:
            like = f" such as {such.node}'s" if len({device.total_mib for device in cards}) > 1 else ""
            return ["use %d cards of %d MiB%s" % (count, such.total_mib, like)]
    return []


def largest(fits: Callable[[int], bool], tokens: int) -> int:
    """The largest context below ``tokens``, in steps, that fits; 0 where not even one step does."""
    low, high = 0, (tokens - 1) // CONTEXT_STEP
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle * CONTEXT_STEP):
            low = middle
        else:
            high = middle - 1
    return low * CONTEXT_STEP


def scaled(shape: Shape, factor: float) -> Shape:
    """The same model with weights of another size, as another quant has them."""
    return shape._replace(
        block_bytes=[int(size * factor) for size in shape.block_bytes],
        input_bytes=int(shape.input_bytes * factor),
        output_bytes=int(shape.output_bytes * factor),
        shared_bytes=0,  # as most quants have it
        expert_bytes=[int(size * factor) for size in shape.expert_bytes],
        expert_copy=int(shape.expert_copy * factor),
        left=scaled(shape.left, factor) if shape.left else None,
    )


def fewest_experts(case: Case, every: Sequence[Device], memory: Sequence[Device]) -> tuple[Case, Plan] | None:
    """The plan on one node with the fewest experts in main memory, None if none fits. every: the devices of all nodes;
    memory: main memory beside GPUs."""
    own = {one.node: [device for device in every if device.node == one.node] for one in memory}
    places = [case._replace(devices=own[one.node], local=len(own[one.node]), main=one) for one in memory]
    tried = [plan_experts(place, "auto") for place in places] if any(case.shape.expert_bytes) else []
    fitting = [one for one in tried if one[1].fits]
    return min(fitting, key=lambda one: one[1].cpu_moe, default=None)
