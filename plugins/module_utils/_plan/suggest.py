# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would fit where a model does not (less context, a smaller cache, another quant, more cards), each computed, and
in which ways a model would run on given nodes. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple

from .._model.kv_cache import row_bytes
from .._model.memory import Shape
from .._settings import CACHE_TYPES
from .._text import human
from .devices import Device
from .place import Case, Plan, plan, plan_experts, slot_context
from .table import join

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


class Ways(NamedTuple):
    """lines: a sentence for each way; experts: the plan with the fewest experts in main memory, None where none fits or
    none is needed, with what it is for."""

    lines: list[str]
    experts: tuple[Case, Plan] | None


def ways(case: Case, every: Sequence[Device], memory: Sequence[Device]) -> Ways:
    """On one node, with its experts in main memory, split over all. case: on all nodes; every: their devices; memory:
    main memory beside GPUs."""
    shape, settings = case.shape, case.settings
    nodes = list(dict.fromkeys(device.node for device in every))
    own = {node: [device for device in every if device.node == node] for node in nodes}
    alone = [node for node in nodes if plan(shape, settings, own[node], len(own[node])).fits]
    lines = [f"one node: fits {join(alone) or 'none of ' + join(nodes)}"]
    places = [case._replace(devices=own[one.node], local=len(own[one.node]), main=one) for one in memory]
    tried = [plan_experts(place, "auto") for place in places] if any(shape.expert_bytes) else []
    fitting = sorted((one for one in tried if one[1].fits and one[1].cpu_moe), key=lambda one: one[1].cpu_moe)
    words = [
        "%s with cpu_moe: auto (%d of %d layers, %d MiB of main memory)"
        % (found.devices[-1].node, found.cpu_moe, shape.block_count, found.devices[-1].total_mib)
        for _kept, found in tried
        if found.fits and found.cpu_moe
    ]
    cards = any(device.kind == "GPU" for device in every)
    if any(shape.expert_bytes) and cards and (words or len(alone) < len(nodes)):
        unknown = "not known, give the main memory of a node with cards, as in devices=24GB+main:256GB"
        otherwise = f"fits none of {join([one.node for one in memory])}" if memory else unknown
        lines.append("experts in main memory: " + (f"fits {join(words)}" if words else otherwise))
    if len(nodes) > 1:
        verdict = "fits, and is slower than one node" if alone else "fits"
        lines.append(f"split over {join(nodes)}: {verdict if case.plan(True).fits else 'does not fit'}")
    return Ways(lines, fitting[0] if fitting and not alone else None)
