# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Experts in main memory beside llama-fit-params: mixtures with the experts of none, half and all of their layers kept
by the head, on one and two RPC servers on the loopback.

weights, KV: devices (and the head) whose whole MiB are the same; total: error in percent of what llama.cpp says.
Over RPC no device works on experts that lie elsewhere, as a card of the head's own does: what that adds is not seen.

    experts.py 11434=DIR 7772=DIR        DIR holds llama-fit-params and the RPC server of that build
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "plugins"), str(HERE.parents[1])]
import oracle  # noqa: E402
from module_utils._model import gguf, memory  # noqa: E402
from unit import model_files  # noqa: E402

MIB = 1 << 20
MIXTURES = [
    "Qwen3 30B-A3B", "Qwen3 235B-A22B", "Mixtral 8x7B", "gpt-oss-120b", "DeepSeek V3 671B", "GLM-4.5-Air",
    "Granite 4 Small",
]  # fmt: skip
CONTEXTS = (4096, 32768)


def cases(build, folder, path, shape, name):
    """Yields what llama-fit-params says, a dict for each case."""
    for devices in (1, 2):
        each = shape.block_count // devices
        counts = [each] * (devices - 1) + [shape.block_count - each * (devices - 1)]
        with oracle.Servers(folder, devices) as servers:
            for cpu_moe in (0, shape.block_count // 2, shape.block_count):
                for ctx_size in CONTEXTS:
                    settings = memory.settings_of(build=build, ctx_size=ctx_size, parallel=1)
                    needs, host = oracle.fit_params(folder, build, path, servers.endpoints, counts, settings, cpu_moe)
                    yield {
                        "build": build,
                        "model": name,
                        "counts": counts,
                        "ctx_size": ctx_size,
                        "cpu_moe": cpu_moe,
                        "needs": needs,
                        "host": host,
                    }


def judged(case, shape):
    """-> ((weights equal, KV equal, error of the total in percent) of each device, (weights equal, error of the compute
    buffer in MiB) of the head)"""
    settings = memory.settings_of(build=case["build"], ctx_size=case["ctx_size"], parallel=1)
    placed = memory.place(shape.keeping(case["cpu_moe"]), settings, case["counts"], fit_params=True)
    rows = [
        (one.weights // MIB == need[0], one.kv // MIB == need[1], 100 * (one.total() / MIB / sum(need) - 1))
        for one, need in zip(placed.devices, case["needs"])
    ]
    host = case["host"]
    return rows, (placed.host.weights // MIB == host[0], placed.host.compute / MIB - host[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs="+", metavar="BUILD=DIR")
    parser.add_argument("--record", metavar="FILE", help="write what llama-fit-params said, for the unit tests")
    options = parser.parse_args()
    recorded = []
    print("| build | model | kept | devices | weights equal | KV equal | worst % | head: weights equal | MiB off |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in MIXTURES:
            path = Path(folder) / "m.gguf"
            model_files.MODELS[name]().write(path)
            shape = memory.read_shape(gguf.read_path(str(path)))
            for one in options.builds:
                build, programs = one.split("=", 1)
                found = list(cases(int(build), programs, str(path), shape, name))
                recorded += found
                for cpu_moe in sorted({case["cpu_moe"] for case in found}):
                    own = [judged(case, shape) for case in found if case["cpu_moe"] == cpu_moe]
                    rows = [row for case in own for row in case[0]]
                    print(
                        "| b%s | %s | %d of %d | %d | %d | %d | %+.3f | %d of %d | %+.1f |"
                        % (
                            build,
                            name,
                            cpu_moe,
                            shape.block_count,
                            len(rows),
                            sum(row[0] for row in rows),
                            sum(row[1] for row in rows),
                            max((row[2] for row in rows), key=abs),
                            sum(case[1][0] for case in own),
                            len(own),
                            max((case[1][1] for case in own), key=abs),
                        ),
                        flush=True,
                    )
    if options.record:
        Path(options.record).write_text("[\n" + ",\n".join(json.dumps(case) for case in recorded) + "\n]\n")


if __name__ == "__main__":
    main()
