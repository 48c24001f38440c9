# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GGUF headers: the facts of a model file, and how many bytes it must have.

Everything here is a pure function over ``read(offset, length) -> bytes`` (shorter only at the end of the file), so a
local file, an HTTP range reader and a byte string are read alike. The format is that of ggml's gguf.cpp: little endian,
magic ``GGUF``, u32 version (2 or 3), u64 tensors, u64 keys, the key/value pairs, then name, dimensions, type and offset
of every tensor, padding to ``general.alignment`` (32 when absent), data. A header is untrusted input: every count is
checked against what may still follow before anything is allocated, so any input ends in a Header or a Refusal within a
second and within 64 MiB.
"""

import os
import struct
from typing import Any, Callable, NamedTuple

from .._text import Refusal, exact

MAX_HEADER = 64 << 20
"""The largest header that is read. The largest known one has 15.8 MB (a vocabulary of 515,000 merges)."""

_MAX_TENSORS = 32768  # twice the largest known model's; a description takes thirty times its bytes in memory
_MAX_KEYS = 65536
_MAX_KEY_BYTES = 65535  # the format's own limit
_MAX_TENSOR_NAME = 63  # ggml's GGML_MAX_NAME less its terminator
_MAX_ARRAY_STRINGS = 2 << 20  # in all arrays together; walking them is what costs time
_MAX_KEPT_ARRAY = 4096  # elements; per-layer values are kept, vocabularies are walked over
_MAX_KEPT_ELEMENTS = 1 << 16  # in all kept arrays together; a number takes up to forty times its bytes in the file
_MAX_KEPT_BYTES = 8 << 20  # metadata text and arrays together
_FIRST_WINDOW = 1 << 19  # of ten shards, nine have nothing but a short header
_LAST_WINDOW = 4 << 20
_I64_MAX = (1 << 63) - 1

# id: (name, weights per block, bytes per block). The ids missing here were removed from ggml.
TENSOR_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
    42: ("Q2_0", 64, 18),
}

# Ids without a size here. Forks, such as ik_llama.cpp, use ids far above llama.cpp's.
_REMOVED = {4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8"}
_REMOVED.update({36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8"})
_FORKS = range(97, 1000)
_NEWER = range(max(TENSOR_TYPES) + 1, 97)

# Value type ids of the format.
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_BEFORE_GGUF = (b"lmgg", b"fmgg", b"tjgg", b"algg")
_STRING = 8
_ARRAY = 9
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_KEY_BYTES_MIN = 8 + 1 + 4 + 1
_TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8

# read(offset, length): shorter only at the end of the file.
Read = Callable[[int, int], bytes]


class Tensor(NamedTuple):
    name: str
    dims: tuple[int, ...]  # fastest first
    type: str  # name of TENSOR_TYPES
    offset: int  # bytes from Header.data_offset
    nbytes: int  # unpadded


class Header(NamedTuple):
    """The header of a file."""

    version: int
    metadata: dict[str, Any]  # scalar, str, or list of at most 4096 numbers
    array_lengths: dict[str, int]  # of every array, kept or not
    tensors: list[Tensor]
    header_size: int  # bytes up to the end of the last tensor description
    alignment: int
    data_offset: int
    minimum_size: int  # as expected_size, without the padding of the last tensor, which some writers leave out
    expected_size: int  # bytes of the complete file as ggml writes it, every tensor padded


class _Cursor:
    """Sequential access through growing windows, so that a 2 kB header costs 512 KiB and a 6 MB one five reads."""

    def __init__(self, read: Read, name: str, limit: int, again: str) -> None:
        self.read, self.name, self.limit, self.again = read, name, limit, again
        self.base = 0  # file offset of buffer[0]
        self.buffer = b""
        self.at = 0  # index into buffer; may lie beyond its end after a skip
        self.window = _FIRST_WINDOW

    def error(self, text: str) -> Refusal:
        return Refusal("%s: %s" % (self.name, text))

    def tell(self) -> int:
        return self.base + self.at

    def left(self) -> int:
        return self.limit - self.tell()

    def need(self, count: int) -> None:
        """Have ``count`` bytes at ``at`` in the buffer."""
        if self.at + count <= len(self.buffer):
            return
        if count > self.left():
            raise self.error("the header is larger than %s: not a usable GGUF file" % exact(self.limit))
        position = self.tell()
        kept = self.buffer[self.at :]
        want = min(max(count, self.window), self.left())
        data = kept + self.read(position + len(kept), want - len(kept))
        self.window = min(self.window * 2, _LAST_WINDOW)
        if len(data) < count:
            raise self.error("the header is cut at byte %s: %s" % ("{:,}".format(position + len(data)), self.again))
        self.base, self.buffer, self.at = position, data, 0

    def take(self, count: int) -> bytes:
        self.need(count)
        self.at += count
        return self.buffer[self.at - count : self.at]

    def number(self, packer: struct.Struct) -> Any:
        self.need(packer.size)
        (value,) = packer.unpack_from(self.buffer, self.at)
        self.at += packer.size
        return value

    def skip(self, count: int) -> None:
        if count > self.left():
            raise self.error("the header is larger than %s: not a usable GGUF file" % exact(self.limit))
        self.at += count

    def string(self, longest: int, what: str) -> str:
        length = self.number(_U64)
        if length > longest:
            raise self.error(
                "%s has %s, at most %s are allowed: damaged header" % (what, exact(length), exact(longest))
            )
        # llama.cpp takes any bytes.
        return self.take(length).decode("utf-8", "backslashreplace")

    def skip_strings(self, count: int) -> None:
        unpack = _U64.unpack_from
        while count:
            self.need(8)
            buffer, at = self.buffer, self.at
            last = len(buffer) - 8
            while count and at <= last:
                (length,) = unpack(buffer, at)
                at += 8 + length
                count -= 1
            self.skip(at - self.at)


def shown(value: Any) -> str:
    """A value of a header as a sentence shows it: ASCII, and short."""
    return ascii(value)[:40]


def _shown(text: str) -> str:
    """A name from the file, safe to print: no terminal sequences, no endless lines."""
    return text[:80] if text.isprintable() else ascii(text[:80])


_NO_TYPE = "which GGUF 3 does not define: damaged header, or a file of a newer format"


def _unknown_type(kind: int) -> str:
    if kind in _REMOVED:
        instead = _REMOVED[kind].rpartition("_")[0].rpartition("_")[0]
        step = "use the quant %s" % instead if kind > 5 else "use another quant"
        return "%s, which llama.cpp has removed: %s" % (_REMOVED[kind], step)
    if kind in _FORKS:
        return "%d, which is of a fork such as ik_llama.cpp: use another quant, llama.cpp will not load this one" % kind
    if kind in _NEWER:
        return (
            "%d, which is newer than the releases of llama.cpp known here: use another quant, or a newer release of "
            "this collection" % kind
        )
    return "%d, which no llama.cpp has: damaged header" % kind


def _read_metadata(cursor: _Cursor, count: int) -> tuple[dict[str, Any], dict[str, int]]:
    metadata: dict[str, Any] = {}
    lengths: dict[str, int] = {}
    kept, elements, strings = 0, 0, 0
    for _number in range(count):
        key = cursor.string(_MAX_KEY_BYTES, "a metadata key")
        if not key:
            raise cursor.error("a metadata key is empty: damaged header")
        if key in metadata or key in lengths:
            raise cursor.error("metadata key %s appears twice: damaged header" % _shown(key))
        kind = cursor.number(_U32)
        before = cursor.tell()
        if kind in _SCALARS:
            metadata[key] = cursor.number(_SCALARS[kind])
        elif kind == _STRING:
            metadata[key] = cursor.string(_MAX_KEPT_BYTES, "metadata " + _shown(key))
        elif kind == _ARRAY:
            kind = cursor.number(_U32)
            length = cursor.number(_U64)
            lengths[key] = length
            if kind in _SCALARS:
                size = _SCALARS[kind].size * length
                if length <= _MAX_KEPT_ARRAY:
                    elements += length
                    if elements > _MAX_KEPT_ELEMENTS:
                        raise cursor.error(
                            "array %s makes more than %s numbers in short arrays: not a usable GGUF file"
                            % (_shown(key), "{:,}".format(_MAX_KEPT_ELEMENTS))
                        )
                    data = cursor.take(size)
                    metadata[key] = [item for (item,) in _SCALARS[kind].iter_unpack(data)]
                else:
                    cursor.skip(size)
                    before = cursor.tell()
            elif kind == _STRING:
                strings += length
                if strings > _MAX_ARRAY_STRINGS or 8 * length > cursor.left():
                    raise cursor.error(
                        "array %s has %s strings, more than a header can hold: damaged header"
                        % (_shown(key), "{:,}".format(length))
                    )
                cursor.skip_strings(length)
                before = cursor.tell()
            elif kind == _ARRAY:
                raise cursor.error("array %s has arrays in it, llama.cpp reads none: use another file" % _shown(key))
            else:
                raise cursor.error("array %s has elements of type %d, %s" % (_shown(key), kind, _NO_TYPE))
        else:
            raise cursor.error("metadata %s has type %d, %s" % (_shown(key), kind, _NO_TYPE))
        kept += cursor.tell() - before
        if kept > _MAX_KEPT_BYTES:
            raise cursor.error("more than %s of metadata text: not a usable GGUF file" % exact(_MAX_KEPT_BYTES))
    return metadata, lengths


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> tuple[list[Tensor], int, int]:
    """-> ([Tensor], bytes of all data with the last tensor padded, without). Offsets must be contiguous, as llama.cpp
    demands."""
    tensors: list[Tensor] = []
    names: set[str] = set()
    padded, bare = 0, 0
    for _number in range(count):
        name = cursor.string(_MAX_TENSOR_NAME, "a tensor name")
        if name in names:
            raise cursor.error("tensor %s appears twice: damaged header" % _shown(name))
        names.add(name)
        n_dims = cursor.number(_U32)
        if not 1 <= n_dims <= 4:
            raise cursor.error(
                "tensor %s has %d dimensions, 1 to 4 are possible: damaged header" % (_shown(name), n_dims)
            )
        dims = struct.unpack("<%dQ" % n_dims, cursor.take(8 * n_dims))
        kind = cursor.number(_U32)
        offset = cursor.number(_U64)
        if kind not in TENSOR_TYPES:
            raise cursor.error("tensor %s has type %s" % (_shown(name), _unknown_type(kind)))
        type_name, block, size = TENSOR_TYPES[kind]
        weights = 1
        for dim in dims:
            weights *= dim
        if not 0 < weights <= _I64_MAX:
            raise cursor.error("tensor %s has dimensions %s: damaged header" % (_shown(name), "x".join(map(str, dims))))
        if dims[0] % block:
            raise cursor.error(
                "tensor %s has rows of %d weights, %s needs a multiple of %d: damaged header"
                % (_shown(name), dims[0], type_name, block)
            )
        if offset != padded:
            raise cursor.error(
                "tensor %s starts at %d, the tensors before it end at %d: damaged header"
                % (_shown(name), offset, padded)
            )
        nbytes = weights // block * size
        bare = padded + nbytes
        padded = bare + -bare % alignment
        if padded > _I64_MAX:
            raise cursor.error("its tensors need %s: damaged header" % exact(padded))
        tensors.append(Tensor(name, dims, type_name, offset, nbytes))
    return tensors, padded, bare


def read_header(read: Read, name: str, limit: int = MAX_HEADER, again: str = "fetch it again") -> Header:
    """Parse the header that ``read(offset, length)`` gives.

    name: what errors call the file; limit: the most bytes to read; again: what to do about a file that is cut. Returns
    Header; raises Refusal.
    """
    cursor = _Cursor(read, name, limit, again)
    cursor.buffer = read(0, min(_FIRST_WINDOW, limit))
    start = cursor.buffer[:4]
    if start != b"GGUF":
        if not start:
            raise cursor.error("empty, a GGUF file is needed: %s" % again)
        if start == b"vers":
            raise cursor.error("starts as a pointer of Git LFS: not a model, give the address of the file itself")
        if start in _BEFORE_GGUF:
            raise cursor.error("has a format of before GGUF, which llama.cpp no longer reads: use a GGUF file of it")
        raise cursor.error(
            "starts with %s, a GGUF file starts with b'GGUF': not a model, or a later piece of one" % ascii(start)
        )
    cursor.skip(4)
    version = cursor.number(_U32)
    if version not in (2, 3):
        hint = "a big-endian file" if version in (2 << 24, 3 << 24) else "a newer format, use another file"
        hint = "convert it with a current llama.cpp" if version == 1 else hint
        raise cursor.error("GGUF version %d, 2 or 3 is needed: %s" % (version, hint))
    tensor_count = cursor.number(_U64)
    key_count = cursor.number(_U64)
    if tensor_count > min(_MAX_TENSORS, cursor.left() // _TENSOR_BYTES_MIN):
        raise cursor.error("announces %s tensors: damaged header" % "{:,}".format(tensor_count))
    if key_count > min(_MAX_KEYS, cursor.left() // _KEY_BYTES_MIN):
        raise cursor.error("announces %s metadata keys: damaged header" % "{:,}".format(key_count))
    metadata, lengths = _read_metadata(cursor, key_count)
    alignment = metadata.get("general.alignment", 32)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise cursor.error("general.alignment is %s, a power of two is needed: damaged header" % shown(alignment))
    tensors, padded, bare = _read_tensors(cursor, tensor_count, alignment)
    end = cursor.tell()
    data = end + -end % alignment
    if not tensors:
        return Header(version, metadata, lengths, tensors, end, alignment, data, end, end)
    return Header(version, metadata, lengths, tensors, end, alignment, data, data + bare, data + padded)


def reading(fd: int) -> Read:
    """To read an open file by."""
    return lambda offset, length: os.pread(fd, length, offset)


def read_path(path: str) -> Header:
    """Header of a local file; OSError when it cannot be opened, Refusal when it is not GGUF."""
    with open(path, "rb", buffering=0) as stream:
        return read_header(reading(stream.fileno()), path)
