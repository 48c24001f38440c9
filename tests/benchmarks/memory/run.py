# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory formulas beside llama-fit-params, on header-only files of real models: three RPC servers on the loopback,
three contexts, three cache types.

weights, KV: devices whose whole MiB are the same; total: weights, KV cache and compute buffer of a device, error in
percent of what llama.cpp says. The second table is other settings on one to three devices.

    run.py 11434=DIR 7772=DIR        DIR holds llama-fit-params and the RPC server of that build
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
CONTEXTS, TYPES, DEVICES = (4096, 16384, 32768), ("f16", "q8_0", "q4_0"), 3
OTHERS = {
    "context 65536": {"ctx_size": 65536},
    "context 131072": {"ctx_size": 131072},
    "ubatch 256": {"ubatch_size": 256},
    "ubatch 2048": {"ubatch_size": 2048},
    "4 slots": {"parallel": 4},
    "3 slots, context 8192": {"parallel": 3, "ctx_size": 8192},
    "no flash attention": {"flash_attn": False},
}


def cases(build, folder, endpoints, path, shape):
    """Yields (case, [Need], [own]) with an entry per device; own: (weights, KV, compute) in bytes."""
    third = shape.block_count // DEVICES
    counts = [third + 1, third, shape.block_count - 2 * third - 1]
    for ctx_size in CONTEXTS:
        for cache_type in TYPES:
            settings = memory.settings_of(
                build=build, ctx_size=ctx_size, parallel=1, cache_type_k=cache_type, cache_type_v=cache_type
            )
            needs, _host = oracle.fit_params(folder, build, path, endpoints, counts, settings)
            own = memory.place(shape, settings, counts, fit_params=True).devices
            case = {"build": build, "counts": counts, "ctx_size": ctx_size, "cache_type": cache_type}
            yield case, needs, [(mine.weights, mine.kv, mine.compute) for mine in own]


def row(name, found):
    """One line of a table."""
    errors, weights, caches = [], 0, 0
    for need, own in ((need, own) for case in found for need, own in zip(case[1], case[2])):
        weights += own[0] // MIB == need.weights
        caches += own[1] // MIB == need.kv
        total = need.weights + need.kv + need.compute
        errors.append(100 * (sum(own) / MIB - total) / total)
    mean = sum(map(abs, errors)) / len(errors)
    worst = max(errors, key=abs)
    return "| %-18s | %5d | %7d | %5d | %6.3f | %+7.3f |" % (name, len(errors), weights, caches, mean, worst)


def others(build, folder, paths, title):
    """One line of the third table: all models with these settings on one, two and three devices."""
    worst, weights, caches, count = [], 0, 0, 0
    for devices in (1, 2, 3):
        errors = []
        with oracle.Servers(folder, devices) as servers:
            for path in paths.values():
                shape = memory.read_shape(gguf.read_path(str(path)))
                each = shape.block_count // devices
                counts = [each] * (devices - 1) + [shape.block_count - each * (devices - 1)]
                settings = memory.settings_of(
                    **dict({"build": build, "ctx_size": 16384, "parallel": 1}, **OTHERS[title])
                )
                needs, _host = oracle.fit_params(folder, build, path, servers.endpoints, counts, settings)
                for need, mine in zip(needs, memory.place(shape, settings, counts, fit_params=True).devices):
                    count += 1
                    weights += mine.weights // MIB == need.weights
                    caches += mine.kv // MIB == need.kv
                    errors.append(100 * (mine.total() / MIB / sum(need) - 1))
        worst.append("%+.3f" % max(errors, key=abs))
    return "| %-21s | %5d | %7d | %5d | %s |" % (title, count, weights, caches, " | ".join(worst))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs="+", metavar="BUILD=DIR")
    parser.add_argument("--record", metavar="FILE", help="write what llama-fit-params said, for the unit tests")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / (name + ".gguf") for name in model_files.MODELS}
        for name, path in paths.items():
            model_files.MODELS[name]().write(path)
        recorded = []
        for one in options.builds:
            build, programs = one.split("=", 1)
            found = {}
            with oracle.Servers(programs, DEVICES) as servers:
                for name, path in paths.items():
                    shape = memory.read_shape(gguf.read_path(str(path)))
                    found[name] = list(cases(int(build), programs, servers.endpoints, str(path), shape))
            recorded += [
                dict(case, model=name, needs=needs) for name, cases_ in found.items() for case, needs, _own in cases_
            ]
            found["all"] = [case for cases_ in found.values() for case in cases_]
            print("\nb%s, the formulas of this collection" % build)
            print("| %-18s | cases | weights | KV    | mean %% | worst %% |" % "model")
            print("|%s|-------|---------|-------|--------|---------|" % ("-" * 20))
            for name, cases_ in found.items():
                print(row(name, cases_))
            print("\nb%s, other settings: worst error of a device's total in percent" % build)
            print("| settings              | cases | weights | KV    | 1 device | 2 devices | 3 devices |")
            print("|%s|-------|---------|-------|----------|-----------|-----------|" % ("-" * 23))
            for title in OTHERS:
                print(others(int(build), programs, paths, title), flush=True)
    if options.record:
        # One case in three holds every context and every type.
        kept = [case for case in recorded if CONTEXTS.index(case["ctx_size"]) == TYPES.index(case["cache_type"])]
        Path(options.record).write_text("[\n" + ",\n".join(json.dumps(case) for case in kept) + "\n]\n")


if __name__ == "__main__":
    main()
