# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vocabulary.py MODEL.gguf TARGET.gguf: what a model says about itself, its tokenizer and chat template among it, and
none of its tensors: all that tests/benchmarks/random_model.py takes of a model."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

# Bytes of a value by the number of its type; 8 is a string, 9 an array.
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


def after(data: bytes, at: int, kind: int) -> int:
    """-> the end of a value of this type that begins at `at`"""
    if kind == STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind == ARRAY:
        of, count = struct.unpack_from("<IQ", data, at)
        at += 12
        if of in SIZES:
            return at + count * SIZES[of]
        for _unused in range(count):
            at = after(data, at, of)
        return at
    return at + SIZES[kind]


def vocabulary(data: bytes) -> bytes:
    """A model file without its tensors."""
    magic, version, _tensors, keys = struct.unpack_from("<4sIQQ", data)
    if magic != b"GGUF" or version not in (2, 3):
        raise SystemExit("a GGUF file of version 2 or 3 is needed, %r seen" % data[:8])
    end = start = 24
    for _unused in range(keys):
        end = after(data, end, STRING)
        end = after(data, end + 4, struct.unpack_from("<I", data, end)[0])
    header = struct.pack("<4sIQQ", magic, version, 0, keys) + data[start:end]
    # Data begin at a multiple of 32, also if there are no data.
    return header + bytes(-len(header) % 32)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(vocabulary(Path(sys.argv[1]).read_bytes()))
