# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/benchmarks/random_model.py writes files that the collection's own parser reads, the same each time."""

import importlib.util
import math
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


def weights(data, header, name):
    """The weights of a tensor as numbers."""
    (tensor,) = [tensor for tensor in header.tensors if tensor.name == name]
    start = header.data_offset + tensor.offset
    of = data[start : start + tensor.nbytes]
    if tensor.type == "F16":
        return [value for (value,) in struct.iter_unpack("<e", of)]
    if tensor.type == "Q8_0":
        return [block[0] * value for block in struct.iter_unpack("<e32b", of) for value in block[1:]]
    return [
        block[0] * (value - 8)
        for block in struct.iter_unpack("<e16B", of)
        for both in block[1:]
        for value in (both & 15, both >> 4)
    ]


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


@pytest.mark.parametrize("kind", BLOCKS)
def test_weights_keep_the_size_of_activations(tokenizer, kind):
    data, header = written(tokenizer, kind)
    for name, columns in (("blk.0.ffn_down.weight", 320), ("blk.1.ffn_up.weight", 64)):
        values = weights(data, header, name)
        assert all(map(math.isfinite, values))
        deviation = math.sqrt(sum(value * value for value in values) / len(values))
        assert deviation * math.sqrt(columns) == pytest.approx(1, abs=0.05)
        assert abs(sum(values) / len(values)) < 0.05 * deviation


def test_f16_tensors_differ_and_norms_are_one(tokenizer):
    data, header = written(tokenizer, "F16")
    found = [
        data[header.data_offset + tensor.offset :][: tensor.nbytes] for tensor in header.tensors if tensor.type == "F16"
    ]
    assert len(set(found)) == len(found)
    (norm,) = [tensor for tensor in header.tensors if tensor.name == "output_norm.weight"]
    assert data[header.data_offset + norm.offset :][: norm.nbytes] == struct.pack("<f", 1) * 64


def test_file_without_tokenizer_is_refused(tmp_path):
    source = tmp_path / "source.gguf"
    source.write_bytes(gguf_files.file_bytes([("general.name", gguf_files.STRING, "other")], []))
    with pytest.raises(SystemExit, match="has no tokenizer"):
        random_model.write(source, tmp_path / "model.gguf", SHAPE)
    source.write_bytes(b"something else")
    with pytest.raises(SystemExit, match="is not a GGUF file"):
        random_model.write(source, tmp_path / "model.gguf", SHAPE)
