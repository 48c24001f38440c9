# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory formulas beside real loads: llama-server with one to three RPC workers on the loopback, three contexts,
three cache types, one and four slots.

weights, KV: largest difference of a worker in MiB from what the log of the load says; compute: the same.

    loads.py 11434=DIR 7772=DIR --model FILE --model FILE        DIR holds llama-server and the RPC server of that build
"""

import argparse
import socket
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "plugins")]
import oracle  # noqa: E402
from module_utils._llama import load_log  # noqa: E402
from module_utils._model import gguf, memory  # noqa: E402

MIB = 1 << 20
CONTEXTS, TYPES, WORKERS = (2048, 4096, 8192), ("f16", "q8_0", "q4_0"), (1, 2, 3)
SLOTS = ({"parallel": 1}, {"parallel": 4, "kv_unified": False}, {"parallel": None})
READY = ("server is listening", "all slots are idle", "model loaded")


def load(folder, build, model, endpoints, counts, settings):
    """-> what the log of one load says, as load_log.parse tells it"""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(Path(folder) / "llama-server"), "-m", model, "--rpc", ",".join(endpoints), "-ngl", "999", "-ts",
        ",".join(map(str, counts[:-1] + [counts[-1] + 1])),
        "-c", str(settings.ctx_size), "-ub", str(settings.ubatch_size), "-ctk", settings.cache_type_k, "-ctv",
        settings.cache_type_v, "-fa", "on",
        "--fit", "off", "--no-warmup", "--port", str(port),
    ]  # fmt: skip
    command += ["-np", str(settings.parallel)] if settings.parallel else []
    command += ["-lv", "4"] if build > 7772 else []
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    late = threading.Timer(120, server.kill)
    late.start()
    lines = []
    for line in server.stdout:
        lines.append(line)
        if any(sign in line for sign in READY):
            break
    server.terminate()
    server.communicate()
    late.cancel()
    told = load_log.parse(lines)
    if not lines or not any(sign in lines[-1] for sign in READY):
        raise RuntimeError("%s\n%s" % (" ".join(command), "".join(lines[-20:])))
    return {device["endpoint"]: device for device in told["devices"] if device["endpoint"]}


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
