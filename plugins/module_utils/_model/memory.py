# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much memory a model needs on each device, only from its header.

All sizes are bytes. A layer is a block; the output layer is not one, it goes with the last device that has layers. Not
counted: the accelerator's own context, its pools, and what a driver keeps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._settings import OWN
from .compute_buffer import compute_bytes
from .kv_cache import Settings, kv_bytes
from .shape import Shape, read_shape
from .tensor_mode import head_parts

__all__ = ["Placed", "Settings", "Shape", "Share", "kv_bytes", "place", "read_shape", "settings_of"]


class Share(NamedTuple):
    """The part of a model on one device, or on the host. Layers count from 0, None without any; sizes are bytes."""

    layers: int = 0
    first_layer: int | None = None
    last_layer: int | None = None
    weights: int = 0
    kv: int = 0
    compute: int = 0

    def total(self) -> int:
        return self.weights + self.kv + self.compute

    def beside(self, other: Share) -> Share:
        """Both in the same memory."""
        weights, kv, compute = self.weights + other.weights, self.kv + other.kv, self.compute + other.compute
        return self._replace(weights=weights, kv=kv, compute=compute)


class Placed(NamedTuple):
    """A model on devices. host: what the head keeps in its main memory beside its layers."""

    devices: list[Share]
    host: Share


def settings_of(**given: Any) -> Settings:
    """Settings with llama-server's defaults for what is not given."""
    defaults = {
        "build": None,
        "ctx_size": 0,
        "parallel": None,
        "kv_unified": False,
    }
    return Settings(**dict(dict(OWN, flash_attn=True), **dict(defaults, **given)))


def place(
    shape: Shape,
    settings: Settings,
    counts: Sequence[int],
    local: int | None = None,
    fit_params: bool = False,
    main: bool = False,
) -> Placed:
    """Memory of each device when ``counts`` blocks go to each.

    counts: blocks per device in llama.cpp's order (RPC devices as in --rpc, then the head's own), summing to
    block_count, in tensor mode the part of each in any unit; local: how many of the last devices are the head's own
    (None: none); fit_params: see compute_bytes; main: the one device is the head's main memory, so the host has nothing
    beside it.
    Raises ValueError when the counts do not sum up.
    """
    if settings.tensor_mode and len(counts) > 1:
        return _parts(shape, settings, counts, fit_params)
    if sum(counts) != shape.block_count:
        raise ValueError("%s blocks placed, the model has %d" % (sum(counts), shape.block_count))
    caches = kv_bytes(shape, settings)
    compute, host = compute_bytes(shape, settings, counts, local or 0, fit_params, main)
    last = max(device for device, count in enumerate(counts) if count)
    devices: list[Share] = []
    first, before = 0, shape.left.block_count if shape.left else 0
    for device, count in enumerate(counts):
        end = first + count
        weights = sum(shape.block_bytes[first:end]) + (shape.output_bytes if device == last else 0)
        held = (before + first, before + end - 1) if count else (None, None)
        devices.append(Share(count, held[0], held[1], weights, sum(caches[first:end]), compute[device]))
        first = end
    if main:
        (whole,) = devices
        devices = [whole._replace(weights=whole.weights + shape.input_bytes - shape.shared_bytes)]
    kept = Share() if main else Share(weights=shape.input_bytes, compute=host)
    if shape.left:
        kept = kept._replace(
            layers=before, first_layer=0, last_layer=before - 1, kv=sum(kv_bytes(shape.left, settings))
        )
    if shape.draft:
        blocks = draft_counts(shape.draft.block_count, counts)
        own = place(shape.draft, draft_settings(settings), blocks, local, fit_params, main)
        devices = [share.beside(more) for share, more in zip(devices, own.devices)]
        kept = kept.beside(own.host)
    return Placed(devices, kept)


def _parts(shape: Shape, settings: Settings, parts: Sequence[int], fit_params: bool) -> Placed:
    """Each device has a part of every layer, and the whole of a tied output and of states that are no cache of keys and
    values."""
    caches, blocks, every = kv_bytes(shape, settings), shape.block_count, sum(parts)
    states = sum(size for size, state in zip(caches, shape.recurrent) if state)
    compute, host = compute_bytes(shape, settings, [blocks], 0, fit_params)
    devices = []
    for part, heads in zip(parts, head_parts(shape.n_head, shape.n_head_kv, shape.head_k, parts)):
        weights = shape.whole_bytes + (sum(shape.block_bytes) - shape.whole_bytes) * max(part / every, heads)
        weights += shape.output_bytes if shape.tied else shape.output_bytes * part / every
        kept = states + (sum(caches) - states) * heads
        devices.append(Share(blocks, 0, blocks - 1, math.ceil(weights), math.ceil(kept), compute[0]))
    return Placed(devices, Share(weights=shape.input_bytes, compute=host))


def draft_settings(settings: Settings) -> Settings:
    """Its context is that of the model, its cache f16 whatever the model's is (common_base_params_to_speculative)."""
    return settings._replace(cache_type_k="f16", cache_type_v="f16", drafted=0)


def draft_counts(blocks: int, counts: Sequence[int]) -> list[int]:
    """Blocks of a draft model per device: llama.cpp shares them out by the model's own --tensor-split, with the output
    layer as one more."""
    last = max(device for device, count in enumerate(counts) if count)
    items = [count + (device == last) for device, count in enumerate(counts)]
    ends, total = [sum(items[: device + 1]) for device in range(len(items))], sum(items)
    found = [0] * len(items)
    for block in range(blocks):
        found[next(device for device, end in enumerate(ends) if end * (blocks + 1) > block * total)] += 1
    return found


def leaving(shape: Shape, blocks: int) -> Shape:
    """The same model with its first blocks in the head's main memory, as --n-gpu-layers has it. The
    others, at least one, are for devices."""
    if not blocks:
        return shape
    left, others = _part(shape, 0, blocks), _part(shape, blocks, shape.block_count)
    return others._replace(input_bytes=shape.input_bytes + sum(left.block_bytes), left=left)


def _part(shape: Shape, first: int, end: int) -> Shape:
    return shape._replace(
        block_count=end - first,
        block_bytes=shape.block_bytes[first:end],
        n_head=shape.n_head[first:end],
        n_head_kv=shape.n_head_kv[first:end],
        head_k=shape.head_k[first:end],
        head_v=shape.head_v[first:end],
        swa_layers=shape.swa_layers[first:end],
        recurrent=shape.recurrent[first:end],
        expert_bytes=shape.expert_bytes[first:end],
    )
