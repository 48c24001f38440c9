# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of a model estimated from the catalog, for a plan where no header can be had. Private to the collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle, islice
from math import prod
from typing import Any

from ...module_utils._model.architectures import RECURRENT, WITHOUT_CACHE
from ...module_utils._model.gguf import Header, Tensor
from ...module_utils._model.memory import Shape, read_shape
from .._intent.check_models import HEADER_KEYS

Named = tuple[str, tuple[int, ...]]
# Bytes of a weight in Q8_0. Quants of a mixture save bits on its experts: what every token uses stays about that wide.
_Q8_0 = 34 / 32


def estimate(facts: Mapping[str, Any], size: int) -> Shape:
    """Shape of a model of ``size`` bytes.

    facts: a model's `header` in llama_models. Weights are taken as of the mean width; in a mixture all but the experts
    are at least Q8_0, and the experts have the rest. Raises Refusal where that is not enough.
    """
    architecture = facts["architecture"]
    metadata = {
        f"{architecture}.{HEADER_KEYS[key].gguf}": _whole(facts, value)
        for key, value in facts.items()
        if HEADER_KEYS[key].gguf
    }
    if "kv_lora_rank" in facts:
        # As llama.cpp's converter writes them: one head, of the compressed cache.
        rank = facts["kv_lora_rank"]
        metadata[f"{architecture}.attention.key_length"] = rank + facts["rope_dimension_count"]
        metadata[f"{architecture}.attention.value_length"] = rank
    metadata.setdefault(f"{architecture}.context_length", 0)
    metadata["general.architecture"] = architecture
    named = _tensors(facts)
    widths = _widths(named, size)
    # A stand-in type; with Q8_0 a tied embedding is in main memory twice.
    tensors = [Tensor(name, dims, "Q8_0", 0, int(prod(dims) * widths[_is_expert(name)])) for name, dims in named]
    # The largest tensor is not known from a mean width.
    shape = read_shape(Header(3, metadata, {}, tensors, 0, 32, 0, size, size))
    return shape._replace(largest=0, largest_expert=0)


def _whole(facts: Mapping[str, Any], value: Any) -> Any:
    """A list as a header has it, for each block: a shorter one repeats."""
    return list(islice(cycle(value), facts["block_count"])) if isinstance(value, list) else value


def _is_expert(name: str) -> bool:
    return "_exps." in name


def _widths(named: Iterable[Named], size: int) -> dict[bool, float]:
    """{whether it is an expert's: bytes of a weight}"""
    weights = {False: 0, True: 0}
    for name, dims in named:
        weights[_is_expert(name)] += prod(dims)
    mean = size / sum(weights.values())
    rest = max(mean, _Q8_0)
    left = size - rest * weights[False]
    if not weights[True] or left <= 0:
        return {False: mean, True: mean}
    return {False: rest, True: left / weights[True]}


def _tensors(facts: Mapping[str, Any]) -> list[Named]:
    """[(name, dims)] of a model; norms and biases are too small to count."""
    width, tokens = facts["embedding_length"], facts["vocab_size"]
    found: list[Named] = [("token_embd.weight", (width, tokens))]
    if not (facts.get("tie_word_embeddings") or facts["architecture"] in WITHOUT_CACHE):
        found.append(("output.weight", (width, tokens)))
    for block in range(facts["block_count"]):
        parts = [*_attention(facts, block), *_feed_forward(facts, block)]
        found.extend(("blk.%d.%s.weight" % (block, name), dims) for name, dims in parts)
    return found


def _attention(facts: Mapping[str, Any], block: int) -> list[Named]:
    width, heads = facts["embedding_length"], facts["head_count"]
    if "kv_lora_rank" in facts:
        return _compressed(facts)
    gated = RECURRENT.get(facts["architecture"]) == "interval"
    if gated and (block + 1) % facts.get("full_attention_interval", 4):
        inner, groups = facts["ssm_inner_size"], facts["ssm_group_count"] * facts["ssm_state_size"]
        return [
            ("attn_qkv", (width, 2 * groups + inner)),
            ("attn_gate", (width, inner)),
            ("ssm_out", (inner, width)),
        ]
    swa = "_swa" if "key_length_swa" in facts and _of(facts, "sliding_window_pattern", block) else ""
    key = facts.get("key_length" + swa) or width // heads
    cached = _of(facts, "head_count_kv", block)
    return [
        ("attn_q", (width, heads * key * (2 if gated else 1))),
        ("attn_k", (width, cached * key)),
        ("attn_v", (width, cached * (facts.get("value_length" + swa) or key))),
        ("attn_output", (heads * key, width)),
    ]


def _compressed(facts: Mapping[str, Any]) -> list[Named]:
    """Attention with a compressed cache."""
    width, heads, rank, rope = (
        facts[key] for key in ("embedding_length", "head_count", "kv_lora_rank", "rope_dimension_count")
    )
    key, values, queries = facts["key_length_mla"], facts["value_length_mla"], facts.get("q_lora_rank")
    query: list[Named] = [("attn_q", (width, heads * key))]
    if queries:
        query = [("attn_q_a", (width, queries)), ("attn_q_b", (queries, heads * key))]
    return [
        *query,
        ("attn_kv_a_mqa", (width, rank + rope)),
        ("attn_k_b", (key - rope, rank, heads)),
        ("attn_v_b", (rank, values, heads)),
        ("attn_output", (heads * values, width)),
    ]


def _feed_forward(facts: Mapping[str, Any], block: int) -> list[Named]:
    width, experts = facts["embedding_length"], facts.get("expert_count")
    if not experts or block < facts.get("leading_dense_block_count", 0):
        return _gated(width, facts["feed_forward_length"])
    shared = facts.get("expert_shared_feed_forward_length")
    return [
        ("ffn_gate_inp", (width, experts)),
        *_gated(width, facts["expert_feed_forward_length"], "_exps", (experts,)),
        *(_gated(width, shared, "_shexp") if shared else []),
    ]


def _gated(width: int, inner: int, suffix: str = "", count: tuple[int, ...] = ()) -> list[Named]:
    return [
        ("ffn_gate" + suffix, (width, inner, *count)),
        ("ffn_up" + suffix, (width, inner, *count)),
        ("ffn_down" + suffix, (inner, width, *count)),
    ]


def _of(facts: Mapping[str, Any], key: str, block: int) -> Any:
    value = facts[key]
    return value[block % len(value)] if isinstance(value, list) else value
