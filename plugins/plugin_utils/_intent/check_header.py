# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes in the `header` of a model in llama_models, one sentence each. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...module_utils._model.shape import MAX_BLOCKS, RECURRENT
from .values import is_a, type_errors, unknown_key


class HeaderKey(NamedTuple):
    """A key of a model's `header`."""

    gguf: str | None  # what a GGUF header calls it, after its architecture
    kind: str = "count"  # text, count, flag, or for lists: counts, flags
    required: bool = False


HEADER_KEYS = {
    "architecture": HeaderKey(None, "text", True),
    "assumed": HeaderKey(None, "flag"),
    "block_count": HeaderKey("block_count", required=True),
    "context_length": HeaderKey("context_length"),
    "embedding_length": HeaderKey("embedding_length", required=True),
    "feed_forward_length": HeaderKey("feed_forward_length"),
    "head_count": HeaderKey("attention.head_count", required=True),
    "head_count_kv": HeaderKey("attention.head_count_kv", "counts", True),
    "key_length": HeaderKey("attention.key_length"),
    "value_length": HeaderKey("attention.value_length"),
    "vocab_size": HeaderKey(None, required=True),
    "tie_word_embeddings": HeaderKey(None, "flag"),
    "sliding_window": HeaderKey("attention.sliding_window"),
    "sliding_window_pattern": HeaderKey("attention.sliding_window_pattern", "flags"),
    "key_length_swa": HeaderKey("attention.key_length_swa"),
    "value_length_swa": HeaderKey("attention.value_length_swa"),
    "expert_count": HeaderKey("expert_count"),
    "expert_used_count": HeaderKey("expert_used_count"),
    "expert_feed_forward_length": HeaderKey("expert_feed_forward_length"),
    "expert_shared_feed_forward_length": HeaderKey("expert_shared_feed_forward_length"),
    "leading_dense_block_count": HeaderKey("leading_dense_block_count"),
    "q_lora_rank": HeaderKey("attention.q_lora_rank"),
    "kv_lora_rank": HeaderKey("attention.kv_lora_rank"),
    "key_length_mla": HeaderKey("attention.key_length_mla"),
    "value_length_mla": HeaderKey("attention.value_length_mla"),
    "rope_dimension_count": HeaderKey("rope.dimension_count"),
    "full_attention_interval": HeaderKey("full_attention_interval"),
    "ssm_conv_kernel": HeaderKey("ssm.conv_kernel"),
    "ssm_state_size": HeaderKey("ssm.state_size"),
    "ssm_group_count": HeaderKey("ssm.group_count"),
    "ssm_inner_size": HeaderKey("ssm.inner_size"),
}
# Keys that each key needs beside it.
_TOGETHER = {
    "expert_count": ("expert_used_count", "expert_feed_forward_length"),
    "expert_used_count": ("expert_count",),
    "expert_feed_forward_length": ("expert_count",),
    "expert_shared_feed_forward_length": ("expert_count",),
    "leading_dense_block_count": ("expert_count", "feed_forward_length"),
    "sliding_window_pattern": ("sliding_window",),
    "key_length_swa": ("sliding_window_pattern", "value_length_swa"),
    "kv_lora_rank": ("key_length_mla", "value_length_mla", "rope_dimension_count"),
    "key_length_mla": ("kv_lora_rank",),
}
_STATES = ("ssm_conv_kernel", "ssm_state_size", "ssm_group_count", "ssm_inner_size")
_NEEDED = {"count": "a whole number above 0", "flag": "true or false"}


def header_errors(entry: str, header: Mapping[str, Any]) -> list[str]:
    """A sentence for each mistake; a missing header has none."""
    found = [unknown_key(entry, key, HEADER_KEYS) for key in header if key not in HEADER_KEYS]
    missing = _missing(header) if header else []
    if missing:
        found.append(
            "%s: %s missing, what the header of the GGUF file says of them is needed to estimate a plan: add them"
            % (entry, ", ".join(missing))
        )
    for key, value in header.items():
        if key in HEADER_KEYS:
            found.extend(_value_errors(f"{entry}.{key}", value, HEADER_KEYS[key].kind))
    if found or not header:
        return found
    if header["block_count"] > MAX_BLOCKS:
        found.append(
            "%s.block_count: %d seen, 1 to %d is needed: correct it" % (entry, header["block_count"], MAX_BLOCKS)
        )
    rotated = header.get("rope_dimension_count", 0)
    if "kv_lora_rank" in header and header["key_length_mla"] <= rotated:
        found.append(
            "%s.key_length_mla: %d seen, more than the %d of rope_dimension_count is needed: give both parts of a key "
            "together" % (entry, header["key_length_mla"], rotated)
        )
    used, count = header.get("expert_used_count", 0), header.get("expert_count", 0)
    if used > count:
        found.append(
            "%s.expert_used_count: %d seen, at most the %d of expert_count are allowed: correct one of them"
            % (entry, used, count)
        )
    return found


def _missing(header: Mapping[str, Any]) -> list[str]:
    needed = [key for key, known in HEADER_KEYS.items() if known.required]
    if "expert_count" not in header:
        needed.append("feed_forward_length")
    if RECURRENT.get(str(header.get("architecture"))) == "interval":
        needed.extend(_STATES)
    for key in header:
        needed.extend(_TOGETHER.get(key, ()))
    return [key for key in HEADER_KEYS if key in needed and key not in header]


def _value_errors(where: str, value: Any, kind: str) -> list[str]:
    if kind == "text":
        return type_errors(where, value, str)
    one, many = kind.rstrip("s"), kind.endswith("s")
    if _is_one(value, one) and kind != "flags":
        return []
    if many and isinstance(value, list) and value and all(_is_one(item, one, 0) for item in value):
        return []
    more = {"count": ", or a list of them for the layers", "flag": " for each of some layers"}[one] if many else ""
    needed = "a list of true and false" if kind == "flags" else _NEEDED[one]
    return [f"{where}: {value!r} seen, {needed}{more} is needed: correct it"]


def _is_one(value: Any, kind: str, least: int = 1) -> bool:
    return isinstance(value, bool) if kind == "flag" else is_a(value, int) and value >= least
