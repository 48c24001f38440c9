# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a model's header decides how much memory its layers need.

Names are those of llama.cpp's hparams. The sources are llama-hparams.cpp and the loaders of the architectures (load_hparams) of
b7772 and b11434.
"""

import re
from collections import namedtuple

Shape = namedtuple(
    "Shape",
    "architecture name block_count context_length rope_scaling block_bytes input_bytes output_bytes tied n_embd n_vocab n_head n_head_kv head_k head_v"
    " n_ff n_expert n_expert_used n_ff_exp swa_window swa_layers mla recurrent",
)
"""block_bytes: [bytes of each block's tensors]; input_bytes: the tensors that stay with the head's CPU; output_bytes: those of the
device with the output layer, the embedding too where it is tied; n_head, n_head_kv: [per block]; head_k, head_v: weights of one head's key
and value; swa_window: tokens, 0 without a sliding window; swa_layers: [bool per block]; mla: None or Mla; recurrent: [bytes of constant state per
sequence, per block]; rope_scaling: whether the header scales positions beyond those it was trained on."""

Mla = namedtuple("Mla", "rank rope head_k")
"""rank: kv_lora_rank; rope: rotated weights of a key; head_k: key_length_mla."""

Swa = namedtuple("Swa", "period window dense_first")
"""period: one layer in so many attends to everything; window: tokens where the header names none."""

# The architectures whose caches have a sliding window. The others keep the whole context, whatever their header says of a window.
SWA = {
    "afmoe": Swa(4, 0, False),
    "cohere2": Swa(4, 0, False),
    "exaone4": Swa(4, 4096, False),
    "gemma2": Swa(2, 4096, False),
    "gemma3": Swa(6, 0, False),
    "gemma3n": Swa(5, 0, False),
    "gpt-oss": Swa(2, 0, False),
    "llama4": Swa(4, 8192, False),
    "olmo2": Swa(4, 0, False),
    "smallthinker": Swa(4, 4096, True),
}

_BLOCK = re.compile(r"^blk\.([0-9]+)\.")
_INPUT = re.compile(r"^(token_embd|token_embd_norm|token_types|position_embd|per_layer_token_embd)\.")
_PADDING = 128  # bytes; the largest alignment of a buffer (CUDA), a CPU's is 32


class ShapeError(Exception):
    """One sentence: the architecture, what its memory needs to be told, the next step."""


def _padded(tensor):
    return tensor.nbytes + -tensor.nbytes % _PADDING


class _Keys(object):
    """The values of one architecture's keys."""

    def __init__(self, metadata, architecture):
        self.metadata, self.architecture = metadata, architecture

    def get(self, key, default=None):
        return self.metadata.get("%s.%s" % (self.architecture, key), default)

    def number(self, key, default=None):
        """A count that every block shares; ShapeError when there is none and no default."""
        value = self.get(key, default)
        if isinstance(value, list):
            value = max(value) if value else default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ShapeError(
                "architecture %s: the header has no usable %s.%s, which its memory depends on: use a file of a current llama.cpp"
                % (self.architecture, self.architecture, key)
            )
        return value

    def per_block(self, key, count, default=None):
        """[count of each block]: the header has one number for all or an array."""
        value = self.get(key)
        if isinstance(value, list) and len(value) >= count and all(isinstance(item, int) and item >= 0 for item in value):
            return [int(item) for item in value[:count]]
        return [self.number(key, default)] * count


def _swa_layers(keys, count):
    """-> (window in tokens, [bool per block])"""
    rule = SWA.get(keys.architecture)
    pattern = keys.get("attention.sliding_window_pattern")
    window = keys.number("attention.sliding_window", rule.window if rule else 0)
    if not window:
        return 0, [False] * count
    if isinstance(pattern, list):
        if len(pattern) < count:
            raise ShapeError(
                "architecture %s: its sliding window pattern names %d layers, %d are needed: fetch the header again" % (keys.architecture, len(pattern), count)
            )
        return window, [bool(item) for item in pattern[:count]]
    if rule is None:
        return 0, [False] * count
    if rule.dense_first:
        return window, [block % rule.period != 0 for block in range(count)]
    return window, [block % rule.period < rule.period - 1 for block in range(count)]


def _mla(keys):
    rank = keys.get("attention.kv_lora_rank")
    if not rank or not keys.get("attention.key_length_mla"):
        return None
    return Mla(rank, keys.number("rope.dimension_count"), keys.number("attention.key_length_mla"))


def read_shape(header):
    """-> Shape of a model.

    header: Header of _gguf, or the list of its shards' headers in order. Raises ShapeError for an architecture whose memory cannot be told.
    """
    headers = header if isinstance(header, list) else [header]
    metadata = headers[0].metadata
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ShapeError("the header has no general.architecture, which the memory depends on: give the first shard of the model")
    keys = _Keys(metadata, architecture)
    count = keys.number("block_count")
    for key in ("attention.indexer.head_count", "ssm.state_size", "ssm.conv_kernel", "wkv.head_size"):
        if keys.get(key) is not None:
            raise ShapeError(
                "architecture %s: its cache (%s.%s) is not among those that can be planned: give tensor_split by node and check with llama-fit-params"
                % (architecture, architecture, key)
            )
    blocks, entry, output, dims = [0] * count, 0, 0, {}
    for tensor in (tensor for part in headers for tensor in part.tensors):
        dims[tensor.name] = tensor.dims
        block = _BLOCK.match(tensor.name)
        if block and int(block.group(1)) < count:
            blocks[int(block.group(1))] += _padded(tensor)
        elif _INPUT.match(tensor.name):
            entry += _padded(tensor)
        else:
            output += _padded(tensor)
    if "token_embd.weight" not in dims:
        raise ShapeError("architecture %s: the header has no tensor token_embd.weight: give all shards of the model" % architecture)
    tied = "output.weight" not in dims
    if tied:
        output += next(_padded(tensor) for part in headers for tensor in part.tensors if tensor.name == "token_embd.weight")
    n_embd = keys.number("embedding_length")
    n_head = keys.per_block("attention.head_count", count)
    n_head_kv = keys.per_block("attention.head_count_kv", count, max(n_head))
    head = n_embd // max(n_head) if max(n_head) else 0
    window, swa_layers = _swa_layers(keys, count)
    scaling = keys.get("rope.scaling.type")
    return Shape(
        architecture=architecture,
        name=metadata.get("general.name"),
        block_count=count,
        context_length=keys.number("context_length"),
        rope_scaling=scaling not in (None, "none") or any("rope_factors_long" in name for name in dims),
        block_bytes=blocks,
        input_bytes=entry,
        output_bytes=output,
        tied=tied,
        n_embd=n_embd,
        n_vocab=dims["token_embd.weight"][1],
        n_head=n_head,
        n_head_kv=n_head_kv,
        head_k=keys.number("attention.key_length", head),
        head_v=keys.number("attention.value_length", head),
        n_ff=keys.number("feed_forward_length", 0),
        n_expert=keys.number("expert_count", 0),
        n_expert_used=keys.number("expert_used_count", 0),
        n_ff_exp=keys.number("expert_feed_forward_length", 0),
        swa_window=window,
        swa_layers=swa_layers,
        mla=_mla(keys),
        recurrent=[0] * count,
    )
