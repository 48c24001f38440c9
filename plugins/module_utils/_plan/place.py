# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The placement of one model: whether it fits, and which device holds which layers. Private to the
collection.

Sizes in a plan are MiB, rounded up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._llama.args import build_number
from .._llama.drafts import most
from .._model.memory import Placed, Settings, Shape, Share, place, settings_of
from .._settings import memory_settings, value
from .._text import Refusal
from .devices import Device
from .split import split, with_output


class Row(NamedTuple):
    """The share of one device in a plan. Layers are counted from 0, None without any."""

    node: str
    device: str
    kind: str
    layers: int
    first_layer: int | None
    last_layer: int | None
    weights_mib: int
    kv_mib: int
    compute_mib: int
    margin_mib: int
    total_mib: int
    free_mib: int | None = None  # None in a plan that was kept


class Plan(NamedTuple):
    """A model on devices, the least bad placement where nothing fits."""

    fits: bool
    topology: str  # single, replicas or split
    reason: str
    devices: list[Row]
    host: dict[str, int]  # weights_mib, kv_mib, compute_mib
    counts: list[int]  # layers per device; in tensor mode the part of each, in any unit
    tensor_split: list[int]  # as in --tensor-split, nothing for one device
    cpu_moe: int = 0  # how many of the first layers have their experts in the head's main memory

    def as_dict(self) -> dict[str, Any]:
        return dict(self._asdict(), devices=[dict(row._asdict()) for row in self.devices])


class ServicePlan(NamedTuple):
    """The plan of one service, of one of its replicas, of one model of a router on one host, or of a model by
    itself."""

    plan: Plan
    service: str
    model: str
    quant: str
    source: str  # header, catalog or assumed
    ctx_size: int
    slot_ctx_size: int
    cache_type: str
    layers: dict[str, int]  # by node
    inputs: list[Any]  # what it was made for
    problem: str | None = None  # why the header was not read
    unplanned: list[str] = []  # words for llama-server that are not counted
    node: str = ""  # the head's, none of a model by itself
    models_max: int = 0  # how many models of its router are loaded at a time

    def as_dict(self) -> dict[str, Any]:
        found = self._asdict()
        return dict(found.pop("plan").as_dict(), **found)

    @classmethod
    def of(cls, facts: dict[str, Any]) -> ServicePlan:
        """The plan that as_dict() made the dict of. KeyError, TypeError if another version made it."""
        own = dict(facts)
        plan = {key: own.pop(key) for key in Plan._fields if key in own}
        plan["devices"] = [Row(**row) for row in plan["devices"]]
        return cls(plan=Plan(**plan), **own)


def settings_for(
    service: Mapping[str, Any], build: str | None, extra_types: Mapping[str, float] | None = None
) -> Settings:
    """Settings of a service; build: its release, such as b11434; extra_types: bits per element of the types of a KV
    cache that its build has beside llama.cpp's."""
    given = dict(memory_settings(service))
    given["flash_attn"] = given.get("flash_attn") != "off"
    for key, bits in (("cache_type_k", "bits_k"), ("cache_type_v", "bits_v")):
        given[bits] = (extra_types or {}).get(given.get(key, ""))
    given["embeddings"] = bool(given.get("embeddings") or service.get("reranking"))
    given["tensor_mode"] = value(service, "split_mode") == "tensor"
    return settings_of(build=build_number(build), drafted=most(service.get("draft")), **given)


def context(shape: Shape, settings: Settings) -> int:
    """Tokens of context in all slots together."""
    return settings.ctx_size or shape.context_length


def cache_words(settings: Settings) -> str:
    """The type of the KV cache, or its two types."""
    both = [settings.cache_type_k, settings.cache_type_v]
    return "/".join(both[: len(set(both))])


def slot_context(shape: Shape, settings: Settings) -> int:
    """Tokens of context that one request may use; Refusal where a slot would have none."""
    slots = 1 if settings.kv_unified else settings.parallel or 1
    tokens = context(shape, settings) // slots
    if not tokens:
        raise Refusal(
            "%d tokens of context seen for %d slots, 1 a slot is needed: set slot_ctx_size"
            % (context(shape, settings), slots)
        )
    return tokens


