# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory formulas beside real loads: llama-server with one to three RPC workers on the loopback, three contexts,
three cache types, one and four slots.

weights, KV: largest difference of a worker in MiB from what the log of the load says; compute: the same.

    loads.py 11434=DIR 7772=DIR --model FILE --model FILE        DIR holds llama-server and the RPC server of that build
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "plugins")]
import oracle  # noqa: E402
from module_utils._model import gguf, memory  # noqa: E402

MIB = 1 << 20
CONTEXTS, TYPES, WORKERS = (2048, 4096, 8192), ("f16", "q8_0", "q4_0"), (1, 2, 3)
SLOTS = ({"parallel": 1}, {"parallel": 4, "kv_unified": False}, {"parallel": None})


def load(folder, build, model, endpoints, counts, settings):
    """-> {endpoint: what the log of one load says of it}"""
    words = [
        "-m", model, "--rpc", ",".join(endpoints), "-ngl", "999", "-ts",
        ",".join(map(str, counts[:-1] + [counts[-1] + 1])), "-ctk", settings.cache_type_k, "-ctv",
        settings.cache_type_v,
    ]  # fmt: skip
    loaded = oracle.load(folder, build, settings, words)
    return {device["endpoint"]: device for device in loaded["devices"] if device["endpoint"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs="+", metavar="BUILD=DIR")
    parser.add_argument("--model", action="append", required=True)
    options = parser.parse_args()
    print("| build | model | loads | workers | weights, MiB | KV, MiB | compute, MiB |")
    print("|---|---|---|---|---|---|---|")
    for one in options.builds:
        build, folder = int(one.split("=")[0]), one.split("=", 1)[1]
        for model in options.model:
            shape = memory.read_shape(gguf.read_path(model))
            loads, worst = 0, {"weights": [], "kv": [], "compute": []}
            for workers in WORKERS:
                each = shape.block_count // workers
                counts = [each] * (workers - 1) + [shape.block_count - each * (workers - 1)]
                with oracle.Servers(folder, workers) as servers:
                    for ctx_size in CONTEXTS:
                        for cache_type in TYPES:
                            for slots in SLOTS:
                                settings = memory.settings_of(
                                    build=build,
                                    ctx_size=ctx_size,
                                    cache_type_k=cache_type,
                                    cache_type_v=cache_type,
                                    **slots,
                                )
                                said = load(folder, build, model, servers.endpoints, counts, settings)
                                loads += 1
                                for endpoint, mine in zip(
                                    servers.endpoints, memory.place(shape, settings, counts).devices
                                ):
                                    for kind, name in (
                                        ("weights", "model_mib"),
                                        ("kv", "kv_mib"),
                                        ("compute", "compute_mib"),
                                    ):
                                        worst[kind].append(getattr(mine, kind) / MIB - said[endpoint][name])
            shown = ["%+.2f" % max(worst[kind], key=abs) for kind in ("weights", "kv", "compute")]
            print(
                "| b%d | %s | %d | %d | %s |" % (build, Path(model).name, loads, len(worst["kv"]), " | ".join(shown)),
                flush=True,
            )


if __name__ == "__main__":
    main()
