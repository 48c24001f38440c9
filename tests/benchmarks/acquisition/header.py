# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a whole process takes that reads the header of a 77 GB model and compares its size: interpreter, imports,
parsing. Then the same for one that says how much memory the model needs on three devices, and how many bytes of the
file it reads: over the network, what that costs; and for one that plans its split.

The file is sparse: a real header of Qwen2-72B's shape in Q8_0 (80 blocks, 963 tensors, 152,064 tokens, 151,387 merges),
grown to exactly the size that its tensors need.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/unit"))
import gguf_files as make  # noqa: E402

Q8_0, F32 = 8, 0
WIDTH, HIDDEN, CACHED, TOKENS, MERGES, BLOCKS = 8192, 29568, 1024, 152064, 151387, 80
PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from module_utils._fetch.verify import verify_path
found = verify_path(sys.argv[2])
assert found["complete"], found
peak = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")][0]
print(found["size"], found["tensors"], peak)
"""
PLACE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from module_utils._model import gguf, memory
read = []
with open(sys.argv[2], "rb", buffering=0) as stream:
    def part(offset, length):
        read.append(length)
        return os.pread(stream.fileno(), length, offset)
    shape = memory.read_shape(gguf.read_header(part, sys.argv[2], gguf.MAX_REMOTE_HEADER))
placed = memory.place(shape, memory.settings_of(ctx_size=8192, parallel=1), [27, 27, 26])
assert [device.layers for device in placed.devices] == [27, 27, 26], placed
print(sum(read), len(read))
"""
PLAN = """
import sys
sys.path.insert(0, sys.argv[1])
from module_utils._plan.devices import of_cards
from module_utils._plan.header import local_shape
from module_utils._plan.place import plan, settings_for
devices = of_cards([{"node": "node%d" % number, "memory_mib": 32510} for number in (1, 2, 3)], 1024)
found = plan(local_shape(sys.argv[2]), settings_for({"ctx_size": 8192, "parallel": 1}, "b11434"), devices, 1)
assert found.fits, found
print(",".join(map(str, found.tensor_split)))
"""


def write(path):
    """-> bytes of the header"""
    tensors = [
        ("token_embd.weight", (WIDTH, TOKENS), Q8_0),
        ("output_norm.weight", (WIDTH,), F32),
        ("output.weight", (WIDTH, TOKENS), Q8_0),
    ]
    for block in range(BLOCKS):
        shapes = [
            ("attn_norm.weight", (WIDTH,), F32),
            ("attn_q.weight", (WIDTH, WIDTH), Q8_0),
            ("attn_q.bias", (WIDTH,), F32),
            ("attn_k.weight", (WIDTH, CACHED), Q8_0),
            ("attn_k.bias", (CACHED,), F32),
            ("attn_v.weight", (WIDTH, CACHED), Q8_0),
            ("attn_v.bias", (CACHED,), F32),
            ("attn_output.weight", (WIDTH, WIDTH), Q8_0),
            ("ffn_norm.weight", (WIDTH,), F32),
            ("ffn_gate.weight", (WIDTH, HIDDEN), Q8_0),
            ("ffn_up.weight", (WIDTH, HIDDEN), Q8_0),
            ("ffn_down.weight", (HIDDEN, WIDTH), Q8_0),
        ]
        tensors += [("blk.%d.%s" % (block, name), dims, kind) for name, dims, kind in shapes]
    metadata = [
        ("general.architecture", make.STRING, "qwen2"),
        ("general.file_type", make.U32, 7),
        ("qwen2.block_count", make.U32, BLOCKS),
        ("qwen2.context_length", make.U32, 32768),
        ("qwen2.embedding_length", make.U32, WIDTH),
        ("qwen2.attention.head_count", make.U32, 64),
        ("qwen2.attention.head_count_kv", make.U32, 8),
        ("tokenizer.ggml.tokens", make.ARRAY, (make.STRING, ["token %06d" % number for number in range(TOKENS)])),
        ("tokenizer.ggml.token_type", make.ARRAY, (make.I32, [1] * TOKENS)),
        ("tokenizer.ggml.merges", make.ARRAY, (make.STRING, ["ab %06d" % number for number in range(MERGES)])),
    ]
    header = make.header_bytes(metadata, tensors)
    size = (
        len(header)
        + -len(header) % 32
        + sum(bytes_ + -bytes_ % 32 for bytes_ in (make.tensor_bytes(dims, kind) for _name, dims, kind in tensors))
    )
    with open(path, "wb") as stream:
        stream.write(header)
        stream.truncate(size)
    return len(header)


def timed(program, path, rounds):
    """-> ([seconds of a whole process], [words it printed])"""
    times = []
    for _round in range(rounds):
        begun = time.monotonic()
        told = subprocess.run(
            [sys.executable, "-c", program, str(ROOT / "plugins"), path], check=True, capture_output=True, text=True
        ).stdout
        times.append(time.monotonic() - begun)
    return times, told.split()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.gguf")
        header = write(path)
        times, (size, tensors, memory) = timed(PROCESS, path, options.rounds)
        placing, (read, pieces) = timed(PLACE, path, options.rounds)
        planning, (split,) = timed(PLAN, path, options.rounds)
    print("header of %.1f MB, %s tensors, file of %.1f GB (sparse):" % (header / 1e6, tensors, int(size) / 1e9))
    print(
        "whole process %.2f s in the median of %d (%.2f to %.2f s), %.0f MB"
        % (statistics.median(times), options.rounds, min(times), max(times), int(memory) * 1024 / 1e6)
    )
    print(
        "placed on three devices: whole process %.2f s (%.2f to %.2f s), %.1f MB of the file read in %s requests"
        % (statistics.median(placing), min(placing), max(placing), int(read) / 1e6, pieces)
    )
    print(
        "split planned (%s): whole process %.2f s (%.2f to %.2f s)"
        % (split, statistics.median(planning), min(planning), max(planning))
    )


if __name__ == "__main__":
    main()
