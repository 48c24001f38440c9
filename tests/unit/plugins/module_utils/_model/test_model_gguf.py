# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import string
import struct
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import describe, gguf
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files as make
from hypothesis import given, settings
from hypothesis import strategies as st

# Real files to test with: what the lab has fetched, or the folders (separated by colons) that LLAMA_CLUSTER_GGUF names.
CACHE = os.environ.get("LLAMA_CLUSTER_CACHE", os.path.expanduser("~/.cache/llama-cluster"))
FOLDERS = os.environ.get("LLAMA_CLUSTER_GGUF", CACHE + "/files").split(":")
REAL = [path for folder in FOLDERS for path in sorted(Path(folder).rglob("*.gguf"))]


# general.file_type of files that hubs have many of, each with the quantization in its name.
COMMON = [
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
]
COMMON += [
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (25, "IQ4_NL"),
    (30, "IQ4_XS"),
    (32, "BF16"),
]


def parse(data, limit=gguf.MAX_HEADER):
    return gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf", limit)


def one_key():
    """A header up to the type of its only key."""
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + make.text("k")


def refused(data):
    with pytest.raises(Refusal) as caught:
        parse(data)
    assert str(caught.value).startswith("m.gguf: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_type_table_is_one_of_format():
    assert {key: value[1:] for key, value in gguf.TENSOR_TYPES.items()} == make.BLOCKS


@pytest.mark.parametrize("kind", sorted(make.BLOCKS))
@pytest.mark.parametrize("version", [2, 3])
def test_size_is_exact_for_every_tensor_type(kind, version):
    tensors = [("a", (512, 3), kind), ("b", (256,), kind), ("c", (256, 1, 1, 2), kind)]
    data = make.file_bytes([], tensors, version)
    header = parse(data)
    assert header.version == version
    assert header.expected_size == len(data)
    assert [tensor.nbytes for tensor in header.tensors] == [
        make.tensor_bytes(dims, kind) for _name, dims, kind in tensors
    ]
    assert header.data_offset + header.tensors[-1].offset + header.tensors[-1].nbytes == header.minimum_size


@pytest.mark.parametrize("alignment", [1, 32, 64, 4096])
def test_alignment_decides_where_data_starts_and_ends(alignment):
    data = make.file_bytes(
        [("general.alignment", make.U32, alignment)], [("a", (7,), 0), ("b", (33,), 24)], alignment=alignment
    )
    header = parse(data)
    assert (header.alignment, header.data_offset % alignment, header.expected_size) == (alignment, 0, len(data))


def test_metadata_is_kept_without_vocabularies():
    metadata = [
        ("u8", make.U8, 200),
        ("i8", make.I8, -3),
        ("u16", make.U16, 65535),
        ("i16", make.I16, -2),
        ("u32", make.U32, 1 << 31),
        ("i32", make.I32, -1),
        ("f32", make.F32, 0.5),
        ("bool", make.BOOL, True),
        ("u64", make.U64, 1 << 63),
        ("i64", make.I64, -(1 << 62)),
        ("f64", make.F64, 0.1),
        ("text", make.STRING, "Größe"),
        ("heads", make.ARRAY, (make.U32, [8, 0, 8])),
        ("empty", make.ARRAY, (make.STRING, [])),
        ("scores", make.ARRAY, (make.F32, [0.0] * 5000)),
        ("tokens", make.ARRAY, (make.STRING, ["x" * (number % 7) for number in range(5000)])),
        ("last", make.U32, 7),
    ]
    header = parse(make.header_bytes(metadata, []))
    scalars = {key: value for key, kind, value in metadata if kind != make.ARRAY}
    assert header.metadata == dict(scalars, heads=[8, 0, 8])
    assert header.array_lengths == {"heads": 3, "empty": 0, "scores": 5000, "tokens": 5000}


def test_strings_across_window_borders_are_walked_exactly():
    items = ["x" * (number * 37 % 3000) for number in range(3000)]  # 4.5 MB: several windows
    header = parse(make.header_bytes([("tokens", make.ARRAY, (make.STRING, items)), ("after", make.U32, 42)], []))
    assert header.metadata["after"] == 42


def test_describe_names_what_file_is():
    data = make.model(3)
    header = parse(data)
    assert describe.describe([header]) == {
        "architecture": "llama",
        "name": "test model",
        "license": "apache-2.0",
        "quantization": "F16",
        "parameters": 3 * 1024 * 512,
        "block_count": 2,
        "context_length": 4096,
        "tensors": 3,
        "shards": 1,
        "expected_size": len(data),
    }


# The others that llama.h has.
RARE = [
    *((19, "IQ2_XXS"), (20, "IQ2_XS"), (21, "Q2_K_S"), (22, "IQ3_XS"), (23, "IQ3_XXS"), (24, "IQ1_S"), (26, "IQ3_S")),
    *((27, "IQ3_M"), (28, "IQ2_S"), (29, "IQ2_M"), (31, "IQ1_M"), (36, "TQ1_0"), (37, "TQ2_0"), (38, "MXFP4_MOE")),
    *((39, "NVFP4"), (40, "Q1_0"), (1024 + 18, "Q6_K")),
]


@pytest.mark.parametrize(("file_type", "name"), [*COMMON, *RARE])
def test_quantization_is_name_of_file_type(file_type, name):
    assert describe.quantization([parse(make.header_bytes([("general.file_type", make.U32, file_type)], []))]) == name


@pytest.mark.parametrize(
    "file_type", [[], [("general.file_type", make.U32, 999)], [("general.file_type", make.STRING, "Q8_0")]]
)
def test_without_known_file_type_most_bytes_decide(file_type):
    header = parse(make.header_bytes(file_type, [("norm", (4096,), 0), ("a", (4096, 64), 12), ("b", (4096,), 14)]))
    assert describe.quantization([header]) == "Q4_K"


def test_file_without_tensors_ends_with_its_header():
    data = make.header_bytes([("general.architecture", make.STRING, "llama")], [])
    header = parse(data)
    assert header.expected_size == len(data)
    assert describe.size_problem(header, len(data), "m.gguf") is None
    assert describe.size_problem(header, header.data_offset, "m.gguf") is None
    assert describe.quantization([header]) is None


def test_size_problem_allows_missing_last_padding():
    data = make.file_bytes([], [("a", (5,), 24)])
    header = parse(data)
    assert (
        header.expected_size - header.minimum_size,
        describe.size_problem(header, header.minimum_size, "m.gguf"),
    ) == (27, None)
    assert describe.size_problem(
        header, header.minimum_size - 1, "m.gguf"
    ) == "m.gguf: %s bytes present, %s bytes needed by its header: fetch it again" % (
        "{:,}".format(header.minimum_size - 1),
        "{:,}".format(len(data)),
    )
    assert "foreign bytes" in describe.size_problem(header, len(data) + 1, "m.gguf")


def test_truncated_header_says_at_which_byte():
    data = make.model(1)
    assert refused(data[:150]) == "m.gguf: the header is cut at byte 150: fetch it again"


def test_invalid_utf8_is_read_as_by_llama_cpp():
    header = parse(make.header_bytes([(b"k\xff", make.U8, 1)], []))
    assert header.metadata == {"k\\xff": 1}


@pytest.mark.parametrize(
    ("kind", "words"),
    [(133, "of a fork"), (146, "of a fork"), (399, "of a fork"), (43, "or a newer release"), (33, "use the quant Q4_0")]
    + [(38, "use the quant IQ4_NL"), (4, "use another quant")],
)
def test_useless_advice_is_left_out(kind, words):
    data = make.header_bytes([], [("a", (32,), 0)])[:-12] + struct.pack("<IQ", kind, 0)
    assert words in refused(data)
    assert "again" not in refused(data) and "damaged" not in refused(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html>", "starts with b'<!DO'"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(16), "big-endian"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(16), "version 1, 2 or 3 is needed"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 62, 0), "announces"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 62), "announces"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 63), "metadata key"),
        (make.header_bytes([("", make.U8, 1)], []), "empty"),
        (make.header_bytes([("k", make.U8, 1), ("k", make.U8, 1)], []), "twice"),
        (make.header_bytes([("k", make.U8, 1)], [])[:-5] + struct.pack("<I", 99) + b"x", "type 99"),
        (one_key() + struct.pack("<IIQ", 9, 9, 1), "has arrays in it"),
        (one_key() + struct.pack("<IIQ", 9, 8, 1 << 40), "strings"),
        (one_key() + struct.pack("<IIQ", 9, 12, 1 << 61), "larger"),
        (one_key() + struct.pack("<IQ", 8, 1 << 40), "at most"),
        (make.header_bytes([("general.alignment", make.U32, 0)], []), "power of two"),
        (make.header_bytes([("general.alignment", make.U32, 48)], []), "power of two"),
        (make.header_bytes([("general.alignment", make.BOOL, True)], []), "power of two"),
        (make.header_bytes([], [("a", (32,), 0), ("a", (32,), 0)]), "twice"),
        (make.header_bytes([], [("a" * 64, (32,), 0)]), "at most 63 bytes"),
        (make.header_bytes([], [("a", (33,), 8)]), "multiple of 32"),
        (make.header_bytes([], [("a", (32, 0), 0)]), "32x0"),
        (make.header_bytes([], [("a", (1 << 62, 4), 24)]), "dimensions"),
        (make.header_bytes([], [("a", (32,), 0)])[:-12] + struct.pack("<IQ", 5, 0), "type Q4_3"),
        (make.header_bytes([], [("a", (32,), 0)])[:-8] + struct.pack("<Q", 32), "starts at 32"),
        (make.header_bytes([("\x1b[31mred", make.U8, 1), ("\x1b[31mred", make.U8, 1)], []), "\\x1b[31mred"),
    ],
)
def test_hostile_headers_are_refused_in_sentence(data, words):
    assert words in refused(data)


