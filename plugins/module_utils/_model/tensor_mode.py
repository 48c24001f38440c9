# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model of which each device has a part of every layer, as --split-mode tensor of b11434 places it
(llama_meta_device_get_split_state). Private to the collection."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from .gguf import Tensor

# The build whose source was read and that was measured.
TENSOR_BUILD = 11434
# Architectures that it refuses (llm_arch_supports_sm_tensor).
_REFUSED = (
    "grok mpt plamo2 minicpm3 gemma3n mamba mamba2 jamba falcon-h1 olmo2 olmoe deepseek2 deepseek32 hy_v4 dots3note "
    "glm-dsa bitnet t5 nemotron_h nemotron_h_moe granitehybrid minimax-01 minimax-m2 minimax-m3 mistral4 kimi-linear "
    "bailingmoe3 kimi-k3 glm5-next qwen3tts"
)
UNSUPPORTED = frozenset(_REFUSED.split())
# Each device has the whole of their caches, or of all their weights, which the plan does not count.
UNPLANNED = frozenset(("deepseek4", "hrm_text"))
# The tensors of a layer of which each device has a part. It has the whole of every other one.
DIVIDED = re.compile(
    r"^blk\.(\d+)\.(attn_(q|k|v|qkv|output|gate)\.weight|attn_(q|k|v|qkv)\.bias|ssm_(alpha|beta|ba|conv1d|out)\.weight"
    r"|ffn_(up|gate|gate_up|down)(_exps)?\.weight)\Z"
)
# Heads are kept together until a device has so many weights of a row: by the block of a type, at least by 128.
ROWS = (128, 256)


def divided(named: Mapping[str, Tensor], blocks: int) -> list[Tensor]:
    """The tensors that are divided, of the first blocks."""
    found = ((DIVIDED.match(name), tensor) for name, tensor in named.items())
    return [tensor for match, tensor in found if match and int(match.group(1)) < blocks]


def head_parts(heads: Sequence[int], cached: Sequence[int], sizes: Sequence[int], parts: Sequence[int]) -> list[float]:
    """-> the part of all layers' caches, and so of their attention, that each device has at most.

    heads, cached, sizes: of each layer all heads, its cached ones, and the weights of one; parts: of each device, in
    any unit. The device that a layer begins with is another one in each layer.
    """
    return [max(both) for both in zip(*(_by_rows(heads, cached, sizes, parts, row) for row in ROWS))]


def _by_rows(
    heads: Sequence[int], cached: Sequence[int], sizes: Sequence[int], parts: Sequence[int], row: int
) -> list[float]:
    held, layers, devices = [0.0] * len(parts), 0, len(parts)
    for count, own, size in zip(heads, cached, sizes):
        if not own or not size:
            continue
        group = size * max(1, count // own)
        together = math.lcm(group, row) // group
        given = begun = 0
        for place in range(devices):
            device = (place + layers) % devices
            begun += parts[device]
            end = own if place == devices - 1 else own * begun // sum(parts) // together * together
            held[device] += (end - given) / own
            given = end
        layers += 1
    return [one / layers if layers else part / sum(parts) for one, part in zip(held, parts)]
