# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would fit where a model does not: less context, a smaller cache, another quant, more cards; each one computed.
Private to the collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

from .._model.kv_cache import row_bytes
from .._model.memory import Settings, Shape
from .._settings import CACHE_TYPES
from .._text import human
from .devices import Device
from .experts import plan_experts
from .place import plan, slot_context

CONTEXT_STEP = 1024
MAX_DEVICES = 15
"""llama.cpp schedules 16 backends, the CPU among them (GGML_SCHED_MAX_BACKENDS)."""
# Bits of a weight, about: what a quant that somebody could publish or fetch would take.
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


def nearest(
    shape: Shape,
    settings: Settings,
    devices: Sequence[Device],
    local: int,
    quant: str = "",
    sizes: dict[str, int | None] | None = None,
    counts: list[int] | None = None,
    more: bool = True,
    main: Device | None = None,
) -> list[str]:
    """What to do to the nearest things that would fit, [] for none.

    quant: the one that does not; sizes: {quant: bytes of its weights} of the model's other quants, "" is this one;
    counts: layers per device that somebody chose; more: whether more cards are advice; main: the main memory of the
    head beside its GPUs.
    """

    def fits(shape: Shape, tokens: int = 0, **changes: Any) -> bool:
        changes.update({"ctx_size": tokens * (settings.parallel or 1)} if tokens else {})
        return plan(shape, settings._replace(**changes), devices, local, counts=counts, main=main).fits

    found = _smaller_margin(lambda free: plan(shape, settings, free, local, counts=counts, main=main).fits, devices)
    if main and local == len(devices) and any(shape.expert_bytes) and not (shape.cpu_moe or shape.left):
        _kept, other = plan_experts(shape, settings, devices, main, "auto", counts=counts)
        if other.fits:
            found.append("set cpu_moe to auto, the experts of %d layers lie in main memory then" % other.cpu_moe)
    if settings.cache_ram and fits(shape, cache_ram=0):
        found.append("drop cache_ram")
    wanted = slot_context(shape, settings)
    tokens = largest(lambda tokens: fits(shape, tokens), wanted)
    if tokens:
        found.append("lower slot_ctx_size to %d" % tokens)
    if settings.flash_attn:
        found.extend(_smaller_cache(lambda **changes: fits(shape, **changes), settings, wanted, tokens))
    known = {name: size for name, size in (sizes or {}).items() if size}
    own = known.pop("", None)
    smaller = [name for name in known if own and known[name] < own and fits(scaled(shape, known[name] / float(own)))]
    if smaller:
        best = min(smaller, key=lambda name: (-known[name], name))
        found.append(f"choose quant {best} ({human(known[best])})")
    else:
        found.extend(_new_quant(lambda factor: fits(scaled(shape, factor)), str(quant).upper(), own or weight(shape)))
    return found + (
        [] if counts or not more or shape.cpu_moe or shape.left else _more_cards(shape, settings, devices, not found)
    )


def _smaller_margin(fits: Callable[[list[Device]], bool], devices: Sequence[Device]) -> list[str]:
    """Words for a margin that leaves nothing of a device: where it does so on all of them no other advice helps, else
    where the model would fit without it."""
    eaten = [device for device in devices if device.margin_mib >= device.total_mib]
    free = [device._replace(margin_mib=0) if device in eaten else device for device in devices]
    if not eaten or (len(eaten) < len(devices) and not fits(free)):
        return []
    least = min(eaten, key=lambda device: device.total_mib)
    return [
        "lower preflight_margin_mib, its %d MiB leave nothing of the %d MiB of %s of %s"
        % (least.margin_mib, least.total_mib, least.device, least.node)
    ]


def _known_types(settings: Settings) -> dict[str, Any]:
    """What changes beside them where types of llama.cpp take the place of a build's own."""
    return {"bits_k": None, "bits_v": None} if settings.bits_k or settings.bits_v else {}


def _smaller_cache(fits: Callable[..., bool], settings: Settings, wanted: int, tokens: int) -> list[str]:
    """Words for a smaller type of cache; with less context than wanted where even the smallest is too large, if that is
    still more than ``tokens``."""
    both: dict[str, Any] = {}
    now = row_bytes(settings.cache_type_k, ROW, settings.bits_k) + row_bytes(
        settings.cache_type_v, ROW, settings.bits_v
    )
    for smaller in [one for one in CACHE_TYPES if 2 * row_bytes(one, ROW) < now]:
        both = {"cache_type_k": smaller, "cache_type_v": smaller, **_known_types(settings)}
        if fits(**both):
            return [f"set cache to {smaller}"]
    most = largest(lambda tokens: fits(tokens=tokens, **both), wanted) if both else 0
    return ["lower slot_ctx_size to %d and set cache to %s" % (most, both["cache_type_k"])] if most > tokens else []


def _new_quant(fits: Callable[[float], bool], quant: str, size: int) -> list[str]:
    """Words for the largest quant that the model's entry does not have."""
    for offered in OFFERED:
        factor = BITS[offered] / float(BITS.get(quant, 0) or BITS[offered])
        if factor < 1 and fits(factor):
            return [f"add a quant such as {offered} (about {human(int(size * factor))})"]
    return []


def _more_cards(shape: Shape, settings: Settings, devices: Sequence[Device], alone: bool) -> list[str]:
    """Words for how many cards, like the smallest of these, would do; alone: where nothing else does, also how few with
    less context."""
    cards = [device for device in devices if device.kind == "GPU"]
    if not cards:
        return []
    such = min(cards, key=Device.room)._replace(others_mib=0, claimed_mib=0)
    like = f" such as {such.node}'s" if len({device.total_mib for device in cards}) > 1 else ""

    def fits(count: int, tokens: int = 0, **changes: Any) -> bool:
        changes.update({"ctx_size": tokens * (settings.parallel or 1)} if tokens else {})
        many = [such._replace(node="card%d" % index) for index in range(count)]
        return plan(shape, settings._replace(**changes), many, 1).fits

    counts = range(len(devices) + 1, min(MAX_DEVICES, shape.block_count) + 1)
    enough = _fewest(fits, counts)
    found = ["use %d cards of %d MiB%s" % (enough, such.total_mib, like)] if enough else []
    smallest = {"cache_type_k": CACHE_TYPES[-1], "cache_type_v": CACHE_TYPES[-1], **_known_types(settings)}
    least = smallest if settings.flash_attn else {}
    fewer = 0
    if alone and counts:
        fewer = _fewest(lambda count: fits(count, CONTEXT_STEP, **least), range(counts[0], enough or counts[-1] + 1))
    if not fewer:
        return found
    wanted = slot_context(shape, settings)
    tokens = largest(lambda tokens: fits(fewer, tokens), wanted)
    words = ["lower slot_ctx_size to %d" % tokens] if tokens else []
    if settings.flash_attn:
        words += _smaller_cache(lambda **changes: fits(fewer, **changes), settings, wanted, tokens)
    such_cards = "%d such cards" % fewer if found else "%d cards of %d MiB%s" % (fewer, such.total_mib, like)
    return found + [f"use {such_cards} and {word}" for word in words[-1:]]


def _fewest(fits: Callable[[int], bool], counts: Sequence[int]) -> int:
    """The first of consecutive counts of cards that fits, 0 for none: what fits some cards fits one more."""
    low, high = 0, len(counts)
    while low < high:
        middle = (low + high) // 2
        if fits(counts[middle]):
            high = middle
        else:
            low = middle + 1
    return counts[low] if low < len(counts) else 0


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
