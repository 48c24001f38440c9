# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GGUF files for tests, written from the format's description and not with the parser's code."""

import random
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {
    U8: "<B",
    I8: "<b",
    U16: "<H",
    I16: "<h",
    U32: "<I",
    I32: "<i",
    F32: "<f",
    BOOL: "<?",
    U64: "<Q",
    I64: "<q",
    F64: "<d",
}

# id: (block, bytes), a second copy of the table so that a slip in the parser's one shows.
BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36), 10: (256, 84),
    11: (256, 110),
    12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74), 18: (256, 98),
    19: (256, 50),
    20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8),
    28: (1, 8),
    29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18), 42: (64, 18),
}  # fmt: skip


def text(value):
    data = value.encode("utf-8") if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def value_bytes(kind, value):
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        element, items = value
        return struct.pack("<IQ", element, len(items)) + b"".join(value_bytes(element, item) for item in items)
    return struct.pack(PACK[kind], value)


def tensor_bytes(dims, kind):
    block, size = BLOCKS[kind]
    count = 1
    for dim in dims:
        count *= dim
    return count // block * size


def header_bytes(metadata, tensors, version=3, alignment=32):
    """metadata: [(key, kind, value)]; tensors: [(name, dims, type id)] -> the header without padding."""
    out = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(metadata))]
    out += [text(key) + struct.pack("<I", kind) + value_bytes(kind, value) for key, kind, value in metadata]
    offset = 0
    for name, dims, kind in tensors:
        out.append(text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, offset))
        size = tensor_bytes(dims, kind)
        offset += size + -size % alignment
    return b"".join(out)


def file_bytes(metadata, tensors, version=3, alignment=32, seed=1):
    """A whole file with random weights."""
    header = header_bytes(metadata, tensors, version, alignment)
    out = [header, bytes(-len(header) % alignment)]
    source = random.Random(seed)
    for _name, dims, kind in tensors:
        size = tensor_bytes(dims, kind)
        out += [source.getrandbits(8 * size).to_bytes(size, "little") if size else b"", bytes(-size % alignment)]
    return b"".join(out)


def model(megabytes=1, name="test model", seed=1, extra=()):
    """A small llama of about ``megabytes`` MiB of F16 weights."""
    metadata = [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, name),
        ("general.license", STRING, "apache-2.0"),
        ("general.file_type", U32, 1),
        ("llama.block_count", U32, 2),
        ("llama.context_length", U32, 4096),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, ["<s>", "a", "b"])),
        *extra,
    ]
    tensors = [("blk.%d.weight" % number, (1024, 512), 1) for number in range(int(megabytes))]
    return file_bytes(metadata, tensors, seed=seed)


def shards(count=3, seed=1):
    """The files of one model as gguf-split writes them: [bytes]; only the first describes the model."""
    split = [("split.no", U16, 0), ("split.count", U16, count), ("split.tensors.count", I32, count)]
    out = []
    for number in range(count):
        split[0] = ("split.no", U16, number)
        tensor = [("blk.%d.weight" % number, (1024, 512), 1)]
        if number:
            out.append(file_bytes(split, tensor, seed=seed + number))
        else:
            model_keys = [
                ("general.architecture", STRING, "llama"),
                ("general.file_type", U32, 1),
                ("llama.block_count", U32, count),
            ]
            out.append(file_bytes(model_keys + split, tensor, seed=seed))
    return out
