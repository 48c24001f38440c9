# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Damages headers of made and real GGUF files: the parser must answer each with a header or one sentence, soon and in little memory.

python tests/unit/fuzz_gguf.py --seed 1 --rounds 1000000 FILE...
"""

import argparse
import os
import random
import resource
import signal
import struct
import sys
import time
from pathlib import Path

# A script of its own: pytest's process has threads and must not be forked, nor its memory be limited.
if __package__ in (None, ""):
    sys.path.insert(0, os.path.abspath(__file__).split("/ansible_collections/")[0])
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _gguf
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files as make

MEMORY = 256 << 20  # bytes the parser may take over what Python has at the start
SECONDS = 1.0  # of CPU time for one header
HANG = 20  # seconds after which it is not waited for


def answer(data):
    """Read a header, with all that is asked about one; AssertionError when the refusal is not one sentence."""
    try:
        header = _gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf")
        _gguf.describe([header])
        _gguf.size_problem(header, len(data), "m.gguf")
        _gguf.check_shards([header], ["m.gguf"])
    except _gguf.GGUFError as error:
        assert "\n" not in str(error), str(error)
        return False
    return True


def mutations(data, source, count):
    """``count`` damaged copies: flipped bits, overwritten counts, cut, doubled and dropped stretches."""
    extremes = [0, 1, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]
    for _number in range(count):
        copy = bytearray(data)
        for _change in range(source.randint(1, 4)):
            place = source.randrange(max(1, len(copy)))
            kind = source.randrange(5)
            if kind == 0:
                copy[place : place + 1] = bytes([source.randrange(256)])
            elif kind == 1:
                copy[place : place + 8] = struct.pack("<Q", source.choice(extremes))
            elif kind == 2:
                copy[place : place + 4] = struct.pack("<I", source.choice(extremes) & 0xFFFFFFFF)
            elif kind == 3:
                del copy[place : place + source.randint(1, 64)]
            else:
                copy[place:place] = copy[place : place + source.randint(1, 64)]
        yield bytes(copy)


def start_of(path):
    """The header of a real file, and some bytes more."""
    with open(path, "rb") as stream:
        return stream.read(_gguf.read_path(path).header_size + 1000)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=300, help="damaged headers in all")
    parser.add_argument("files", nargs="*", metavar="FILE", help="real files whose headers are damaged besides the made ones")
    options = parser.parse_args()
    originals = [make.model(1)[:2000], make.shards(2)[1][:500]] + [start_of(path) for path in options.files]
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY,) * 2)
    source = random.Random(options.seed)
    rounds = -(-options.rounds // len(originals))
    read = refused = 0
    longest = 0.0
    start = told = time.monotonic()
    for original in originals:
        for number, data in enumerate(mutations(original, source, rounds)):
            signal.alarm(HANG)
            begun = time.process_time()
            try:
                if answer(data):
                    read += 1
                else:
                    refused += 1
                longest = max(longest, time.process_time() - begun)
                assert longest <= SECONDS, "%.2f s" % longest
            except BaseException:
                print("seed %d, header of %d bytes, mutation %d" % (options.seed, len(original), number))
                raise
            if time.monotonic() - told > 30:
                told = time.monotonic()
                print("%d headers after %.0f s" % (read + refused, told - start), flush=True)
    signal.alarm(0)
    words = "%d damaged headers: %d refused with a sentence, %d still readable, in %.0f s; the longest took %.2f s of CPU time"
    print(words % (read + refused, refused, read, time.monotonic() - start, longest))


if __name__ == "__main__":
    main()
