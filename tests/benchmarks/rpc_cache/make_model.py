# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a llama model of random weights whose tensors are as large as a real one's: larger than the 10 MiB below which
a worker caches nothing.

    make_model.py TOKENIZER.gguf MODEL.gguf [--layers 8]

Needs the packages gguf and numpy. The tokenizer is another model's. What the weights say is nonsense, but always the
same nonsense, so answers can be compared.
"""

import argparse

import gguf
import numpy

EMBEDDING, FEED_FORWARD, HEADS, KV_HEADS = 2048, 5632, 32, 8


def tensors(layers, vocabulary):
    """-> name and shape (rows, columns) of every tensor, in the order that llama.cpp's converter writes"""
    head = EMBEDDING // HEADS
    yield "token_embd.weight", (vocabulary, EMBEDDING)
    for layer in range(layers):
        for name, shape in (
            ("attn_norm", (EMBEDDING,)),
            ("attn_q", (EMBEDDING, EMBEDDING)),
            ("attn_k", (head * KV_HEADS, EMBEDDING)),
            ("attn_v", (head * KV_HEADS, EMBEDDING)),
            ("attn_output", (EMBEDDING, EMBEDDING)),
            ("ffn_norm", (EMBEDDING,)),
            ("ffn_gate", (FEED_FORWARD, EMBEDDING)),
            ("ffn_up", (FEED_FORWARD, EMBEDDING)),
            ("ffn_down", (EMBEDDING, FEED_FORWARD)),
        ):
            yield "blk.%d.%s.weight" % (layer, name), shape
    yield "output_norm.weight", (EMBEDDING,)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("model")
    parser.add_argument("--layers", type=int, default=8)
    arguments = parser.parse_args()
    source = gguf.GGUFReader(arguments.tokenizer)
    writer = gguf.GGUFWriter(arguments.model, "llama")
    for field in source.fields.values():
        if field.name.startswith("tokenizer."):
            kind = field.types[0]
            writer.add_key_value(
                field.name,
                field.contents(),
                kind,
                sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None,
            )
    vocabulary = len(source.fields["tokenizer.ggml.tokens"].data)
    writer.add_vocab_size(vocabulary)
    writer.add_block_count(arguments.layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(EMBEDDING)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    random = numpy.random.default_rng(1)
    for name, shape in tensors(arguments.layers, vocabulary):
        if len(shape) == 1:
            writer.add_tensor(name, numpy.ones(shape, numpy.float32))
        else:
            writer.add_tensor(
                name, (random.standard_normal(shape, numpy.float32) / numpy.sqrt(shape[1])).astype(numpy.float16)
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
