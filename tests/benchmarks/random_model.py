# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a llama model of random weights whose tensors are as large as a real one's.

    random_model.py TOKENIZER.gguf MODEL.gguf [--shape small] [--type F16] [--layers 8]

Needs Python 3.9 and no package. The tokenizer, and with it the size of the vocabulary, is another model's. The answers
are nonsense, but the same nonsense each time, so they can be compared. In F16 each tensor has its own weights, because
a worker's cache recognizes tensors by their content. In the other types all tensors of one shape have the same weights,
which are written at the speed of the disk.
"""

import argparse
import math
import random
import statistics
import struct
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))

from mixture import ALIGNMENT, F32, STRING, U32, Reader, text  # noqa: E402


class Shape(NamedTuple):
    layers: int
    embedding: int
    feed_forward: int
    heads: int
    kv_heads: int
    tied: bool  # the output layer is the embedding


class Kind(NamedTuple):
    """A type of weights. Its blocks are an f16 scale and random bytes; a block of F16 is one weight."""

    tensor: int  # ggml's number of the type
    file: int  # llama.cpp's number of a file of it
    weights: int  # per block
    bytes: int  # per block
    deviation: float  # standard deviation of the weights of a block of scale 1


# small: tensors above the 10 MiB below which a worker caches nothing. The others are Llama 3.1's of that size.
SHAPES = {
    "small": Shape(8, 2048, 5632, 32, 8, True),
    "8b": Shape(32, 4096, 14336, 32, 8, False),
    "70b": Shape(80, 8192, 28672, 64, 8, False),
}
# Quantized weights are uniform: all 256 values of a byte, all 16 of half a byte.
KINDS = {
    "F16": Kind(1, 1, 1, 2, 1.0),
    "Q8_0": Kind(8, 7, 32, 34, math.sqrt((256**2 - 1) / 12)),
    "Q4_0": Kind(2, 2, 32, 18, math.sqrt((16**2 - 1) / 12)),
}
CONTEXT = 32768
# Rows of random numbers that a quantized tensor repeats.
ROWS = 256
# Bytes of F16 that are made at once.
CHUNK = 64 << 10
FLOAT = 6  # the type of a value; F32 is that of a tensor


def tensors(shape, vocabulary):
    """-> name and shape (rows, columns) of every tensor, in the order that llama.cpp's converter writes"""
    width, wide, head = shape.embedding, shape.feed_forward, shape.embedding // shape.heads
    yield "token_embd.weight", (vocabulary, width)
    for layer in range(shape.layers):
        for name, size in (
            ("attn_norm", (width,)),
            ("attn_q", (width, width)),
            ("attn_k", (head * shape.kv_heads, width)),
            ("attn_v", (head * shape.kv_heads, width)),
            ("attn_output", (width, width)),
            ("ffn_norm", (width,)),
            ("ffn_gate", (wide, width)),
            ("ffn_up", (wide, width)),
            ("ffn_down", (width, wide)),
        ):
            yield "blk.%d.%s.weight" % (layer, name), size
    yield "output_norm.weight", (width,)
    if not shape.tied:
        yield "output.weight", (vocabulary, width)


def tokenizer_of(path):
    """-> ([each key tokenizer.* with its value, the bytes of the file], number of tokens)"""
    with open(path, "rb") as stream:
        if stream.read(4) != b"GGUF":
            raise SystemExit("%s is not a GGUF file" % path)
        stream.seek(0)
        keys = {name: raw for name, raw in Reader(stream).keys if name.startswith("tokenizer.")}
    if "tokenizer.ggml.tokens" not in keys:
        raise SystemExit("%s has no tokenizer" % path)
    # An array is two types, the number of its elements and they.
    (vocabulary,) = struct.unpack_from("<Q", keys["tokenizer.ggml.tokens"], 8)
    return [text(name) + raw for name, raw in keys.items()], vocabulary


def entry(key, kind, value):
    """-> a key and its value as a header has them"""
    packed = text(value) if kind == STRING else struct.pack("<f" if kind == FLOAT else "<I", value)
    return text(key) + struct.pack("<I", kind) + packed


