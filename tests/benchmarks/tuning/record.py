"""Records full grids of settings on this machine, round after round, for regret.py.

    python tests/benchmarks/tuning/record.py SERVER MODEL.gguf OUT.json [--rounds 5] [--tokens 12]

SERVER is a llama-server that runs here. Each round starts it once for each combination of the settings and asks it as
llama_bench does: one request at a time, then three. What else the machine does meanwhile is the noise.
"""

import argparse
import datetime
import itertools
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / ".collections"))

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench import run  # noqa: E402
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._files import sha256_file  # noqa: E402
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.race import tune_measured  # noqa: E402

SLOT = 512
AXES = {"threads": (1, 2), "ubatch_size": (16, 128), "flash_attn": ("on", "off"), "parallel": (1, 3)}
DEPLOYED = {"threads": 2, "ubatch_size": 128, "flash_attn": "on", "parallel": 1}
PROMPT = (REPOSITORY / "roles/acceptance/files/prompts/short.txt").read_text()


def named(changes):
    found = {name: value for name, value in changes.items() if value != DEPLOYED[name]}
    return ", ".join(f"{name} {value}" for name, value in found.items()) or "as deployed"


def candidates():
    found = [dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values())]
    return sorted(found, key=lambda one: one != DEPLOYED)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_until_ready(port, process):
    for _attempt in range(600):
        if process.poll() is not None:
            raise SystemExit("llama-server ended: %s" % process.returncode)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("llama-server does not get ready")


def ask(server, model, one, number, tokens):
    """A candidate, started, measured and ended -> its record"""
    port = free_port()
    argv = [server, "--model", model, "--host", "127.0.0.1", "--port", str(port), "--metrics", "--no-webui"]
    argv += ["--ctx-size", str(SLOT * one["parallel"]), "--cache-ram", "0"]
    for name, value in one.items():
        argv += ["--" + name.replace("_", "-"), str(value)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(port, process)
        asked = run.Asked(None, tokens, True, False, 120)
        url = f"http://127.0.0.1:{port}"
        cells = [
            run.measure(url, None, run.Cell("short", PROMPT, 32, 1, 2, 1), asked),
            run.measure(url, None, run.Cell("short", PROMPT, 32, 3, 3, 0), asked),
        ]
        peak = int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1]) >> 10
    finally:
        process.kill()
        process.wait()
    return tune_measured(named(one), number, cells, peak)


def packed(found, records):
    """A file that a person can read: a line for each measurement."""
    columns = list(records[0])
    rows = ",\n".join(json.dumps([one[column] for column in columns]) for one in records)
    head = json.dumps(found, indent=1)[: -len("\n}")]
    return f'{head},\n "columns": {json.dumps(columns)},\n "records": [\n{rows}\n]}}\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server")
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=12)
    given = parser.parse_args()
    records, began, every = [], time.time(), candidates()
    for number in range(1, given.rounds + 1):
        for one in every[number % len(every) :] + every[: number % len(every)]:
            records.append(ask(given.server, given.model, one, number, given.tokens))
            print(json.dumps(records[-1]), flush=True)
    version = subprocess.run([given.server, "--version"], capture_output=True, text=True, check=True)
    found = {
        "at": datetime.datetime.fromtimestamp(began, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": round(time.time() - began),
        "build": re.search(r"build (\d+)", version.stderr + version.stdout)[1],
        "model": os.path.basename(given.model),
        "sha256": sha256_file(given.model),
        "cpu": re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[1],
        "cores": os.cpu_count(),
        "slot_ctx_size": SLOT,
        "tokens": given.tokens,
        "axes": AXES,
        "candidates": {named(one): one for one in every},
    }
    pathlib.Path(given.out).write_text(packed(found, records))


if __name__ == "__main__":
    main()
