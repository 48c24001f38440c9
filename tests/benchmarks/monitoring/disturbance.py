"""What monitoring costs a service: tokens/s with samplers, Prometheus and alertmanager running, and with all of them
stopped, in turn.

    python tests/benchmarks/monitoring/disturbance.py [--pairs 40]

Needs the lab that drills.py needs. The service is split over two workers, and its three nodes, the samplers and
Prometheus share this machine's processors: on a cluster each node has one sampler. Ends with status 1 where the lower
95 % bound of the ratio is below 0.98. Says how much of a processor and of memory a sampler took meanwhile.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gateway"))
from overhead import student  # noqa: E402 - beside this directory

SLOT = int(os.environ.get("LLAMA_LAB_SLOT") or 0)
NODES = ["llama-lab%d-node%d" % (SLOT, number) for number in (1, 2, 3)]
NEEDED = 0.98
TOKENS = 256
BODY = {
    "messages": [{"role": "user", "content": "Tell a long story about three nodes that shared one model."}],
    "max_tokens": TOKENS,
    "temperature": 0,
    "ignore_eos": True,
    "cache_prompt": False,
}


def inside(node, command):
    return subprocess.run(
        ["docker", "exec", node, "sh", "-c", command], capture_output=True, text=True, check=True
    ).stdout


def everywhere(verb):
    started = [
        subprocess.Popen(["docker", "exec", node, "systemctl", verb, "llama-sampler"], stdout=subprocess.DEVNULL)
        for node in NODES
    ]
    inside(NODES[2], "systemctl %s prometheus prometheus-alertmanager" % verb)
    for one in started:
        one.wait()


def tokens_per_second():
    line = (
        "curl -sS --max-time 120 -H 'Content-Type: application/json' -d @- http://10.213.%d.11:8000/v1/chat/completions"
    )
    command = ["docker", "exec", "-i", NODES[0], "sh", "-c", line % SLOT]
    told = subprocess.run(command, input=json.dumps(BODY), capture_output=True, text=True, check=True).stdout
    return json.loads(told)["timings"]["predicted_per_second"]


def used(node):
    """(processor seconds, bytes of memory) of its sampler so far, as the kernel counts them of its process."""
    command = "pid=$(systemctl show --property=MainPID --value llama-sampler) && cat /proc/$pid/stat && getconf CLK_TCK"
    command += " && awk '/VmRSS/ {print $2}' /proc/$pid/status"
    stat, ticks, resident = inside(node, command).splitlines()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / int(ticks), int(resident) * 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=40)
    arguments = parser.parse_args()
    if arguments.pairs < 30:
        parser.error("--pairs: %d seen, at least 30 are needed for an interval" % arguments.pairs)
    began = time.monotonic()
    before = [used(node)[0] for node in NODES]
    time.sleep(60)
    after = [used(node) for node in NODES]
    took = time.monotonic() - began
    for node, start, (end, memory) in zip(NODES, before, after, strict=True):
        print(
            "%s: sampler %.2f %% of a processor, %.1f MB" % (node, (end - start) / took * 100, memory / 1e6), flush=True
        )
    logs, speeds = [], []
    for number in range(-2, arguments.pairs):
        seen = {}
        for way in ("stop", "start") if number % 2 else ("start", "stop"):
            everywhere(way)
            time.sleep(4)  # what starts has started
            seen[way] = tokens_per_second()
        if number >= 0:
            logs.append(math.log(seen["start"] / seen["stop"]))
            speeds.append(seen["stop"])
    everywhere("start")
    half = student(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    mean, low, high = (math.exp(statistics.mean(logs) + one * half) for one in (0, -1, 1))
    print(
        "tokens/s with monitoring against without, %d interleaved pairs of %d tokens at %.0f tokens/s: ratio %.3f "
        "(95 %%: %.3f to %.3f), load %.1f"
        % (len(logs), TOKENS, statistics.median(speeds), mean, low, high, os.getloadavg()[0])
    )
    return int(low < NEEDED)


if __name__ == "__main__":
    sys.exit(main())
