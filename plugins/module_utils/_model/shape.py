# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a model's header that decide how much memory its layers need.

Names are as in llama.cpp's hparams. The sources are llama-hparams.cpp and the loaders of the architectures
(load_hparams) of b7772 and b11434.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from .._text import Refusal
from .architectures import RECURRENT, SWA, WITHOUT_CACHE
from .describe import check_model
from .gguf import Header, Tensor, shown
from .tensor_mode import divided


class Mla(NamedTuple):
    """A compressed cache."""

    rank: int  # kv_lora_rank
    rope: int  # rotated weights of a key
    head_k: int  # key_length_mla


class Shape(NamedTuple):
    """A model as its memory sees it; lists have an item for each block."""

    architecture: str
    name: str | None
    block_count: int
    context_length: int
    rope_scaling: bool  # the header scales positions beyond those trained on
    block_bytes: list[int]  # of the block's tensors
    input_bytes: int  # the tensors that stay with the head's CPU
    output_bytes: int  # of the device with the output layer, with the embedding if it is tied
    tied: bool
    shared_bytes: int  # of output_bytes, those that are the input's where both lie in main memory
    n_embd: int
    n_vocab: int
    n_head: list[int]
    n_head_kv: list[int]
    head_k: list[int]  # weights of one head's key
    head_v: list[int]
    n_ff: int  # width of the widest dense feed-forward, 0 without one
    ffn_parts: int  # how many tensors of that width are alive at once
    fused_ffn: bool  # gate and up are one tensor
    n_expert: int
    n_expert_used: int
    n_ff_exp: int  # width of one expert, 0 without experts
    swa_window: int  # tokens, 0 without a sliding window
    swa_layers: list[bool]
    mla: Mla | None
    recurrent: list[int]  # bytes of constant state per sequence
    expert_bytes: list[int]  # of block_bytes, the experts' tensors
    expert_copy: int  # bytes of a device that computes experts that lie elsewhere, see _experts()
    cpu_moe: int = 0  # how many of the first blocks have their experts in the head's main memory
    draft: Shape | None = None  # of a small model that lies beside it and drafts for it
    whole_bytes: int = 0  # of all block_bytes, those that --split-mode tensor has on each device
    largest: int = 0  # bytes of the largest tensor on devices that is no expert's, 0 if not known
    largest_expert: int = 0  # of the largest one of experts
    left: Shape | None = None  # the first blocks, where they lie in the head's main memory; the others are counted

    def as_dict(self) -> dict[str, Any]:
        """A dict for JSON."""
        return dict(self._asdict(), mla=list(self.mla) if self.mla else None)

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Shape:
        """The Shape that as_dict() made the dict of."""
        return cls(**dict(facts, mla=Mla(*facts["mla"]) if facts["mla"] else None))

    def keeping(self, blocks: int) -> Shape:
        """The same model with the experts of its first blocks in the head's main memory, as --n-cpu-moe has it."""
        kept = self.expert_bytes[:blocks]
        return self._replace(
            block_bytes=[size - own for size, own in zip(self.block_bytes, kept)] + self.block_bytes[blocks:],
            input_bytes=self.input_bytes + sum(kept),
            expert_bytes=[0] * len(kept) + self.expert_bytes[blocks:],
            cpu_moe=max(self.cpu_moe, len(kept)),
        )


_INTERVAL = 4  # qwen3next and its kin attend in every fourth layer, unless the header says otherwise

# Keys of caches that are neither: lightning indexers, linear attention with states of its own, layers that share a
# cache.
_UNKNOWN_CACHES = (
    "attention.indexer.head_count",
    "attention.shared_kv_layers",
    "kda.head_dim",
    "wkv.head_size",
)

