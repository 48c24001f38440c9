# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of a model estimated from the catalog, for a plan where no header can be had. Private to the collection."""

from collections.abc import Callable, Mapping
from typing import Any

from ...module_utils._model.gguf import Header, Tensor
from ...module_utils._model.memory import Shape, read_shape
from ...module_utils._text import Refusal
from .._intent.check_models import HEADER_KEYS


def estimate(facts: Mapping[str, Any], size: int) -> Shape:
    """Shape of a dense model of ``size`` bytes, all of its weights taken as of the mean width.

    facts: a model's `header` in llama_models. Raises Refusal where that is not enough.
    """
    architecture = facts["architecture"]
    metadata = {
        "%s.%s" % (architecture, HEADER_KEYS[key][0]): value for key, value in facts.items() if HEADER_KEYS[key][0]
    }
    metadata.setdefault("%s.context_length" % architecture, 0)
    metadata["general.architecture"] = architecture
    dims = _tensors(facts)
    mean = size / float(sum(rows * columns for _name, (rows, columns) in dims))
    tensors = [Tensor(name, (rows, columns), "F32", 0, int(rows * columns * mean)) for name, (rows, columns) in dims]
    return read_shape(Header(3, metadata, {}, tensors, 0, 32, 0, size, size))


def with_draft(
    shape: Shape, draft: Mapping[str, Any] | None, shape_of: Callable[[str, str], tuple[Shape, str]]
) -> Shape:
    """A model with the one that drafts for it, of the same headers; raises Refusal."""
    if not draft:
        return shape
    try:
        return shape._replace(draft=shape_of(draft["model"], draft["quant"])[0])
    except Refusal as problem:
        raise Refusal("its draft model %s %s: %s" % (draft["model"], draft["quant"], problem)) from None


def _tensors(facts: Mapping[str, Any]) -> list[tuple[str, tuple[int, int]]]:
    """[(name, dims)] of a dense model; norms and biases are too small to count."""
    width, tokens, inner = facts["embedding_length"], facts["vocab_size"], facts["feed_forward_length"]
    key = facts.get("key_length") or width // facts["head_count"]
    query, keys, values = (
        facts["head_count"] * key,
        facts["head_count_kv"] * key,
        facts["head_count_kv"] * (facts.get("value_length") or key),
    )
    found = [("token_embd.weight", (width, tokens)), ("output.weight", (width, tokens))]
    for block in range(facts["block_count"]):
        parts = [
            ("attn_q", (width, query)),
            ("attn_k", (width, keys)),
            ("attn_v", (width, values)),
            ("attn_output", (query, width)),
        ]
        parts += [("ffn_gate", (width, inner)), ("ffn_up", (width, inner)), ("ffn_down", (inner, width))]
        found.extend(("blk.%d.%s.weight" % (block, name), dims) for name, dims in parts)
    return found