def test_five_dimensions_are_refused():
    assert "5 dimensions" in refused(make.header_bytes([], [("a", (32, 1, 1, 1, 1), 0)]))


def test_giant_array_of_empty_strings_is_refused():
    start = one_key() + struct.pack("<IIQ", 9, 8, 7 << 20)

    def read(offset, length):
        return (start[offset:] + bytes(length))[:length]

    with pytest.raises(Refusal, match="7,340,032 strings"):
        gguf.read_header(read, "m.gguf")


@pytest.mark.parametrize("kind", ["tensors", "metadata keys"])
def test_announced_counts_fit_the_file(kind):
    """The shortest descriptions and keys: names of one letter, one dimension, one byte."""
    names = string.ascii_letters[:40]
    metadata, tensors = (
        ([], [(name, (1,), 24) for name in names])
        if kind == "tensors"
        else ([(name, make.U8, 1) for name in names], [])
    )
    data = make.header_bytes(metadata, tensors)
    parse(data, limit=len(data))
    with pytest.raises(Refusal, match="announces 41 " + kind):
        parse(data[:8] + struct.pack("<QQ", 41 if tensors else 0, 41 if metadata else 0) + data[24:], limit=len(data))


def test_no_more_than_limit_is_read():
    data = make.header_bytes([("tokens", make.ARRAY, (make.STRING, ["x" * 1000] * 3000))], [])
    asked = []

    def read(offset, length):
        asked.append(offset + length)
        return data[offset : offset + length]

    with pytest.raises(Refusal, match="larger than 2,000,000 bytes"):
        gguf.read_header(read, "m.gguf", 2000000)
    assert max(asked) <= 2000000


