# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of the compute buffers: what one ubatch needs on each device while it passes through.

There is no closed form in llama.cpp: it builds the graph and asks its allocator. The formulas here are the sizes of the tensors that are alive at the
same time at the worst place of a graph, fitted to llama-fit-params of b7772 and b11434.
"""

from ._kv_cache import cells

LAST_SYNCHRONOUS = 7772
FIRST_ASYNCHRONOUS = 11434
"""Up to the first build an RPC device computes synchronously; from the second on it has events, and llama.cpp runs several devices as a pipeline
with four copies of each input. Between them nothing was measured."""

F32 = 4


def _core(shape, size, tokens, flash_attn):
    """The widest place inside a layer."""
    row = F32 * tokens
    widest = [row * (3 * shape.n_ff + 2 * shape.n_embd)] if shape.n_ff and not shape.n_expert_used else []
    if shape.n_expert_used:
        widest.append(row * shape.n_expert_used * (2 * shape.n_embd + (shape.n_ff_exp or shape.n_ff)))
    if shape.mla:
        widest.append(row * (max(shape.n_head) * (2 * shape.mla.rank + shape.mla.rope + shape.mla.head_k) + 4 * shape.n_embd))
    if not flash_attn:
        widest.append(F32 * size.full * tokens * max(shape.n_head) + row * 2 * shape.n_embd)
    return max(widest)


def _sizes(shape, settings, pipeline, few_outputs, outputs):
    """-> (device in the middle, first device, device with the output layer, host)"""
    size = cells(shape, settings)
    tokens = min(size.full * size.streams, settings.ubatch_size)
    core = _core(shape, size, tokens, settings.flash_attn)
    hidden = F32 * tokens * shape.n_embd
    mask = (2 if settings.flash_attn else 4) * (size.full + (size.swa if any(shape.swa_layers) else 0)) * tokens
    rows = outputs or (min(size.sequences, tokens) if few_outputs else tokens)
    if pipeline:
        middle = core + 9 * hidden + 4 * mask
        last = max(F32 * rows * shape.n_vocab + 9 * hidden + 4 * mask, core + 5 * hidden + 4 * mask)
        return middle, middle + 5 * hidden, last, 10 * hidden + 4 * mask
    middle = core + mask
    last = max(F32 * rows * (shape.n_vocab + shape.n_embd), middle)
    return middle, middle + hidden + mask, last, hidden + 2 * mask


def compute_bytes(shape, settings, used, local, outputs=None):
    """-> ([bytes of each device], bytes of the host)

    used: [whether the device has layers]; local: how many of the last devices are the head's own; outputs: rows of logits a ubatch may ask for, None for
    what llama-server reserves.
    """
    many = len(used) > 1
    variants = []
    if settings.build is None or settings.build < FIRST_ASYNCHRONOUS:
        variants.append((many and local == len(used), False))
    if settings.build is None or settings.build > LAST_SYNCHRONOUS:
        variants.append((many, True))
    devices, host = [0] * len(used), 0
    holders = [device for device, has_layers in enumerate(used) if has_layers]
    for pipeline, few_outputs in variants:
        middle, first, last, mine = _sizes(shape, settings, pipeline, few_outputs, outputs)
        host = max(host, mine)
        for device in holders:
            size = middle
            if device == holders[0]:
                size = max(size, first)
            if device == holders[-1]:
                size = max(last, first) if device == holders[0] else last
            devices[device] = max(devices[device], size)
    return devices, host
