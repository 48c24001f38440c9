# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seconds that a head needs to load a model over two workers: without a tensor cache, with an empty one, and with a
full one.

    run.py RELEASE MODEL.gguf --nodes CONTAINER CONTAINER CONTAINER --addresses ADDRESS ADDRESS ADDRESS [--rounds 5]
    [--rate 100mbit]

RELEASE is a directory of built programs that the containers see too (bin/llama-server, ggml-rpc-server, fnv1a64), as
they see the model and this checkout. The first container is the head. Each round runs every way once, one after the
other, with workers started afresh; the page cache stays warm, the network is the engine's bridge, limited to --rate in
both directions where that is given.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WAYS = ("no cache", "cache, empty", "cache, full")
FOLDER = "/var/tmp/rpc-cache"
PORT = 50099


def inside(node, command, **options):
    return subprocess.run(["docker", "exec", node, "bash", "-c", command], check=True, **options)


def start_worker(node, address, release, way):
    inside(node, "rm -rf %s; mkdir -p /tmp/lib" % FOLDER if way != WAYS[2] else "true")
    inside(
        node,
        "mkdir -p %s; chown nobody %s; ln -sfn %s/plugins/module_utils /tmp/lib/llama_cluster" % (FOLDER, FOLDER, ROOT),
    )
    server = "stdbuf -oL %s/bin/ggml-rpc-server --host %s --port %d --threads 1" % (release, address, PORT)
    if way != WAYS[0]:
        server = "env PYTHONPATH=/tmp/lib python3 -s -B -m llama_cluster.rpc_cache run %s 50G %s %s --cache" % (
            FOLDER,
            release,
            server,
        )
    command = (
        "trap '' PIPE; exec setpriv --reuid nobody --regid nogroup --clear-groups %s >/tmp/worker.log 2>&1" % server
    )
    subprocess.check_call(["docker", "exec", "-d", node, "bash", "-c", command])
    inside(node, "until ss -ltnH sport = :%d | grep -q .; do sleep 0.1; done" % PORT)


def received(node, address):
    text = inside(
        node,
        "cat /sys/class/net/$(ip -o -4 addr show to %s | cut -d ' ' -f 2)/statistics/rx_bytes" % address,
        stdout=subprocess.PIPE,
        text=True,
    )
    return int(text.stdout)


def load(nodes, addresses, release, model):
    """-> (seconds until the head is healthy, seconds of CPU it used, an answer)"""
    endpoints = ",".join("%s:%d" % (address, PORT) for address in addresses[1:])
    command = (
        "exec %s/bin/llama-server --model %s --host %s --port 8099 --rpc %s --n-gpu-layers 999 --fit off "
        "--tensor-split 4,5"
        % (
            release,
            model,
            addresses[0],
            endpoints,
        )
    )
    command += " --ctx-size 512 --parallel 1 --threads 1 --cache-ram 0 --no-warmup >/tmp/head.log 2>&1"
    url = "http://%s:8099" % addresses[0]
    begun = time.monotonic()
    head = subprocess.Popen(["docker", "exec", nodes[0], "bash", "-c", command])
    try:
        while True:
            try:
                if urllib.request.urlopen(url + "/health", timeout=5).status == 200:
                    break
            except OSError:
                pass
            if head.poll() is not None:
                raise SystemExit("the head ended: see /tmp/head.log in %s" % nodes[0])
            time.sleep(0.05)
        seconds = time.monotonic() - begun
        question = json.dumps({"prompt": "The sea", "n_predict": 8, "temperature": 0}).encode()
        request = urllib.request.Request(url + "/completion", question, {"Content-Type": "application/json"})
        answer = json.load(urllib.request.urlopen(request, timeout=120))["content"]
    finally:
        subprocess.call(["docker", "exec", nodes[0], "pkill", "-x", "llama-server"])
        head.wait()
    return seconds, answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release")
    parser.add_argument("model")
    parser.add_argument("--nodes", nargs=3, required=True)
    parser.add_argument("--addresses", nargs=3, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", default="")
    arguments = parser.parse_args()
    nodes, addresses = arguments.nodes, arguments.addresses
    for node, address in zip(nodes, addresses):
        device = "$(ip -o -4 addr show to %s | cut -d ' ' -f 2)" % address
        inside(node, "tc qdisc del dev %s root 2>/dev/null; true" % device)
        if arguments.rate:
            inside(node, "tc qdisc add dev %s root tbf rate %s burst 256kb latency 200ms" % (device, arguments.rate))
    seconds = {way: [] for way in WAYS}
    moved = {way: [] for way in WAYS}
    answers = set()
    for number in range(arguments.rounds):
        for way in WAYS:
            for node, address in zip(nodes[1:], addresses[1:]):
                start_worker(node, address, arguments.release, way)
            before = sum(received(node, address) for node, address in zip(nodes[1:], addresses[1:]))
            taken, answer = load(nodes, addresses, arguments.release, arguments.model)
            bytes_moved = sum(received(node, address) for node, address in zip(nodes[1:], addresses[1:])) - before
            seconds[way].append(taken)
            moved[way].append(bytes_moved)
            answers.add(answer)
            # What was written last is proved a second later.
            time.sleep(3 if way == WAYS[1] else 0)
            for node in nodes[1:]:
                subprocess.call(["docker", "exec", node, "pkill", "-x", "ggml-rpc-server"])
                inside(node, "while pgrep -x ggml-rpc-server >/dev/null; do sleep 0.1; done")
            print(
                "round %d %-12s %6.1f s %8.1f MB, load %.1f"
                % (number + 1, way, taken, bytes_moved / 1e6, os.getloadavg()[0]),
                flush=True,
            )
    print("%-14s %10s %18s %10s" % ("way", "median s", "all", "MB"))
    for way in WAYS:
        times = " ".join("%.1f" % one for one in sorted(seconds[way]))
        print(
            "%-14s %10.1f %18s %10.0f"
            % (way, statistics.median(seconds[way]), times, statistics.median(moved[way]) / 1e6)
        )
    print("answers: %s" % ("the same every time" if len(answers) == 1 else sorted(answers)))


if __name__ == "__main__":
    main()