ARCHITECTURE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
MAX_BLOCKS = 512  # LLAMA_MAX_LAYERS
_MAX_COUNT = (1 << 32) - 1  # every count of llama.cpp's hparams is of 32 bits
_BLOCK = re.compile(r"^blk\.([0-9]+)\.")
_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")  # LLM_FFN_EXPS_REGEX
_INPUT = re.compile(r"^(token_embd|token_embd_norm|token_types|position_embd|per_layer_token_embd)\.")
# The types that llama.cpp's CPU backend lays out anew for its products on some processor (repack.cpp, and for AMX
# amx/common.h): a tied embedding of them is there twice.
_REPACKED = {"Q1_0", "Q2_K", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "IQ4_NL", "IQ4_XS", "MXFP4"}
_PADDING = 128  # bytes; the largest alignment of a buffer (CUDA), a CPU's is 32


def _name(value: Any) -> str | None:
    """A model's name that is safe to print, None for any other."""
    return value if isinstance(value, str) and len(value) <= 200 and value.isprintable() else None


def _padded(tensor: Tensor) -> int:
    return tensor.nbytes + -tensor.nbytes % _PADDING


class _Keys:
    """The values of one architecture's keys."""

    def __init__(self, metadata: dict[str, Any], architecture: str) -> None:
        self.metadata, self.architecture = metadata, architecture

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def number(self, key: str, default: int | None = None) -> int:
        """A count that every block shares; Refusal without it and without a default."""
        value = self.get(key, default)
        if isinstance(value, list):
            value = max(value) if value else default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_COUNT:
            raise Refusal(
                "architecture %s: %s.%s is %s, a count is needed: use a file that a current llama.cpp converted"
                % (self.architecture, self.architecture, key, "missing" if value is None else shown(value))
            )
        return value

    def per_block(self, key: str, count: int, default: int | None = None) -> list[int]:
        """[count of each block]: the header has one number for all or an array."""
        value = self.get(key)
        if (
            isinstance(value, list)
            and len(value) >= count
            and all(isinstance(item, int) and 0 <= item <= _MAX_COUNT for item in value)
        ):
            return [int(item) for item in value[:count]]
        return [self.number(key, default)] * count


def _swa_layers(keys: _Keys, count: int) -> tuple[int, list[bool]]:
    """-> (window in tokens, [bool per block])"""
    rule = SWA.get(keys.architecture)
    pattern = keys.get("attention.sliding_window_pattern")
    window = keys.number("attention.sliding_window", rule.window if rule else 0)
    if not window:
        return 0, [False] * count
    if isinstance(pattern, list):
        if len(pattern) < count:
            raise Refusal(
                "architecture %s: its sliding window pattern names %d layers, %d are needed: use a file that a current "
                "llama.cpp converted" % (keys.architecture, len(pattern), count)
            )
        return window, [bool(item) for item in pattern[:count]]
    if rule is None:
        return 0, [False] * count
    if rule.dense_first:
        return window, [bool(block % rule.period) for block in range(count)]
    return window, [bool((block + 1) % rule.period) for block in range(count)]


def _mla(keys: _Keys) -> Mla | None:
    rank, key = keys.number("attention.kv_lora_rank", 0), keys.number("attention.key_length_mla", 0)
    return Mla(rank, keys.number("rope.dimension_count"), key) if rank and key else None


def _recurrent(keys: _Keys, count: int, n_embd: int, n_head_kv: list[int]) -> tuple[list[int], list[int]]:
    """-> ([bytes of constant state per sequence, per block], [heads of the cache per block]); llama_hparams::n_embd_r
    and n_embd_s, kept in F32"""
    kind = RECURRENT.get(keys.architecture)
    if kind is None:
        if keys.get("ssm.state_size") is not None or keys.get("shortconv.l_cache") is not None:
            raise _unknown(keys, "ssm.state_size")
        return [0] * count, n_head_kv
    if keys.get("shortconv.l_cache"):
        weights = n_embd * (keys.number("shortconv.l_cache") - 1)
    else:
        inner, state = keys.number("ssm.inner_size"), keys.number("ssm.state_size")
        weights = (
            max(keys.number("ssm.conv_kernel") - 1, 0) * (inner + 2 * keys.number("ssm.group_count", 0) * state)
            + state * inner
        )
    n_ff = keys.per_block("feed_forward_length", count, 0)
    interval = keys.number("full_attention_interval", _INTERVAL) or 1
    states, heads = [], []
    for block in range(count):
        recurrent = {
            "all": True,
            "beside": True,
            "interval": bool((block + 1) % interval),
            "without heads": not n_head_kv[block],
            "without heads and feed-forward": not (n_head_kv[block] or n_ff[block]),
        }[kind]
        states.append(4 * weights if recurrent else 0)
        heads.append(0 if recurrent and kind != "beside" else n_head_kv[block])
    return states, heads