def test_shards_are_one_model():
    parts = make.shards(3)
    headers = [parse(part) for part in parts]
    names = describe.shard_names("m-00001-of-00003.gguf")
    assert names == ["m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"]
    describe.check_shards(headers, names)
    facts = describe.describe(headers)
    assert (facts["shards"], facts["tensors"], facts["expected_size"], facts["quantization"]) == (
        3,
        3,
        sum(map(len, parts)),
        "F16",
    )


def test_wrong_shards_are_named():
    headers = [parse(part) for part in make.shards(3)]
    names = describe.shard_names("m-00001-of-00003.gguf")
    with pytest.raises(Refusal, match="00002-of-00003.gguf: its header says shard 2, place 2 needs shard 1"):
        describe.check_shards([headers[0], headers[2], headers[1]], names)
    with pytest.raises(Refusal, match="names 3 shards, 1 given"):
        describe.check_shards(headers[:1], names[:1])
    other = parse(
        make.file_bytes(
            [("split.no", make.U16, 1), ("split.count", make.U16, 3), ("split.tensors.count", make.I32, 9)],
            [("a", (32,), 0)],
        )
    )
    with pytest.raises(Refusal, match="a shard of another model"):
        describe.check_shards([headers[0], other, headers[2]], names)


def test_names_that_are_no_shards():
    assert describe.shard_name("m.gguf") is None
    assert describe.shard_name("m-1-of-2.gguf") is None
    assert describe.shard_names("m.gguf") == ["m.gguf"]


