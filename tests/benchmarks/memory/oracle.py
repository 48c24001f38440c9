# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of a model by llama.cpp itself: llama-fit-params with RPC servers on the loopback, and the log of a
load."""

import re
import socket
import subprocess
import threading
import time
from collections import namedtuple
from pathlib import Path

from module_utils._llama import load_log  # its importer has added it to sys.path

Need = namedtuple("Need", "weights kv compute")
"""weights, kv: whole MiB, as llama.cpp prints them; compute: MiB in hundredths."""

_COMPUTE = re.compile(r" (\S+) compute buffer size = +([0-9.]+) MiB")
_PRINTED = re.compile(r"^(?:RPC[0-9]+|Host) ([0-9]+) ([0-9]+) ([0-9]+) *$", re.M)  # -fitp on
_BREAKDOWN = re.compile(
    r"\| +- (?:RPC[0-9]+|Host) .*= +\(?(?:[0-9]+ = +)?([0-9]+) \+ +([0-9]+) \+ +([0-9]+)[) ]"
)  # in the log of b7772

READY = ("server is listening", "all slots are idle", "model loaded")


class Servers(object):
    """RPC servers on free loopback ports, for one build; ``with Servers(bin, 3) as servers: servers.endpoints``."""

    def __init__(self, folder, count):
        program = next(
            path for path in (Path(folder) / "ggml-rpc-server", Path(folder) / "rpc-server") if path.exists()
        )
        self.endpoints, self.processes = [], []
        for _number in range(count):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            self.processes.append(
                subprocess.Popen([program, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            self.endpoints.append("127.0.0.1:%d" % port)

    def __enter__(self):
        deadline = time.monotonic() + 10
        for endpoint in self.endpoints:
            host, port = endpoint.split(":")
            while True:
                try:
                    socket.create_connection((host, int(port)), 1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
        return self

    def __exit__(self, *_error):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()


def fit_params(folder, build, model, endpoints, counts, settings, cpu_moe=0):
    """-> ([Need of each device], Need of the host); cpu_moe: how many layers keep their experts with the host"""
    command = [
        str(Path(folder) / "llama-fit-params"), "-m", str(model), "--rpc", ",".join(endpoints), "-ngl", "999",
        "-ts", ",".join(map(str, counts[:-1] + [counts[-1] + 1])), "-c", str(settings.ctx_size), "-ub",
        str(settings.ubatch_size),
        "-ctk", settings.cache_type_k, "-ctv", settings.cache_type_v, "-fa", "on" if settings.flash_attn else "off",
        "-np", str(settings.parallel),
    ]  # fmt: skip
    if settings.kv_unified:
        command.append("-kvu")
    if settings.swa_full:
        command.append("--swa-full")
    # Weights that its CPU backend lays out anew are in none of the lines that the program prints.
    command += ["--n-cpu-moe", str(cpu_moe), "--no-repack"] if cpu_moe else []
    command += ["-fitp", "on", "-lv", "5"] if build > 7772 else ["-v"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    text = done.stdout + done.stderr
    rows = _PRINTED.findall(done.stdout) if build > 7772 else _BREAKDOWN.findall(text)[: len(endpoints) + 1]
    compute = {name: float(size) for name, size in _COMPUTE.findall(text)}
    if len(rows) != len(endpoints) + 1:
        raise RuntimeError("%s\n%s" % (" ".join(command), text[-3000:]))
    names = ["RPC0[%s]" % endpoint for endpoint in endpoints]
    # The program may end before the last lines of its log are written: then the whole MiB of its table count.
    needs = [
        Need(int(weights), int(kv), compute.get(name, float(whole))) for (weights, kv, whole), name in zip(rows, names)
    ]
    weights, kv, compute_mib = rows[-1]
    return needs, Need(int(weights), int(kv), compute.get("CPU", float(compute_mib)))


def load(folder, build, settings, words):
    """-> what the log of a load by llama-server says, as load_log.parse tells it; words: the model and where it goes"""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(Path(folder) / "llama-server"), "-c", str(settings.ctx_size), "-ub", str(settings.ubatch_size), "-fa", "on",
        "--fit", "off", "--no-warmup", "--port", str(port), *words,
    ]  # fmt: skip
    command += ["-np", str(settings.parallel)] if settings.parallel else []
    command += ["-lv", "4"] if build > 7772 else []
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    late = threading.Timer(300, server.kill)
    late.start()
    lines = []
    for line in server.stdout:
        lines.append(line)
        if any(sign in line for sign in READY):
            break
    server.terminate()
    server.communicate()
    late.cancel()
    if not lines or not any(sign in lines[-1] for sign in READY):
        raise RuntimeError("%s\n%s" % (" ".join(command), "".join(lines[-20:])))
    return load_log.parse(lines)