def _unknown(keys: _Keys, key: str) -> Refusal:
    return Refusal(
        "architecture %s: %s.%s seen, a cache of keys and values or a Mamba state is needed to tell its memory: give "
        "tensor_split by node, and try it" % (keys.architecture, keys.architecture, key)
    )


def _tensors(headers: list[Header], count: int) -> tuple[list[int], int, int, dict[str, Tensor]]:
    """-> (bytes per block, bytes of the input, bytes of the output, {name: Tensor})"""
    blocks, entry, output = [0] * count, 0, 0
    named: dict[str, Tensor] = {}
    for tensor in (tensor for header in headers for tensor in header.tensors):
        named[tensor.name] = tensor
        block = _BLOCK.match(tensor.name)
        if block and int(block.group(1)) < count:
            blocks[int(block.group(1))] += _padded(tensor)
        elif _INPUT.match(tensor.name):
            entry += _padded(tensor)
        else:
            output += _padded(tensor)
    return blocks, entry, output, named


def _largest(tensors: Iterable[Tensor]) -> int:
    return max((tensor.nbytes for tensor in tensors), default=0)


def _experts(named: dict[str, Tensor], count: int) -> tuple[list[int], int]:
    """-> (bytes of each block's experts, bytes of a device that computes experts that lie elsewhere)

    The weights of one product are copied there at a time, and the next ones of the same size take their place; larger
    ones, as down is in many quants, lie beside them.
    """
    found: list[list[int]] = [[] for _block in range(count)]
    for name, tensor in named.items():
        block = _BLOCK.match(name)
        if block and int(block.group(1)) < count and _EXPERTS.search(name):
            found[int(block.group(1))].append(_padded(tensor))
    copies = [0]
    for sizes in found:
        widest = sorted(set(sizes))[-2:]
        # Biases are no products: far smaller.
        copies.append(sum(size for size in widest if 2 * size >= widest[-1]))
    return [sum(sizes) for sizes in found], max(copies)


def _feed_forward(named: dict[str, Tensor], count: int) -> tuple[int, int, bool, int]:
    """-> (width of the widest dense feed-forward, tensors of it alive at once, whether gate and up are one, width of an
    expert)"""
    n_ff, parts, fused, n_ff_exp = 0, 0, False, 0
    for block in range(count):
        down, up = named.get("blk.%d.ffn_down.weight" % block), named.get("blk.%d.ffn_up.weight" % block)
        if down and up and down.dims[0] > n_ff:
            n_ff = down.dims[0]
            fused = up.dims[-1] == 2 * n_ff
            parts = 3 if fused or "blk.%d.ffn_gate.weight" % block in named else 2
        expert = named.get("blk.%d.ffn_down_exps.weight" % block)
        if expert:
            n_ff_exp = max(n_ff_exp, expert.dims[0])
    return n_ff, parts, fused, n_ff_exp