# Property based: whatever the writer can express, the parser reads to the byte; whatever bytes come, it answers.

keys = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
scalars = st.one_of(
    st.tuples(st.just(make.U8), st.integers(0, 255)),
    st.tuples(st.just(make.I32), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.tuples(st.just(make.U64), st.integers(0, (1 << 64) - 1)),
    st.tuples(st.just(make.F64), st.floats(allow_nan=False)),
    st.tuples(st.just(make.BOOL), st.booleans()),
    st.tuples(st.just(make.STRING), st.text(st.characters(codec="utf-8"), max_size=200)),
    st.tuples(
        st.just(make.ARRAY), st.tuples(st.just(make.I16), st.lists(st.integers(-(1 << 15), (1 << 15) - 1), max_size=50))
    ),
    st.tuples(
        st.just(make.ARRAY),
        st.tuples(st.just(make.STRING), st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=50)),
    ),
)
tensor_lists = st.lists(
    st.builds(lambda kind, blocks, rest: ((make.BLOCKS[kind][0] * blocks, *rest), kind),
              st.sampled_from(sorted(make.BLOCKS)), st.integers(1, 3),
              st.lists(st.integers(1, 4), max_size=3)),
    max_size=8,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    metadata=st.dictionaries(keys, scalars, max_size=8), shapes=tensor_lists, alignment=st.sampled_from([8, 32, 128])
)
def test_everything_written_is_read_back(metadata, shapes, alignment):
    metadata["general.alignment"] = (make.U32, alignment)
    tensors = [("t%d" % number, dims, kind) for number, (dims, kind) in enumerate(shapes)]
    entries = [(key, kind, value) for key, (kind, value) in metadata.items()]
    data = make.file_bytes(entries, tensors, alignment=alignment)
    header = parse(data)
    assert header.expected_size == len(data) if tensors else describe.size_problem(header, len(data), "m.gguf") is None
    assert [(tensor.name, tensor.dims) for tensor in header.tensors] == [(name, dims) for name, dims, _kind in tensors]
    for key, (kind, value) in metadata.items():
        if kind != make.ARRAY:
            assert header.metadata[key] == value
        elif value[0] != make.STRING:
            assert header.metadata[key] == value[1]


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=300), whole=st.booleans())
def test_any_bytes_end_in_header_or_sentence(data, whole):
    try:
        describe.describe([parse(data if whole else b"GGUF" + struct.pack("<I", 3) + data)])
    except Refusal as error:
        assert str(error).isprintable()


@pytest.mark.skipif(
    not REAL, reason="no real files here: run tests/lab/artifacts.sh, or name a folder in LLAMA_CLUSTER_GGUF"
)
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_files_have_exactly_size_their_header_says(path):
    assert gguf.read_path(str(path)).expected_size == path.stat().st_size


@pytest.mark.parametrize(
    ("value", "text"),
    [(7, "7"), ("a\u2028b", r"'a\u2028b'"), (0.5, "0.5"), ("x" * 38, "'%s'" % ("x" * 38)), ("x" * 99, "'" + "x" * 39)],
)
def test_header_value_is_cut_in_messages(value, text):
    assert gguf.shown(value) == text and len(text) <= 40


@pytest.mark.parametrize(
    ("name", "text"), [("blk.0", "blk.0"), ("x" * 81, "x" * 80), ("\x1b" * 81, "'%s'" % (r"\x1b" * 80))]
)
def test_header_name_is_cut_in_messages(name, text):
    assert gguf._shown(name) == text


