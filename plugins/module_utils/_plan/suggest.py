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
# Bits of a weight, about, of the quants that are commonly published.
BITS = {
    "F16": 16,
    "BF16": 16,
    "Q8_0": 8.5,
    "Q6_K": 6.56,
    "Q5_K_M": 5.69,
    "Q5_K_S": 5.54,
    "Q4_K_M": 4.85,
    "Q4_K_S": 4.58,
    "Q4_0": 4.55,
    "Q3_K_M": 3.91,
}
# Weights that are whole blocks of every type of cache.
ROW = 256
OFFERED = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M")


def nearest(case: Case, quant: str = "", sizes: Mapping[str, int | None] | None = None, more: bool = True) -> list[str]:
    """What to do to the nearest things that would fit, [] for none.

    quant: the one that does not; sizes: {quant: bytes of its weights} of the model's quants, "" is this one; more:
    whether more cards are advice.
    """
    shape, settings = case.shape, case.settings
    kept = shape.cpu_moe or shape.left
    eaten = [device for device in case.devices if device.margin_mib >= device.total_mib]
    found = [
        "lower preflight_margin_mib, its %d MiB leave nothing of the %d MiB of %s of %s"
        % (least.margin_mib, least.total_mib, least.device, least.node)
        for least in sorted(eaten, key=lambda device: device.total_mib)[:1]
    ]
    if case.main and case.local == len(case.devices) and any(shape.expert_bytes) and not kept:
        other = plan_experts(case, "auto")[1]
        words = "set cpu_moe to auto, the experts of %d layers lie in main memory then" % other.cpu_moe
        found += [words] if other.fits else []
    if settings.cache_ram and case.fits(cache_ram=0):
        found.append("drop cache_ram")
    tokens = largest(case.fits, slot_context(shape, settings))
    found += ["lower slot_ctx_size to %d" % tokens] if tokens else []
    found += _smaller_cache(case) if settings.flash_attn else []
    found += _smaller_quant(case, quant, dict(sizes or {}))
    return found + ([] if case.counts or not more or kept else _more_cards(case))


def _smaller_cache(case: Case) -> list[str]:
    """Words for the first smaller type of cache that fits."""
    settings = case.settings
    types = ((settings.cache_type_k, settings.bits_k), (settings.cache_type_v, settings.bits_v))
    now = sum(row_bytes(kind, ROW, bits) for kind, bits in types)
    smaller = [one for one in CACHE_TYPES if 2 * row_bytes(one, ROW) < now]
    fitting = (one for one in smaller if case.fits(cache_type_k=one, cache_type_v=one, bits_k=None, bits_v=None))
    return [f"set cache to {one}" for one in [next(fitting, "")] if one]


def _smaller_quant(case: Case, quant: str, known: dict[str, int | None]) -> list[str]:
    """Words for the largest of the model's other quants that fits, or for one that its entry does not have."""

    def fits(factor: float) -> bool:
        return factor < 1 and case._replace(shape=scaled(case.shape, factor)).plan().fits

    own = known.pop("", None)
    sizes = {name: size for name, size in known.items() if own and size and fits(size / own)}
    if sizes:
        best = min(sizes, key=lambda name: (-sizes[name], name))
        return [f"choose quant {best} ({human(sizes[best])})"]
    bits = BITS.get(quant.upper(), 0)
    size = own or weight(case.shape)
    fitting = (one for one in OFFERED if bits and fits(BITS[one] / bits))
    return [
        f"add a quant such as {one} (about {human(int(size * BITS[one] / bits))})" for one in [next(fitting, "")] if one
    ]


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


def weight(shape: Shape) -> int:
    """Bytes of all weights."""
    return sum(shape.block_bytes) + shape.input_bytes + shape.output_bytes


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
