# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a llama model of random weights whose tensors are as large as a real one's.

    random_model.py TOKENIZER.gguf MODEL.gguf [--shape small] [--type F16] [--layers 8]

Needs the packages gguf and numpy. The tokenizer, and with it the size of the vocabulary, is another model's. What the
weights say is nonsense, but always the same nonsense, so answers can be compared. In F16 each tensor has weights of its
own, as a worker's cache tells tensors by what is in them; in the other types all of one shape are the same ones, which
is written as fast as the disk takes it.
"""

import argparse
import functools
from typing import NamedTuple

import gguf
import numpy


class Shape(NamedTuple):
    layers: int
    embedding: int
    feed_forward: int
    heads: int
    kv_heads: int
    tied: bool  # the output layer is the embedding


# small: tensors above the 10 MiB below which a worker caches nothing. The others are Llama 3.1's of that size.
SHAPES = {
    "small": Shape(8, 2048, 5632, 32, 8, True),
    "8b": Shape(32, 4096, 14336, 32, 8, False),
    "70b": Shape(80, 8192, 28672, 64, 8, False),
}
CONTEXT = 32768
# Rows of random numbers, over and over in a quantized tensor.
ROWS = 256


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


def maker(kind):
    """-> function from (rows, columns) to weights as they lie in the file"""
    random = numpy.random.default_rng(1)

    def weights(size):
        return random.standard_normal(size, numpy.float32) / numpy.sqrt(size[1])

    if kind == gguf.GGMLQuantizationType.F16:
        return lambda size: weights(size).astype(numpy.float16)

    @functools.lru_cache(maxsize=None)
    def quantized(size):
        some = gguf.quants.quantize(weights((min(ROWS, size[0]), size[1])), kind)
        return numpy.resize(some, (size[0], some.shape[1]))

    return quantized


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("model")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--type", choices=("F16", "Q8_0", "Q4_0"), default="F16")
    parser.add_argument("--layers", type=int, help="others than the shape has")
    arguments = parser.parse_args()
    shape, kind = SHAPES[arguments.shape], gguf.GGMLQuantizationType[arguments.type]
    shape = shape._replace(layers=arguments.layers or shape.layers)
    source = gguf.GGUFReader(arguments.tokenizer)
    writer = gguf.GGUFWriter(arguments.model, "llama")
    for field in source.fields.values():
        if field.name.startswith("tokenizer."):
            of = field.types[0]
            writer.add_key_value(
                field.name,
                field.contents(),
                of,
                sub_type=field.types[-1] if of == gguf.GGUFValueType.ARRAY else None,
            )
    vocabulary = len(source.fields["tokenizer.ggml.tokens"].data)
    writer.add_vocab_size(vocabulary)
    writer.add_block_count(shape.layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.embedding)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_file_type(gguf.LlamaFileType["MOSTLY_" + arguments.type])
    make = maker(kind)
    for name, size in tensors(shape, vocabulary):
        if len(size) == 1:
            writer.add_tensor(name, numpy.ones(size, numpy.float32))
        else:
            writer.add_tensor(name, make(size), raw_dtype=None if arguments.type == "F16" else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
