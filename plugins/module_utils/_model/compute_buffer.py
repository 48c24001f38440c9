# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of the compute buffers: what one ubatch needs on each device while it passes through.

llama.cpp has no formula for them: it builds the graph and asks its allocator. The formulas here add up the tensors that
are alive at the same time at the widest place of a graph. They were fitted to llama-fit-params of b7772 and b11434;
docs/plan.md says how far they are off.
"""

import operator
from collections.abc import Sequence
from typing import NamedTuple

from .architectures import WITHOUT_CACHE
from .build_ranges import BuildRange, ranges_of
from .kv_cache import Cells, Settings, cells, is_plain, kv_bytes
from .shape import Shape

F32 = 4

# The architectures that were measured to go on with the tokens that have an output after the last block's attention.
# Some others do so only after its feed-forward: they, and those not measured, are reckoned that way.
CROPPED = {"llama", "qwen2", "qwen3", "qwen3moe"}


class Place(NamedTuple):
    """A device among the others."""

    is_first: bool  # it has the first blocks
    is_last: bool
    has_swa: bool  # some of its layers have a sliding window
    swa_only: bool  # all of them have
    pipeline: bool
    experts: bool  # it computes experts
    copies: int  # bytes of weights that lie elsewhere and are copied here to be used
    main: bool  # it is the head's main memory, which has the inputs too
    only_last: bool  # all it has is the model's last block, behind other devices


def _query(shape: Shape) -> int:
    """Weights of one token's query, all heads together."""
    return max(shape.n_head) * max(shape.head_k)


def _halved(shape: Shape, settings: Settings, seen: int) -> int:
    """Flash attention reads keys and values of F32 as a copy in F16 (build_attn_mha)."""
    size = 0
    for cache_type, heads in ((settings.cache_type_k, shape.head_k), (settings.cache_type_v, shape.head_v)):
        if cache_type == "f32":
            rows = [shape.mla.rank + shape.mla.rope] if shape.mla else map(operator.mul, shape.n_head_kv, heads)
            size += 2 * seen * max(rows)
    return size


def _core(shape: Shape, settings: Settings, known: BuildRange, full_cells: int, tokens: int, place: Place) -> int:
    """The widest place inside a layer, without what stays alive from layer to layer."""
    row = F32 * tokens
    n_embd, query = shape.n_embd, _query(shape)
    beside = query if known.rotated_cache else n_embd
    if known.rotated_cache and query < n_embd and not is_plain(settings.cache_type_k):
        beside = 2 * query
    widest = [2 * n_embd + query]
    if shape.n_ff:
        fused = shape.fused_ffn and known.rotated_cache
        widest.append(shape.ffn_parts * shape.n_ff + n_embd + (0 if fused else beside))
    if shape.n_ff_exp and place.experts:
        widest.append(_experts(shape) + n_embd + beside)
    elif shape.n_ff_exp:
        # The results of a token's experts come from the device that computes them.
        used = shape.n_expert_used
        widest.append((used + 2 if place.is_first else 2 * used - 1) * n_embd)
    if shape.mla:
        widest.append(max(shape.n_head) * (2 * shape.mla.rank + 2 * shape.mla.rope + shape.mla.head_k) + 3 * n_embd)
    if settings.flash_attn:
        return row * max(widest)
    scores = row * max(shape.n_head) * full_cells
    return scores + row * (max(widest) if shape.mla else 2 * query + 2 * n_embd)


def _attention(shape: Shape, tokens: int) -> int:
    """The widest place of a block whose input lies in one of the copies and whose feed-forward does not count."""
    keys, values = (max(map(operator.mul, shape.n_head_kv, heads)) for heads in (shape.head_k, shape.head_v))
    # Keys that do not fit where the block's normalized input was are there twice while they are rotated.
    rotated = keys if keys > shape.n_embd else 0
    return F32 * tokens * max(2 * _query(shape), _query(shape) + keys + values + rotated)


def _ubatch(shape: Shape, settings: Settings, known: BuildRange) -> tuple[int, Cells]:
    """-> (tokens of one, the cells that they attend to: each other where a text is read at once)"""
    size = cells(shape, settings, known)
    tokens = min(size.full * size.streams, settings.ubatch_size)
    if shape.architecture in WITHOUT_CACHE:
        size = size._replace(full=tokens, swa=tokens)
    return tokens, size