def mib(size: int) -> int:
    return -(-size >> 20)


def plan(
    shape: Shape,
    settings: Settings,
    devices: Sequence[Device],
    local: int,
    force_split: bool = False,
    counts: list[int] | None = None,
    main: Device | None = None,
) -> Plan:
    """Place a model on devices, in llama.cpp's order.

    local: how many of the last devices are the head's own; counts: chosen layers per device; main: the
    main memory of the head beside its GPUs, which is a row of the plan where it keeps experts, layers or prompts, or is
    the memory of one of them. What fits one device is not split unless force_split, and main memory beside GPUs gets
    what they cannot hold.
    """
    gpus = [index for index, device in enumerate(devices) if device.kind == "GPU"]
    equals = gpus or list(range(len(devices)))
    fitting = [index for index in equals if _fits_one(shape, settings, devices, index, local)]
    if counts is not None:
        chosen = counts
    elif settings.tensor_mode:
        chosen = _parts(shape, settings, devices, local)
    elif fitting and not force_split:
        # The first one works on what lies in main memory, wherever the layers are.
        elsewhere = shape.cpu_moe or shape.left
        first = min(fitting, key=lambda index: (index if elsewhere else 0, devices[index].claimed_mib))
        chosen = _counts(shape, len(devices), first)
    else:
        chosen = _split(shape, settings, devices, equals, local)
    placed = _place(shape, settings, devices, chosen, local)
    used = [index for index, count in enumerate(chosen) if count]
    rows, shares, host = list(devices), placed.devices, placed.host
    unified = _unified(devices, local)
    kept = shape.cpu_moe or shape.left or settings.cache_ram or unified is not None
    kept = kept or bool(settings.projector and not settings.projector.on_card)
    if main and devices[-1].kind == "GPU" and kept:
        # One memory has one margin.
        beside = main if unified is None else main._replace(margin_mib=0)
        rows, shares, host = [*rows, beside], [*shares, host], Share()
    unsplit = "replicas" if len({devices[index].node for index in fitting}) > 1 else "single"
    return Plan(
        fits=_fits(shares, rows, unified, placed.host),
        topology="split" if len(used) > 1 else unsplit,
        reason=(EVERY_LAYER if settings.tensor_mode else _reason(devices, equals, fitting, used))
        + (", with the first %d layers in main memory" % shape.left.block_count if shape.left else ""),
        devices=[_row(device, share) for device, share in zip(rows, shares)],
        host={"weights_mib": mib(host.weights), "kv_mib": mib(host.kv), "compute_mib": mib(host.compute)},
        counts=chosen,
        tensor_split=(chosen if settings.tensor_mode else with_output(chosen)) if len(devices) > 1 else [],
        cpu_moe=shape.cpu_moe,
    )


class Case(NamedTuple):
    """A model with its settings, and what plan() is to place it on."""

    shape: Shape
    settings: Settings
    devices: list[Device]
    local: int
    main: Device | None = None
    counts: list[int] | None = None

    def plan(self, force_split: bool = False) -> Plan:
        return plan(self.shape, self.settings, self.devices, self.local, force_split, self.counts, self.main)

    def fits(self, tokens: int = 0, **changes: Any) -> bool:
        """Whether it would with other settings, or with so many tokens a slot."""
        slots = 1 if self.settings.kv_unified else self.settings.parallel or 1
        changes.update({"ctx_size": tokens * slots} if tokens else {})
        return self._replace(settings=self.settings._replace(**changes)).plan().fits


