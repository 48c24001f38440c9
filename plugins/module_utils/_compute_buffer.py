# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of the compute buffers: what one ubatch needs on each device while it passes through.

llama.cpp has no formula for them: it builds the graph and asks its allocator. The formulas here add up the tensors that are alive at the same time at the
widest place of a graph. They were fitted to llama-fit-params of b7772 and b11434; docs/memory.md says how far they are off.
"""

from ._build_range import ranges_of
from ._kv_cache import CACHE_TYPES, cells

F32 = 4


def _core(shape, settings, known, full_cells, tokens):
    """The widest place inside a layer, without what stays alive from layer to layer."""
    row = F32 * tokens
    n_embd, query = shape.n_embd, max(shape.n_head) * max(shape.head_k)
    beside = query if known.rotated_cache else n_embd
    if known.rotated_cache and query < n_embd and CACHE_TYPES[settings.cache_type_k][0] > 1:
        beside = 2 * query
    widest = [2 * n_embd + query]
    if shape.n_ff:
        fused = shape.fused_ffn and known.rotated_cache
        widest.append(shape.ffn_parts * shape.n_ff + n_embd + (0 if fused else beside))
    if shape.n_ff_exp:
        used = shape.n_expert_used
        widest.append(used * (2 * n_embd + shape.n_ff_exp) + n_embd)
        widest.append(used * 3 * shape.n_ff_exp + n_embd + beside)
    if shape.mla:
        widest.append(max(shape.n_head) * (2 * shape.mla.rank + 2 * shape.mla.rope + shape.mla.head_k) + 3 * n_embd)
    if settings.flash_attn:
        return row * max(widest)
    scores = row * max(shape.n_head) * full_cells
    return scores + row * (max(widest) if shape.mla else 2 * query + 2 * n_embd)


def _sizes(shape, settings, known, devices, local, outputs):
    """-> (device in the middle, first device, device with the output layer, only device, host)"""
    size = cells(shape, settings)
    tokens = min(size.full * size.streams, settings.ubatch_size)
    core = _core(shape, settings, known, size.full, tokens)
    hidden = F32 * tokens * shape.n_embd
    mask = (2 if settings.flash_attn else 4) * (size.full + (size.swa if any(shape.swa_layers) else 0)) * tokens
    rows = outputs or (tokens if known.all_outputs else min(size.sequences, tokens))
    logits = F32 * rows * shape.n_vocab + (2 * hidden if shape.fused_ffn else 0)
    if devices > 1 and (known.rpc_events or local == devices):
        middle = core + 9 * hidden + 4 * mask
        last = max(logits + 9 * hidden + 4 * mask, middle)
        return middle, middle + 5 * hidden, last, last, 10 * hidden + 4 * mask
    if known.rpc_events:
        only = max(logits + 4 * hidden, core + 2 * hidden) + mask
        return only, only, only, only, 4 * hidden + mask
    middle = core + mask
    if shape.n_ff_exp and shape.architecture.startswith("granite"):
        # The results of a token's experts reach the next device one by one, each in a buffer for all of them.
        middle = max(middle, (shape.n_expert_used**2 + 1) * hidden)
    first = core + hidden + 2 * mask
    last = max(logits + F32 * rows * shape.n_embd, middle)
    return middle, first, last, max(first, last), hidden + 2 * mask


def compute_bytes(shape, settings, used, local, outputs=None):
    """-> ([bytes of each device], bytes of the host)

    used: [whether the device has layers]; local: how many of the last devices are the head's own; outputs: rows of logits that a ubatch reserves, None for
    what llama-server asks for.
    """
    devices, host = [0] * len(used), 0
    holders = [device for device, has_layers in enumerate(used) if has_layers]
    for known in ranges_of(settings.build):
        middle, first, last, only, mine = _sizes(shape, settings, known, len(used), local, outputs)
        host = max(host, mine)
        for device in holders:
            size = only if len(holders) == 1 else first if device == holders[0] else last if device == holders[-1] else middle
            devices[device] = max(devices[device], size)
    return devices, host
