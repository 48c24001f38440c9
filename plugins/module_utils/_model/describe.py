# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's files by their names and headers: shards, size, quantization. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .._text import Refusal, exact
from .gguf import Header, Tensor, shown

# general.file_type, the llama_ftype enumeration of llama.h.
FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}
_FILE_TYPE_GUESSED = 1024  # a flag llama.cpp may set on top

# Files that accompany a model, by general.type or general.architecture.
NO_MODEL = "which is no model"
_COMPANIONS = {"mmproj": "a projector for images or sound", "clip": "a projector for images or sound"}
_COMPANIONS.update(
    {"adapter": "a LoRA adapter", "imatrix": "an importance matrix", "controlvector": "a control vector"}
)

_SHARD_NAME = re.compile(r"^(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf\Z")


def size_problem(header: Header, size: int, name: str, again: str = "fetch it again") -> str | None:
    """The sentence for a file of ``size`` bytes that ``header`` does not describe, or None. again: the next step."""
    if size < header.minimum_size:
        return f"{name}: {exact(size)} present, {exact(header.expected_size)} needed by its header: {again}"
    # A file without tensors may or may not carry the padding that ends its header.
    if size > max(header.expected_size, header.data_offset):
        return "%s: %s present, %s needed by its header: foreign bytes follow the model, %s" % (
            name,
            exact(size),
            exact(header.expected_size),
            again,
        )
    return None


def shard_name(name: str) -> tuple[str, int, int] | None:
    """'m-00002-of-00003.gguf' -> ('m', 2, 3); None for a name that gguf-split would not give."""
    match = _SHARD_NAME.match(name)
    if not match:
        return None
    return match.group("stem"), int(match.group("number")), int(match.group("count"))


def shard_names(name: str) -> list[str]:
    """All file names of the model that ``name`` belongs to, in order; [name] when it is no shard."""
    parsed = shard_name(name)
    if not parsed:
        return [name]
    stem, _number, count = parsed
    return ["%s-%05d-of-%05d.gguf" % (stem, number, count) for number in range(1, count + 1)]


def check_shards(headers: Sequence[Header], names: Sequence[str]) -> None:
    """Whether the headers, in file order, make one model; raises Refusal naming the shard that does not fit.

    A lone header that announces no split passes.
    """
    total = sum(len(header.tensors) for header in headers)
    for number, (header, name) in enumerate(zip(headers, names)):
        count, place, tensors = (header.metadata.get("split." + key) for key in ("count", "no", "tensors.count"))
        count = count or 1
        if count != len(headers):
            raise Refusal(
                f"{name}: its header names {shown(count)} shards, {len(headers)} given: give all shards of one model"
            )
        if count == 1:
            continue
        if place != number:
            raise Refusal(
                "%s: its header says shard %s, place %d needs shard %d" % (name, shown(place), number + 1, number)
            )
        if tensors != total:
            raise Refusal(
                "%s: its header says %s tensors in all shards, they have %d: a shard of another model is among them"
                % (name, shown(tensors), total)
            )


def quantization(headers: Sequence[Header]) -> str | None:
    """llama.cpp's name of general.file_type; without a usable one, the tensor type that holds most bytes."""
    file_type = headers[0].metadata.get("general.file_type")
    if isinstance(file_type, int) and (file_type & ~_FILE_TYPE_GUESSED) in FILE_TYPES:
        return FILE_TYPES[file_type & ~_FILE_TYPE_GUESSED]
    share: dict[str, int] = {}
    for header in headers:
        for tensor in header.tensors:
            share[tensor.type] = share.get(tensor.type, 0) + tensor.nbytes
    return max(sorted(share), key=lambda name: share[name]) if share else None


def check_model(metadata: dict[str, Any]) -> None:
    """Raises Refusal for the header of a file that goes with a model."""
    kind, architecture = (_text(metadata, "general." + key) or "none" for key in ("type", "architecture"))
    what = _COMPANIONS.get(kind, _COMPANIONS.get(architecture))
    if what:
        raise Refusal(
            "header: general.type %s, architecture %s seen: %s, %s: name the file of the model itself"
            % (shown(kind), shown(architecture), what, NO_MODEL)
        )


def describe(headers: Sequence[Header]) -> dict[str, Any]:
    """The facts of the header(s) of one model, shards in order.

    -> {architecture, name, license: str or None; quantization: str or None; parameters: int, weights of all tensors;
    block_count, context_length: int or None; tensors: int; shards: int; expected_size: int, bytes of all files}
    """
    metadata = headers[0].metadata
    architecture = _text(metadata, "general.architecture")
    return {
        "architecture": architecture,
        "name": _text(metadata, "general.name"),
        "license": _text(metadata, "general.license"),
        "quantization": quantization(headers),
        "parameters": sum(_weights(tensor) for header in headers for tensor in header.tensors),
        "block_count": _count(metadata, f"{architecture}.block_count"),
        "context_length": _count(metadata, f"{architecture}.context_length"),
        "tensors": sum(len(header.tensors) for header in headers),
        "shards": len(headers),
        "expected_size": sum(header.expected_size for header in headers),
    }


def _weights(tensor: Tensor) -> int:
    count = 1
    for dim in tensor.dims:
        count *= dim
    return count


def _text(metadata: dict[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) else None


def _count(metadata: dict[str, Any], key: str) -> int | None:
    value = metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
