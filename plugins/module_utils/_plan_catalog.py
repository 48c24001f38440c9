# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of a model estimated from the catalog, for a plan where no header can be had. Private to the collection."""

from ._gguf import Header, Tensor
from ._memory import read_shape

# key of a model's `header` in llama_models -> (what a GGUF header calls it after its architecture, whether it has to be there).
HEADER_KEYS = {
    "architecture": (None, True),
    "block_count": ("block_count", True),
    "context_length": ("context_length", False),
    "embedding_length": ("embedding_length", True),
    "feed_forward_length": ("feed_forward_length", True),
    "head_count": ("attention.head_count", True),
    "head_count_kv": ("attention.head_count_kv", True),
    "key_length": ("attention.key_length", False),
    "value_length": ("attention.value_length", False),
    "vocab_size": (None, True),
}


def estimate(facts, size):
    """Shape of a dense model of ``size`` bytes: its blocks are taken as alike, embedding and output layer as of the mean width.

    facts: a model's `header` in llama_models. Raises ShapeError where that is not enough.
    """
    architecture = facts["architecture"]
    metadata = {"%s.%s" % (architecture, HEADER_KEYS[key][0]): value for key, value in facts.items() if HEADER_KEYS[key][0]}
    metadata.setdefault("%s.context_length" % architecture, 0)
    metadata["general.architecture"] = architecture
    width, tokens, blocks = facts["embedding_length"], facts["vocab_size"], facts["block_count"]
    table = int(size * width * tokens / float(facts_weights(facts)))
    block = (size - 2 * table) // blocks
    tensors = [Tensor("token_embd.weight", (width, tokens), "F32", 0, table), Tensor("output.weight", (width, tokens), "F32", 0, table)]
    tensors += [Tensor("blk.%d.weight" % number, (block,), "F32", 0, block) for number in range(blocks)]
    return read_shape(Header(3, metadata, {}, tensors, 0, 32, 0, size, size))


def facts_weights(facts):
    """Weights of a dense model of these dimensions, embedding and output layer included."""
    width, heads = facts["embedding_length"], facts["head_count"]
    head = facts.get("key_length") or width // heads
    attention = 2 * width * head * (heads + facts["head_count_kv"])
    return facts["block_count"] * (attention + 3 * width * facts["feed_forward_length"]) + 2 * width * facts["vocab_size"]
