# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mixture.py FROM.gguf TO.gguf: a dense llama as a mixture of experts that answers alike.

Every layer gets EXPERTS experts that are all the layer's own feed-forward, and a router without a preference. So it is
a mixture to every program, answers like the dense model, and is small enough for a test.
Runs on a lab's node and needs only its Python.
"""

import re
import struct
import sys

EXPERTS, USED = 2, 1
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U32, STRING, ARRAY, F32 = 4, 8, 9, 0
ALIGNMENT = 32


class Reader:
    """-> the header's fields as bytes"""

    def __init__(self, stream):
        self.stream = stream
        _magic, _version, tensors, keys = struct.unpack("<4sIQQ", stream.read(24))
        self.keys = [self.key() for _key in range(keys)]
        self.tensors = [self.tensor() for _tensor in range(tensors)]
        self.start = stream.tell() + -stream.tell() % ALIGNMENT

    def number(self, kind):
        raw = self.stream.read(struct.calcsize(kind))
        return struct.unpack(kind, raw)[0], raw

    def text(self):
        length, raw = self.number("<Q")
        return raw + self.stream.read(length)

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.stream.read(SIZES[kind])
        element, first = self.number("<I")
        count, second = self.number("<Q")
        items = [self.text() for _item in range(count)] if element == STRING else []
        return first + second + (b"".join(items) if items else self.stream.read(count * SIZES.get(element, 0)))

    def key(self):
        name = self.text()
        kind, raw = self.number("<I")
        return name[8:].decode(), raw + self.value(kind)

    def tensor(self):
        name = self.text()[8:].decode()
        dims = [self.number("<Q")[0] for _dim in range(self.number("<I")[0])]
        kind, offset = self.number("<I")[0], self.number("<Q")[0]
        return name, dims, kind, offset


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def main(source, target):
    with open(source, "rb") as stream, open(target, "wb") as out:
        read = Reader(stream)
        ends = sorted(offset for _name, _dims, _kind, offset in read.tensors)[1:] + [None]
        sizes = dict(zip(sorted(offset for _name, _dims, _kind, offset in read.tensors), ends))
        made = []  # name, dims, kind, offset in the source or None for zeros, times
        for name, dims, kind, offset in read.tensors:
            found = re.match(r"(blk\.\d+\.ffn_)(gate|up|down)\.weight\Z", name)
            if not found:
                made.append((name, dims, kind, offset, 1))
                continue
            made.append((found.group(1) + found.group(2) + "_exps.weight", [*dims, EXPERTS], kind, offset, EXPERTS))
            if found.group(2) == "gate":
                made.append((found.group(1) + "gate_inp.weight", [dims[0], EXPERTS], F32, None, 1))
        keys = read.keys + [
            ("llama.%s" % name, struct.pack("<II", U32, value))
            for name, value in (("expert_count", EXPERTS), ("expert_used_count", USED))
        ]
        stream.seek(0, 2)
        end = stream.tell() - read.start

        def data(dims, offset, times):
            if offset is None:
                return bytes(4 * dims[0] * dims[1])
            stream.seek(read.start + offset)
            return stream.read((sizes[offset] or end) - offset) * times

        out.write(struct.pack("<4sIQQ", b"GGUF", 3, len(made), len(keys)))
        out.write(b"".join(text(name) + raw for name, raw in keys))
        place = 0
        for name, dims, kind, offset, times in made:
            out.write(text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, place))
            size = 4 * dims[0] * dims[1] if offset is None else ((sizes[offset] or end) - offset) * times
            place += size + -size % ALIGNMENT
        out.write(bytes(-out.tell() % ALIGNMENT))
        for _name, dims, _kind, offset, times in made:
            own = data(dims, offset, times)
            out.write(own + bytes(-len(own) % ALIGNMENT))


if __name__ == "__main__":
    main(*sys.argv[1:])
