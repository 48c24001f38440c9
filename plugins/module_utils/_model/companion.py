# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of the header of a file that lies beside a model, a projector or an adapter, that decide how much memory it
needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._text import Refusal
from .gguf import Header, shown
from .shape import ARCHITECTURE, MAX_BLOCKS, Shape

PROJECTOR, ADAPTER = "projector", "adapter"
# Projectors that see a picture, or each tile of it, as image_size says. The others see up to so many tokens of it,
# each of MERGED patches.
FIXED = ("gemma3", "idefics3", "internvl", "janus_pro", "ldp", "llama4", "mlp")
TOKENS, MERGED = 4096, 4
_BLOCK = re.compile(r"^blk\.([0-9]{1,4})\.")
_MOST = 1 << 20  # of every number; the largest known one is 16384
_MOST_BYTES = 1 << 50


class Companion(NamedTuple):
    """The bytes that a projector or an adapter needs."""

    kind: str
    architecture: str  # of the model that an adapter was made for
    whole: int  # all its tensors
    blocks: list[int]  # of an adapter, by block of its model
    entry: int  # of an adapter's tensors for the input
    compute: int  # of a projector with flash attention
    compute_plain: int  # without

    def added_to(self, shape: Shape) -> Shape:
        """The model with this adapter: its tensors lie with those that they change (llama-adapter.cpp)."""
        own = self.blocks + [0] * (shape.block_count - len(self.blocks))
        return shape._replace(
            block_bytes=[size + more for size, more in zip(shape.block_bytes, own)],
            input_bytes=shape.input_bytes + self.entry,
            output_bytes=shape.output_bytes + self.whole - sum(self.blocks) - self.entry,
        )


def read_companion(headers: Sequence[Header]) -> Companion | None:
    """Returns the facts of the header of a projector or an adapter; None for any other file. Raises Refusal for one
    that llama-server does not load."""
    metadata = headers[0].metadata
    whole = sum(tensor.nbytes for header in headers for tensor in header.tensors)
    kind = metadata.get("general.type")
    if kind == "mmproj" or metadata.get("general.architecture") == "clip":
        return Companion(PROJECTOR, "", min(whole, _MOST_BYTES), [], 0, *_compute(metadata))
    return _adapter(headers, min(whole, _MOST_BYTES)) if kind == "adapter" else None


def _adapter(headers: Sequence[Header], whole: int) -> Companion:
    metadata = headers[0].metadata
    if metadata.get("adapter.type") != "lora":
        raise Refusal(
            "header: adapter.type %s seen, lora is needed: use another adapter" % shown(metadata.get("adapter.type"))
        )
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not ARCHITECTURE.match(architecture):
        raise Refusal(
            "header: general.architecture %s seen, that of its model is needed: use another adapter"
            % shown(architecture)
        )
    blocks, entry = [0] * MAX_BLOCKS, 0
    for tensor in (tensor for header in headers for tensor in header.tensors):
        if not tensor.name.endswith((".lora_a", ".lora_b", "_norm.weight")):
            raise Refusal(
                "header: tensor %s seen, lora_a and lora_b are needed: convert the adapter with "
                "convert_lora_to_gguf.py" % shown(tensor.name)
            )
        block = _BLOCK.match(tensor.name)
        if block and int(block.group(1)) < MAX_BLOCKS:
            blocks[int(block.group(1))] += tensor.nbytes
        elif tensor.name.startswith("token_embd."):
            entry += tensor.nbytes
    while blocks and not blocks[-1]:
        blocks.pop()
    return Companion(ADAPTER, architecture, whole, blocks, entry, 0, 0)


def _compute(metadata: dict[str, Any]) -> tuple[int, int]:
    """Bytes of the compute buffer for a picture, with and without flash attention; measured for gemma3 and idefics3.
    0 for a projector of sound only."""
    if not metadata.get("clip.has_vision_encoder"):
        return 0, 0
    width, wide, heads = (
        _number(metadata, f"clip.vision.{key}")
        for key in ("embedding_length", "feed_forward_length", "attention.head_count")
    )
    side = _number(metadata, "clip.vision.image_size") // max(_number(metadata, "clip.vision.patch_size"), 1)
    fixed = metadata.get("clip.projector_type") in FIXED
    patches = side * side if fixed else max(side * side, TOKENS * MERGED)
    fast = 4 * patches * max(wide + 3 * width, 7 * width)
    plain = max(fast, 4 * patches * (heads * patches + 4 * width))
    return min(fast, _MOST_BYTES), min(plain, _MOST_BYTES)


def _number(metadata: dict[str, Any], key: str) -> int:
    value = metadata.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST:
        raise Refusal(
            "header: %s is %s, a number up to %d is needed: use a file that a current llama.cpp converted"
            % (key, "missing" if value is None else shown(value), _MOST)
        )
    return value