def _device(shape: Shape, settings: Settings, known: BuildRange, place: Place, fit_params: bool) -> int:
    """Bytes of one device's buffer under one BuildRange; place: Place."""
    tokens, size = _ubatch(shape, settings, known)
    every = known.all_outputs or settings.embeddings or fit_params
    rows = tokens if every else min(size.sequences * (1 + settings.drafted), tokens)
    core = _core(shape, settings, known, size.full, tokens, place)
    if place.pipeline and place.only_last and rows < tokens and settings.flash_attn and shape.architecture in CROPPED:
        few = _core(shape, settings, known, size.full, rows, place)
        core = min(core, max(_attention(shape, tokens), few))
    core += place.copies
    core += _halved(shape, settings, size.full * size.streams) if settings.flash_attn else 0
    hidden = F32 * tokens * shape.n_embd
    inputs = (2 if shape.fused_ffn else 1) * hidden if place.main else 0
    seen = (0 if place.swa_only else size.full) + (size.swa if place.has_swa else 0)
    mask = (2 if settings.flash_attn else 4) * seen * tokens
    # A model that reads a text at once has no output layer.
    logits = F32 * rows * shape.n_vocab if place.is_last and shape.architecture not in WITHOUT_CACHE else 0
    if place.is_last and shape.fused_ffn and (place.pipeline or not known.rpc_events):
        logits += 2 * hidden
    if place.pipeline:
        # Four copies of what the device is given: the masks, and the hidden state once (llama-fit-params: twice) or,
        # with the embeddings, three times.
        copies = 14 if place.is_first else 9 if fit_params else 5
        return max(core, logits) + copies * hidden + 4 * mask
    if known.rpc_events:
        return max(logits + 4 * hidden, core + 2 * hidden) + mask + inputs
    middle = core + mask
    if not fit_params:
        middle += F32 * tokens * _query(shape)
    if shape.n_ff_exp and place.experts and shape.architecture.startswith("granite") and not place.is_first:
        # The results of a token's experts reach the next device one by one, each in a buffer for all of them.
        middle = max(middle, (shape.n_expert_used**2 + 1) * hidden)
    if place.is_first:
        middle = max(middle, core + hidden + 2 * mask)
    return max(logits + (F32 * rows * shape.n_embd if place.is_last else 0), middle) + inputs


def _host(shape: Shape, settings: Settings, known: BuildRange, pipeline: bool) -> int:
    """Bytes of the head's own buffer under one BuildRange: the inputs of a ubatch."""
    tokens, size = _ubatch(shape, settings, known)
    hidden = F32 * tokens * shape.n_embd
    mask = (2 if settings.flash_attn else 4) * (size.full + (size.swa if any(shape.swa_layers) else 0)) * tokens
    if pipeline:
        return 10 * hidden + 4 * mask
    if shape.left:
        # It reads the cache of the layers that it keeps, and computes them where no device does it.
        mask += _device(shape.left, settings, known, _leading(shape.left), False)
    # The head computes the experts that it keeps, where no device of its own does it.
    experts = F32 * tokens * _experts(shape) if shape.cpu_moe else 0
    if known.rpc_events:
        return max(4 * hidden, 2 * hidden + experts) + mask
    return hidden + 2 * mask + experts


def _leading(shape: Shape) -> Place:
    """The place of layers that come before the layers of all devices."""
    any_swa, all_swa = any(shape.swa_layers), all(shape.swa_layers)
    return Place(True, False, any_swa, all_swa, False, bool(shape.n_ff_exp), 0, False, False)


def _left_copy(shape: Shape, settings: Settings) -> int:
    """Bytes of the device that computes prompts for the layers that the head keeps: a product's weights, at most those
    of a layer without its experts, and a layer's cache."""
    if not shape.left:
        return 0
    blocks = zip(shape.left.block_bytes, shape.left.expert_bytes)
    return max(shape.expert_copy, *(size - own for size, own in blocks)) + max(kv_bytes(shape.left, settings))


def _experts(shape: Shape) -> int:
    """Weights of what one token's experts are given and give, which lies where their gate and up were if it fits
    there."""
    results = shape.n_embd if shape.n_embd > 2 * shape.n_ff_exp else 0
    return shape.n_expert_used * (3 * shape.n_ff_exp + results)


def compute_bytes(
    shape: Shape,
    settings: Settings,
    counts: Sequence[int],
    local: int,
    fit_params: bool = False,
    main: bool = False,
) -> tuple[list[int], int]:
    """-> ([bytes of each device], bytes of the host)

    counts: blocks per device; local: how many of the last devices are the head's own; fit_params: what llama-fit-params
    says instead of what llama-server takes (it reserves logits for every token of a ubatch, and reckons some buffers
    differently because it allocates nothing); main: the one device is the head's main memory.
    """
    devices, host = [0] * len(counts), 0
    for known in ranges_of(settings.build):
        # Weights that were put elsewhere by name end the pipeline (llama_model::has_tensor_overrides), and so do layers
        # in main memory.
        elsewhere = shape.cpu_moe or shape.left
        pipeline = len(counts) > 1 and (known.rpc_events or local == len(counts)) and not elsewhere
        host = 0 if main else max(host, _host(shape, settings, known, pipeline))
        end = 0
        for device, count in enumerate(counts):
            begin, end = end, end + count
            windows = shape.swa_layers[begin:end]
            # The first of the head's own devices computes prompts of layers in main memory; RPC devices do not.
            offered = bool(elsewhere) and device == len(counts) - local
            if offered and shape.left:
                windows = windows + shape.left.swa_layers
            experts = main or offered or not shape.cpu_moe or any(shape.expert_bytes[begin:end])
            copies = 0
            if offered:
                copies = _left_copy(shape, settings) if shape.left else shape.expert_copy
            if count or offered:
                is_last = bool(count) and end == shape.block_count
                place = Place(
                    is_first=not begin,
                    is_last=is_last,
                    has_swa=any(windows),
                    swa_only=all(windows),
                    pipeline=pipeline,
                    experts=experts,
                    copies=copies,
                    main=main,
                    only_last=is_last and count == 1 and begin > 0,
                )
                devices[device] = max(devices[device], _device(shape, settings, known, place, fit_params))
    return devices, host
