# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/benchmarks/random_model.py writes files that the collection's own parser reads, the same each time."""

import importlib.util
import struct
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import gguf, memory
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files

SOURCE = Path(__file__).resolve().parents[1] / "benchmarks/random_model.py"
TOKENS = ["<s>", "</s>", *map(chr, range(33, 33 + 62))]
TOKENIZER = [
    ("tokenizer.ggml.model", gguf_files.STRING, "gpt2"),
    ("tokenizer.ggml.tokens", gguf_files.ARRAY, (gguf_files.STRING, TOKENS)),
    ("tokenizer.ggml.token_type", gguf_files.ARRAY, (gguf_files.I32, [1] * len(TOKENS))),
    ("tokenizer.ggml.bos_token_id", gguf_files.U32, 0),
    ("tokenizer.ggml.add_bos_token", gguf_files.BOOL, False),
]
BLOCKS = {"F16": (1, 2), "Q8_0": (32, 34), "Q4_0": (32, 18)}


def load():
    spec = importlib.util.spec_from_file_location("random_model", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


random_model = load()
# More rows than random_model repeats.
SHAPE = random_model.Shape(layers=2, embedding=64, feed_forward=320, heads=4, kv_heads=2, tied=True)
UNTIED = SHAPE._replace(tied=False)


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "tokenizer.gguf"
    other = [("general.name", gguf_files.STRING, "other"), ("llama.block_count", gguf_files.U32, 9)]
    path.write_bytes(gguf_files.file_bytes(other[:1] + TOKENIZER + other[1:], [("token_embd.weight", (64, 4), 1)]))
    return path


def written(tokenizer, kind, shape=SHAPE):
    path = tokenizer.parent / "model.gguf"
    random_model.write(tokenizer, path, shape, kind)
    return path.read_bytes(), gguf.read_path(str(path))


@pytest.mark.parametrize("shape", [SHAPE, UNTIED], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", BLOCKS)
def test_model_has_the_tensors_of_its_shape(tokenizer, kind, shape):
    data, header = written(tokenizer, kind, shape)
    assert len(data) == header.expected_size
    assert len(header.tensors) == 2 + 9 * 2 + (not shape.tied)
    of = {tensor.name: tensor for tensor in header.tensors}
    assert of["blk.1.ffn_down.weight"].dims == (320, 64)
    assert of["blk.1.attn_k.weight"].dims == (64, 32)
    assert {tensor.type for tensor in header.tensors} == {"F32", kind}
    block, size = BLOCKS[kind]
    layer = (64 * (64 + 32 + 32 + 64) + 3 * 64 * 320) // block * size + 2 * 64 * 4
    read = memory.read_shape(header)
    assert read.block_bytes == [layer, layer]
    assert (read.architecture, read.n_vocab, read.n_embd, read.n_ff) == ("llama", 64, 64, 320)
    assert (read.n_head, read.n_head_kv, read.context_length, read.tied) == ([4, 4], [2, 2], 32768, shape.tied)


@pytest.mark.parametrize("kind", BLOCKS)
def test_two_writes_are_equal(tokenizer, kind):
    first, _header = written(tokenizer, kind)
    second, _header = written(tokenizer, kind)
    assert first == second


def test_tokenizer_is_copied_byte_for_byte(tokenizer):
    data, header = written(tokenizer, "Q8_0")
    copied = b"".join(
        gguf_files.text(key) + struct.pack("<I", kind) + gguf_files.value_bytes(kind, value)
        for key, kind, value in TOKENIZER
    )
    assert copied in data
    # Nothing else of the source.
    assert "general.name" not in header.metadata and header.metadata["llama.block_count"] == 2