def padding(size):
    return bytes(-size % ALIGNMENT)


def nbytes(size, kind):
    """-> bytes of a tensor without its padding"""
    if len(size) == 1:
        return 4 * size[0]
    if size[1] % kind.weights:
        raise ValueError("rows of %d weights, blocks of %d" % (size[1], kind.weights))
    return size[0] * (size[1] // kind.weights) * kind.bytes


def header(shape, kind, tokenizer, vocabulary):
    """-> everything before the weights"""
    entries = [
        entry("general.architecture", STRING, "llama"),
        *tokenizer,
        entry("llama.vocab_size", U32, vocabulary),
        entry("llama.block_count", U32, shape.layers),
        entry("llama.context_length", U32, CONTEXT),
        entry("llama.embedding_length", U32, shape.embedding),
        entry("llama.feed_forward_length", U32, shape.feed_forward),
        entry("llama.attention.head_count", U32, shape.heads),
        entry("llama.attention.head_count_kv", U32, shape.kv_heads),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT, 1e-5),
        entry("llama.rope.freq_base", FLOAT, 10000.0),
        entry("general.file_type", U32, kind.file),
    ]
    described, offset = [], 0
    for name, size in tensors(shape, vocabulary):
        of = F32 if len(size) == 1 else kind.tensor
        # The fastest dimension comes first.
        described.append(text(name) + struct.pack("<I%dQIQ" % len(size), len(size), *reversed(size), of, offset))
        offset += nbytes(size, kind) + len(padding(nbytes(size, kind)))
    start = struct.pack("<4sIQQ", b"GGUF", 3, len(described), len(entries))
    made = b"".join([start, *entries, *described])
    return made + padding(len(made))


def half(value):
    """-> the two bytes of an f16, low byte first"""
    return struct.pack("<e", value)


def maker(kind, columns, source):
    """-> function from a number of bytes to as many bytes of random weights whose standard deviation is
    1/sqrt(columns), so that activations neither vanish nor overflow"""
    scale = 1 / math.sqrt(columns) / kind.deviation
    if kind.weights == 1:
        # The upper byte has sign, exponent and two bits of the mantissa: a random one becomes that of a normal weight.
        normal = statistics.NormalDist(0, scale)
        upper = bytes(half(normal.inv_cdf((number + 0.5) / 256))[1] for number in range(256))
    else:
        # Half of the scales are negative: the mean of the values of a block is not 0.
        upper = bytes(half(scale if number < 128 else -scale)[1] for number in range(256))

    def make(size):
        made = bytearray(source.randbytes(size))
        made[1 :: kind.bytes] = made[1 :: kind.bytes].translate(upper)
        if kind.weights > 1:
            made[:: kind.bytes] = half(scale)[:1] * (size // kind.bytes)
        return made

    return make


def write(tokenizer, model, shape, kind="F16"):
    """Write a model of this Shape and type, a key of KINDS, to the path ``model``; the same bytes each time."""
    kind = KINDS[kind]
    entries, vocabulary = tokenizer_of(tokenizer)
    source = random.Random(1)
    repeated = {}
    with open(model, "wb") as stream:
        stream.write(header(shape, kind, entries, vocabulary))
        for _name, size in tensors(shape, vocabulary):
            left = nbytes(size, kind)
            end = padding(left)
            if len(size) == 1:
                stream.write(struct.pack("<f", 1.0) * size[0])
            elif kind.weights == 1:
                make = maker(kind, size[1], source)
                while left:
                    stream.write(make(min(CHUNK, left)))
                    left -= min(CHUNK, left)
            else:
                if size not in repeated:
                    rows = min(ROWS, size[0])
                    repeated[size] = maker(kind, size[1], source)(left // size[0] * rows)
                some = memoryview(repeated[size])
                while left:
                    left -= stream.write(some[:left])
            stream.write(end)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("model")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--type", choices=KINDS, default="F16")
    parser.add_argument("--layers", type=int, help="number of layers, instead of the shape's")
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    write(
        arguments.tokenizer,
        arguments.model,
        shape._replace(layers=arguments.layers or shape.layers),
        arguments.type,
    )


if __name__ == "__main__":
    main()