def plan_experts(
    case: Case, wish: str | int, force_split: bool = False, earlier: Plan | None = None
) -> tuple[Case, Plan]:
    """-> (the case with its experts where they are, its plan); for auto the fewest layers that fit, all of them where
    nothing fits.

    case: on devices of the head only, main its main memory; wish: cpu_moe of a service, 0 for none; earlier: a plan for
    the same model and devices, which is kept where it still fits. On a head without a GPU all weights lie in main
    memory anyway.
    """
    beside = case.devices[-1].kind == "GPU"

    def keeping(layers: int) -> Case:
        return case._replace(shape=case.shape.keeping(layers) if beside else case.shape)

    def fits(layers: int) -> bool:
        # Main memory is checked last: it holds the fewest layers best.
        return keeping(layers)._replace(main=None).plan(force_split).fits

    if earlier:
        same = keeping(earlier.cpu_moe)
        found = same._replace(counts=case.counts or earlier.counts).plan(force_split)
        if found.fits:
            return same, found
    if wish == "auto":
        wish = 0
        if beside and not fits(0):
            wish, most = 1, case.shape.block_count
            while wish < most:
                middle = (wish + most) // 2
                wish, most = (wish, middle) if fits(middle) else (middle + 1, most)
    kept = keeping(case.shape.block_count if wish == "all" else int(wish))
    return kept, kept.plan(force_split)


def _split(shape: Shape, settings: Settings, devices: Sequence[Device], equals: list[int], local: int) -> list[int]:
    """Layers per device: over the equals, and over as many of the others, which are main memory, as it takes to hold
    what is left over."""
    others = sorted(
        set(range(len(devices))) - set(equals),
        key=lambda index: (-(devices[index].bandwidth or 0), -devices[index].room()),
    )
    bare = shape._replace(draft=None)
    for more in range(len(others) + 1):
        chosen = sorted(equals + others[:more])
        part = [devices[index] for index in chosen]
        counts = split(bare, settings, _rooms(shape, settings, part, local), _speeds(part), local)
        if counts:
            return _spread(dict(zip(chosen, counts)), devices)
    counts = split(bare, settings, None, _speeds([devices[index] for index in equals]), local)
    # Fewer layers than devices: one each.
    return _spread(dict(zip(equals, counts or [1] * shape.block_count)), devices)


# All devices compute at the same time, so those that are alike have the same part.
EVERY_LAYER = "a part of every layer on each device"


def _parts(shape: Shape, settings: Settings, devices: Sequence[Device], local: int) -> list[int]:
    """The part of each device in tensor mode, in any unit: by bandwidth, and where that does not fit by memory."""
    speeds = [round(device.bandwidth or 0) for device in devices]
    wishes = [speeds if all(speeds) and len(set(speeds)) > 1 else [1] * len(devices)]
    wishes.append([max(1, device.room() >> 20) for device in devices])
    fits = [
        wish for wish in wishes if _fits(_place(shape, settings, devices, wish, local).devices, devices, None, Share())
    ]
    return (fits or wishes)[0]