def announced(tensors=0, keys=0):
    """A header that ends where the first of them would begin."""
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys)


def array_of(kind, length):
    """A header that ends where an array's elements would begin."""
    return one_key() + struct.pack("<IIQ", 9, kind, length)


# "cut" is what is said of a header that is right as far as it goes.
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (announced(tensors=32768), "cut"),
        (announced(tensors=32769), "announces 32,769 tensors"),
        (announced(keys=65536), "cut"),
        (announced(keys=65537), "announces 65,537 metadata keys"),
        (announced(keys=1) + struct.pack("<Q", 65535), "cut"),
        (announced(keys=1) + struct.pack("<Q", 65536), "has 65,536 bytes, at most 65,535 bytes are allowed"),
        (array_of(make.STRING, 2 << 20), "cut"),
        (array_of(make.STRING, (2 << 20) + 1), "2,097,153 strings, more than a header can hold"),
        (array_of(make.U8, 64 << 20), "larger than 67,108,864 bytes"),
        (one_key() + struct.pack("<IQ", 8, 8 << 20), "cut"),
        (one_key() + struct.pack("<IQ", 8, (8 << 20) + 1), "at most 8,388,608 bytes are allowed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_largest_header_is_accepted(data, words):
    assert words in refused(data)


def test_text_of_header_is_held_to_eight_mebibytes():
    half = "x" * ((4 << 20) - 8)  # its length takes eight bytes
    assert parse(make.header_bytes([("a", make.STRING, half), ("b", make.STRING, half)], [])).metadata["b"] == half
    assert "more than 8,388,608 bytes of metadata text" in refused(
        make.header_bytes([("a", make.STRING, half), ("b", make.STRING, half + "x")], [])
    )


@pytest.mark.parametrize(("length", "kept"), [(4096, True), (4097, False)])
def test_arrays_of_number_for_each_layer_are_kept(length, kept):
    header = parse(make.header_bytes([("n", make.ARRAY, (make.U8, [7] * length)), ("last", make.U8, 9)], []))
    assert header.metadata == dict({"n": [7] * length} if kept else {}, last=9)
    assert header.array_lengths == {"n": length}


def test_kept_numbers_are_held_to_65536():
    metadata = [("n%d" % number, make.ARRAY, (make.U8, [1] * 4096)) for number in range(16)]
    assert len(parse(make.header_bytes(metadata, [])).metadata) == 16
    more = [*metadata, ("more", make.ARRAY, (make.U8, [1]))]
    assert "array more makes more than 65,536 numbers" in refused(make.header_bytes(more, []))


def test_read_windows_grow_to_four_mebibytes():
    """Most shards have a short header, and a vocabulary takes few requests."""
    data = make.header_bytes([("tokens", make.ARRAY, (make.STRING, ["x" * 992] * 16000))], [])
    asked = []

    def read(offset, length):
        asked.append((offset, length))
        return data[offset : offset + length]

    gguf.read_header(read, "m.gguf")
    assert asked[0] == (0, 1 << 19)
    assert all(offset >= sum(before) for before, (offset, _length) in zip(asked, asked[1:])), "nothing is read twice"
    windows = [1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 22, 1 << 22]
    assert len(asked) == 7 and all(most - 1000 < length <= most for most, (_at, length) in zip(windows, asked[1:]))


@pytest.mark.parametrize(
    ("weights", "alignment", "words"),
    [
        ((1 << 63) - 1, 1, None),
        ((1 << 63) - 1, 32, "its tensors need 9,223,372,036,854,775,808 bytes"),
        (1 << 63, 1, "has dimensions 9223372036854775808"),
        (0, 1, "has dimensions 0"),
    ],
)
def test_tensor_has_fewer_weights_than_signed_number_counts(weights, alignment, words):
    data = make.header_bytes([("general.alignment", make.U32, alignment)], [("a", (weights,), 24)])
    if words:
        assert words in refused(data)
    else:
        assert parse(data).tensors[0].nbytes == weights
