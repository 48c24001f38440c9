# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ways to damage what a reader is given: bytes, JSON texts, and the keys of a GGUF header."""

import copy
import json
import struct

from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files as make

EXTREMES = [0, 1, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]
# What a hand, or an attacker, might write where something else belongs.
FOREIGN = [
    None, True, False, 0, -1, 3, 1 << 70, 0.5, 1e308, float("nan"), float("-inf"), "", "x", "0", "a\nb",
    "../../etc/cron.d/x", "/etc/passwd",
    "a\0b", "a\0b.gguf", "../m.gguf", "a\nb.gguf", "\ud800.gguf", ".m.gguf", "-00001-of-00002.gguf",
    "%n $HOME", "\x1b[2J", "\ud800", "Grüße", "http://[::1", "nan", "x" * 70000, [], {}, [None], [[[]]], {"x": {}},
    [{}] * 1000, ["x"] * 1000,
]  # fmt: skip


def bytes_of(data, source):
    """A copy with flipped bits, overwritten counts, cut, doubled and dropped stretches."""
    changed = bytearray(data)
    for _change in range(source.randint(1, 4)):
        place = source.randrange(max(1, len(changed)))
        kind = source.randrange(5)
        if kind == 0:
            changed[place : place + 1] = bytes([source.randrange(256)])
        elif kind == 1:
            changed[place : place + 8] = struct.pack("<Q", source.choice(EXTREMES))
        elif kind == 2:
            changed[place : place + 4] = struct.pack("<I", source.choice(EXTREMES) & 0xFFFFFFFF)
        elif kind == 3:
            del changed[place : place + source.randint(1, 64)]
        else:
            changed[place:place] = changed[place : place + source.randint(1, 64)]
    return bytes(changed)


def _places(value):
    """[(map or list, key or index)] of everything in a JSON value."""
    found = []
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found.append((value, key))
        found.extend(_places(value[key]))
    return found


def json_of(text, source):
    """A JSON text whose values are replaced, dropped or doubled; now and then damaged bytes of it, or nothing but
    depth."""
    if source.random() < 0.01:
        depth = source.choice([100, 900, 1000, 3000, 100000])
        return (
            b"[" * depth + b"]" * source.choice([0, depth])
            if source.random() < 0.5
            else b'{"a":' * depth + b"1" + b"}" * source.choice([0, depth])
        )
    value = [json.loads(text)]
    for _change in range(source.randint(1, 3)):
        container, key = source.choice(_places(value) or [(value, slice(0, 1))])
        kind = source.randrange(8)
        if kind == 0:
            del container[key]
        elif kind == 1 and isinstance(container, list):
            container.insert(0, copy.deepcopy(source.choice(container)))
        elif kind == 2 and isinstance(container, dict):
            container[source.choice(["x", "", "a\nb", "../x", "\ud800"])] = copy.deepcopy(source.choice(FOREIGN))
        else:
            container[key] = copy.deepcopy(source.choice(FOREIGN))
        value = value or [None]
    damaged = json.dumps(value[0]).encode()
    return bytes_of(damaged, source) if source.random() < 0.2 else damaged


def header_of(metadata, tensors, source):
    """A header whose keys have other values or types, or are dropped; now and then a tensor too."""
    metadata, tensors = list(metadata), list(tensors)
    for _change in range(source.randint(1, 3)):
        place = source.randrange(len(metadata))
        name = metadata[place][0]
        kind = source.randrange(6)
        if kind == 0 and len(metadata) > 1:
            del metadata[place]
        elif kind == 1:
            metadata[place] = (name, make.U64, source.choice(EXTREMES))
        elif kind == 2:
            metadata[place] = (
                name,
                make.U32,
                source.choice([0, 1, 2, 3, 100, 511, 512, 513, 65536, 10**8, (1 << 32) - 1]),
            )
        elif kind == 3:
            items = [source.randrange(2) for _item in range(source.choice([0, 1, 4, 600]))]
            metadata[place] = (name, make.ARRAY, (source.choice([make.I8, make.U64, make.BOOL]), items))
        elif kind == 4:
            text = source.choice(["", "x", "a\nb", "yarn", "mamba", "\x1b[2J", "x" * 5000])
            number = source.choice([0.0, -1.5, 1e308, float("nan")])
            metadata[place] = (name,) + source.choice([(make.STRING, text), (make.F64, number)])
        elif tensors:
            spot = source.randrange(len(tensors))
            sized = (tensors[spot][0], (32, source.choice([1, 32, 1 << 40])), 0)
            far = ("blk.%d.x" % source.choice([0, 511, 10**30]), (32,), 0)
            tensors[spot : spot + 1] = source.choice([[], [sized], [far]])
    return make.header_bytes(metadata, tensors)