def _rooms(shape: Shape, settings: Settings, devices: Sequence[Device], local: int) -> list[int]:
    """Bytes of each device for the model's own layers: a draft model has its part of each, and what the head keeps in
    main memory is part of a card that works there."""
    rooms, unified = [device.room() for device in devices], _unified(devices, local)
    card = _projects_on(settings, devices, local)
    if card is not None:
        rooms[card] -= _seeing(settings).total()
    if (not shape.draft and unified is None) or shape.block_count < len(devices):
        return rooms
    even = [shape.block_count // len(devices)] * len(devices)
    even[0] += shape.block_count - sum(even)
    if unified is not None:
        rooms[unified] -= _of_card(devices[unified], _place(shape, settings, devices, even, local).host)
    if not shape.draft:
        return rooms
    with_draft, without = (place(one, settings, even, local).devices for one in (shape, shape._replace(draft=None)))
    return [room - both.total() + own.total() for room, both, own in zip(rooms, with_draft, without)]


def _spread(counts: dict[int, int], devices: Sequence[Device]) -> list[int]:
    return [counts.get(index, 0) for index in range(len(devices))]


def _reason(devices: Sequence[Device], equals: list[int], fitting: list[int], used: list[int]) -> str:
    names = [f"{device.node} {device.device}" for device in devices]
    rest = [names[index] for index in used if index not in equals]
    if len(used) > 1 and fitting and not rest:
        return f"forced, it fits {names[fitting[0]]}"
    if len(used) > 1:
        return f"it fits none of {', '.join((names[index] for index in equals))}" + (
            f", what the GPUs cannot hold is left over for {', '.join(rest)}" if rest else ""
        )
    if not fitting:
        return f"{names[0]} is the only device"
    return f"it fits {'each of ' if len(fitting) > 1 else ''}{', '.join((names[index] for index in fitting))}"


# A layer that fits no GPU is the only reason for one in main memory.
MAIN_MEMORY = 1e-6


def _speeds(devices: Sequence[Device]) -> list[float]:
    """Bandwidths; GPUs count alike where one is not known, and so does main memory, which is never weighed against
    them."""
    speeds = []
    for device in devices:
        known = all(one.bandwidth for one in devices if one.kind == device.kind)
        speeds.append(
            (device.bandwidth if known and device.bandwidth else 1) * (1 if device.kind == "GPU" else MAIN_MEMORY)
        )
    return speeds


def _counts(shape: Shape, devices: int, index: int) -> list[int]:
    return [shape.block_count if device == index else 0 for device in range(devices)]


def _unified(devices: Sequence[Device], local: int) -> int | None:
    """Which device is the head's own card that works in its main memory; None if none is."""
    return next((index for index in range(len(devices) - local, len(devices)) if devices[index].unified), None)


def _fits_one(shape: Shape, settings: Settings, devices: Sequence[Device], index: int, local: int) -> bool:
    # A device without others beside it is the head's own.
    placed = _place(shape, settings, [devices[index]], [shape.block_count], 1)
    return _fits(placed.devices, [devices[index]], 0 if devices[index].unified else None, placed.host)


def _place(shape: Shape, settings: Settings, devices: Sequence[Device], counts: list[int], local: int) -> Placed:
    main = bool(local) and len(devices) == 1 and devices[0].kind == "main"
    placed = place(shape, settings, counts, local, main=main)
    placed = placed._replace(host=placed.host.beside(Share(kv=settings.cache_ram << 20)))
    if settings.projector:
        card, seeing = _projects_on(settings, devices, local), _seeing(settings)
        if card is None:
            placed = placed._replace(host=placed.host.beside(seeing))
        else:
            placed.devices[card] = placed.devices[card].beside(seeing)
    # The buffers of the head share main memory with its layers.
    if local and devices[-1].kind == "main":
        return Placed(placed.devices[:-1] + [placed.devices[-1].beside(placed.host)], Share())
    return placed


def _seeing(settings: Settings) -> Share:
    found = settings.projector
    return Share(weights=found.weights, compute=found.compute) if found else Share()


def _projects_on(settings: Settings, devices: Sequence[Device], local: int) -> int | None:
    """The device of a projector, None for main memory."""
    first = max(len(devices) - local, 0)
    on_card = settings.projector and settings.projector.on_card and local and devices[first].kind == "GPU"
    return first if on_card else None


def _of_card(card: Device, host: Share) -> int:
    """Bytes of a card that works in main memory that are what the head keeps there."""
    return max(0, host.total() - (card.spare_mib << 20))


def _fits(shares: Sequence[Share], devices: Sequence[Device], unified: int | None, host: Share) -> bool:
    """unified, host: what the head keeps in main memory is in the memory of this device too."""
    sizes = [
        share.total() + (_of_card(device, host) if index == unified else 0)
        for index, (share, device) in enumerate(zip(shares, devices))
    ]
    return all(not size or size <= device.room() for size, device in zip(sizes, devices))


def _row(device: Device, share: Share) -> Row:
    margin = device.margin_mib if share.total() else 0
    return Row(
        node=device.node,
        device=device.device,
        kind=device.kind,
        layers=share.layers,
        first_layer=share.first_layer,
        last_layer=share.last_layer,
        weights_mib=mib(share.weights),
        kv_mib=mib(share.kv),
        compute_mib=mib(share.compute),
        margin_mib=margin,
        total_mib=mib(share.total()) + margin,
        free_mib=device.free_mib(),
    )