def read_shape(header: Header | list[Header]) -> Shape:
    """-> Shape of a model.

    header: of gguf, or the list of its shards' headers in order. Raises Refusal where the memory cannot be known.
    """
    headers = header if isinstance(header, list) else [header]
    metadata = headers[0].metadata
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not ARCHITECTURE.match(architecture):
        seen = "missing" if architecture is None else shown(architecture)
        raise Refusal(f"header: general.architecture is {seen}, its name is needed: give the first shard of the model")
    check_model(metadata)
    keys = _Keys(metadata, architecture)
    count = keys.number("block_count")
    if not 1 <= count <= MAX_BLOCKS:
        raise Refusal(
            "architecture %s: %s.block_count is %d, 1 to %d are allowed: not a usable header, use another file"
            % (architecture, architecture, count, MAX_BLOCKS)
        )
    for key in _UNKNOWN_CACHES:
        if keys.get(key):
            raise _unknown(keys, key)
    blocks, entry, output, named = _tensors(headers, count)
    # Blocks that predict further tokens: counted like others, and not loaded.
    skipped = keys.number("nextn_predict_layers", 0)
    if skipped >= count:
        raise Refusal(
            "architecture %s: %s.nextn_predict_layers is %d of %d blocks, fewer are needed: not a usable header, use "
            "another file" % (architecture, architecture, skipped, count)
        )
    if "token_embd.weight" not in named or not all(blocks[: count - skipped]):
        raise Refusal(
            "architecture %s: tensors of the embedding or of a block are missing, all are needed: give all shards of "
            "the model in order" % architecture
        )
    blocks[count - skipped :] = [0] * skipped
    cached = architecture not in WITHOUT_CACHE
    tied = cached and "output.weight" not in named
    shared = 0
    if tied:
        output += _padded(named["token_embd.weight"])
        shared = 0 if named["token_embd.weight"].type in _REPACKED else _padded(named["token_embd.weight"])
    n_embd = keys.number("embedding_length")
    n_head = keys.per_block("attention.head_count", count, 0)
    head = n_embd // max(n_head) if max(n_head) else 0
    window, swa_layers = _swa_layers(keys, count)
    n_head_kv = keys.per_block("attention.head_count_kv", count, max(n_head))
    recurrent, n_head_kv = _recurrent(keys, count, n_embd, n_head_kv)
    n_head_kv = n_head_kv[: count - skipped] + [0] * skipped if cached else [0] * count
    n_ff, parts, fused, n_ff_exp = _feed_forward(named, count)
    expert_bytes, expert_copy = _experts(named, count - skipped)
    head_k, head_v = keys.number("attention.key_length", head), keys.number("attention.value_length", head)
    swa_k, swa_v = keys.number("attention.key_length_swa", head_k), keys.number("attention.value_length_swa", head_v)
    return Shape(
        architecture=architecture,
        name=_name(metadata.get("general.name")),
        block_count=count,
        context_length=keys.number("context_length"),
        rope_scaling=keys.get("rope.scaling.type", "none") != "none" or "rope_factors_long.weight" in named,
        block_bytes=blocks,
        input_bytes=entry,
        output_bytes=output,
        tied=tied,
        shared_bytes=shared,
        n_embd=n_embd,
        n_vocab=named["token_embd.weight"].dims[-1],
        n_head=n_head,
        n_head_kv=n_head_kv,
        head_k=[swa_k if swa else head_k for swa in swa_layers],
        head_v=[swa_v if swa else head_v for swa in swa_layers],
        n_ff=n_ff,
        ffn_parts=parts,
        fused_ffn=fused,
        n_expert=keys.number("expert_count", 0),
        n_expert_used=keys.number("expert_used_count", 0),
        n_ff_exp=n_ff_exp,
        swa_window=window,
        swa_layers=swa_layers,
        mla=_mla(keys),
        recurrent=recurrent,
        expert_bytes=expert_bytes + [0] * skipped,
        expert_copy=expert_copy,
        whole_bytes=sum(blocks) - sum(map(_padded, divided(named, count - skipped))),
        largest=_largest(
            one for name, one in named.items() if not _EXPERTS.search(name) and (tied or not _INPUT.match(name))
        ),
        largest_expert=_largest(one for name, one in named.items() if _EXPERTS.search(name)),
    )
