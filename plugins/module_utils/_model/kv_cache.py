# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of the KV cache, as llama-kv-cache.cpp and llama-kv-cache-iswa.cpp of b7772 and b11434 allocate it."""

from __future__ import annotations

import math
from typing import NamedTuple

from .build_ranges import BuildRange, ranges_of
from .shape import Shape

# Cache type: (weights per block, bytes per block).
CACHE_TYPES = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}


class Projector(NamedTuple):
    """The part that sees pictures, in bytes. on_card: on the first card of the head, if it has one."""

    weights: int
    compute: int
    on_card: bool


class Settings(NamedTuple):
    """Settings of llama-server that decide about memory."""

    build: int | None  # its number; None when unknown: the larger of what known builds need
    ctx_size: int  # tokens as given to -c, 0 for the model's own
    parallel: int | None  # slots, None for llama-server's own choice (4 in a unified cache)
    batch_size: int
    ubatch_size: int
    cache_type_k: str  # of CACHE_TYPES, or one that its build has beside them
    cache_type_v: str
    flash_attn: bool
    kv_unified: bool
    swa_full: bool  # layers with a sliding window cache everything
    embeddings: bool  # every token of a batch has an output
    cache_ram: int = 0  # MiB of the head's main memory for prompts of other conversations
    # Bits per element of a type that CACHE_TYPES lacks.
    bits_k: float | None = None
    bits_v: float | None = None
    projector: Projector | None = None
    drafted: int = 0  # tokens that are checked at a time in a slot, beside its next one
    tensor_mode: bool = False  # each device has a part of every layer


class Cells(NamedTuple):
    """The size of a KV cache."""

    streams: int  # separate caches: one, or one per sequence
    full: int  # cells of a layer in one stream
    swa: int  # of a layer with a sliding window
    sequences: int  # requests at once


def _pad(count: int, step: int) -> int:
    return count + -count % step


def cells(shape: Shape, settings: Settings, known: BuildRange) -> Cells:
    """-> Cells under one BuildRange. parallel None or below 1 is llama-server's own choice: 4 sequences in one unified
    cache."""
    slots = settings.parallel or 0
    automatic = slots < 1
    sequences = 4 if automatic else slots
    unified = automatic or bool(settings.kv_unified)
    context = _pad(settings.ctx_size or shape.context_length, 256)
    full = context if unified else _pad(context // sequences, 256)
    window = shape.swa_window * (sequences if unified else 1) + settings.ubatch_size
    swa = full if settings.swa_full else _pad(min(full, window), 256)
    streams = 1 if unified else sequences
    if known.whole_context_beside_states and any(shape.recurrent):
        full *= streams
    return Cells(streams, full, swa, sequences)


def row_bytes(cache_type: str, weights: int, bits: float | None = None) -> int:
    """Bytes of ``weights`` weights; a cache type's block is never split over two rows. bits: per element, of a type
    that CACHE_TYPES lacks."""
    if bits:
        return math.ceil(weights * bits / 8)
    block, size = CACHE_TYPES[cache_type]
    return -(-weights // block) * size


def _layer_rows(shape: Shape, settings: Settings, block: int, mla_values: bool) -> tuple[int, int]:
    """Bytes of one cell of a layer's keys and of its values, which are a tensor each."""
    if shape.mla:
        keys = row_bytes(settings.cache_type_k, shape.mla.rank + shape.mla.rope, settings.bits_k)
        return keys, row_bytes(settings.cache_type_v, shape.mla.rank, settings.bits_v) if mla_values else 0
    heads = shape.n_head_kv[block]
    keys = row_bytes(settings.cache_type_k, heads * shape.head_k[block], settings.bits_k)
    return keys, row_bytes(settings.cache_type_v, heads * shape.head_v[block], settings.bits_v)


def is_plain(cache_type: str) -> bool:
    """Whether a cache type is not quantized."""
    return cache_type in CACHE_TYPES and CACHE_TYPES[cache_type][0] == 1


def kv_bytes(shape: Shape, settings: Settings) -> list[int]:
    """-> [bytes of each block's cache, all sequences together, constant (recurrent) state included]"""
    needs = []
    for known in ranges_of(settings.build):
        size = cells(shape, settings, known)
        needs.append(
            [
                size.streams
                * (size.swa if sliding else size.full)
                * sum(_layer_rows(shape, settings, block, known.mla_values))
                + size.sequences * shape.recurrent[block]
                for block, sliding in enumerate(shape.swa_layers)
            ]
        )
    return [max(block) for block in zip(*needs)]


def largest_kv(shape: Shape, settings: Settings) -> int:
    """Bytes of the largest tensor of the cache: the keys or the values of one layer, of all sequences."""
    known = ranges_of(settings.build)[-1]
    size = cells(shape, settings, known)
    return size.streams * max(
        (size.swa if sliding else size.full) * max(_layer_rows(shape, settings, block, known.mla_values))
        for block, sliding in enumerate(shape.swa_layers)
    )
