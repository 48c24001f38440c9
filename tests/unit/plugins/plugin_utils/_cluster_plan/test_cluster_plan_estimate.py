# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of a model from its entry in llama_models, beside that from the header of its file."""

from math import prod

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import gguf, memory
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model.tensor_mode import UNSUPPORTED
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.estimate import estimate
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.check_models import (
    HEADER_KEYS,
    header_errors,
)
from ansible_collections.thefermisea.llama_cluster.tests.unit import model_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import FACTS

Q8_0 = 34 / 32
SETTINGS = memory.settings_of(ctx_size=65536, parallel=2, cache_type_k="q8_0", cache_type_v="q8_0", build=11434)


def read(model):
    data = model.header()
    return gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf")


def described(header, **more):
    """The header of a file in llama_models: the keys that `header` may have, as its own header has them."""
    architecture = header.metadata["general.architecture"]
    facts = {
        key: header.metadata["%s.%s" % (architecture, known.gguf)]
        for key, known in HEADER_KEYS.items()
        if known.gguf and "%s.%s" % (architecture, known.gguf) in header.metadata
    }
    return dict(facts, architecture=architecture, vocab_size=header.metadata["%s.vocab_size" % architecture], **more)


@pytest.mark.parametrize(
    ("model", "more", "near"),
    [
        (model_files.qwen3_32b, {}, 0.001),
        (model_files.qwen3_235b, {}, 0.001),
        (model_files.gemma3_27b, {"tie_word_embeddings": True}, 0.001),
        # Its layers without a window have no weights of values.
        (model_files.gemma4_31b, {"tie_word_embeddings": True}, 0.025),
        (model_files.qwen36_35b, {}, 0.001),
        (model_files.deepseek_v3, {"expert_shared_feed_forward_length": 2048}, 0.001),
    ],
)
def test_it_is_the_shape_of_the_file(model, more, near):
    header = read(model())
    facts = described(header, **more)
    assert header_errors("header", facts) == []
    real = memory.read_shape(header)
    weights = sum(prod(tensor.dims) for tensor in header.tensors)
    found = estimate(facts, int(weights * Q8_0))
    assert memory.kv_bytes(found, SETTINGS) == memory.kv_bytes(real, SETTINGS)
    sizes = {"block_bytes", "expert_bytes", "input_bytes", "output_bytes", "expert_copy", "name", "whole_bytes"}
    sizes |= {"largest", "largest_expert"}
    assert [getattr(found, key) for key in found._fields if key not in sizes] == [
        getattr(real, key) for key in real._fields if key not in sizes
    ]
    if real.architecture not in UNSUPPORTED:
        assert abs(found.whole_bytes - real.whole_bytes) < 2 * near * sum(real.block_bytes)
    for block in range(real.block_count):
        own = [tensor for tensor in header.tensors if tensor.name.startswith("blk.%d." % block)]
        experts = sum(prod(tensor.dims) for tensor in own if "_exps.weight" in tensor.name)
        assert found.block_bytes[block] == pytest.approx(sum(prod(tensor.dims) for tensor in own) * Q8_0, rel=near)
        assert found.expert_bytes[block] == pytest.approx(experts * Q8_0, rel=near)
    assert sum(found.block_bytes) + found.input_bytes + found.output_bytes == pytest.approx(
        weights * Q8_0 + (found.input_bytes if found.tied else 0), rel=0.001
    )


def test_mixture_without_experts_is_at_least_q8_0():
    header = read(model_files.deepseek_v3())
    facts = described(header, expert_shared_feed_forward_length=2048)
    wide = estimate(facts, 8 * 10**11)  # wider than Q8_0: all alike
    narrow = estimate(facts, 2 * 10**11)
    q8_0 = estimate(facts, int(sum(prod(tensor.dims) for tensor in header.tensors) * Q8_0))

    def rest(shape):
        return [whole - experts for whole, experts in zip(shape.block_bytes, shape.expert_bytes, strict=True)]

    assert rest(narrow) == pytest.approx(rest(q8_0), rel=0.001)
    assert sum(narrow.block_bytes) + narrow.input_bytes + narrow.output_bytes == pytest.approx(2 * 10**11, rel=0.001)
    assert rest(wide)[0] > 1.1 * rest(q8_0)[0]


def test_an_embedding_model_has_no_output_layer():
    found = estimate(dict(FACTS, architecture="nomic-bert"), 10**9)
    assert (found.output_bytes, sum(found.n_head_kv)) == (0, 0)
