"""What the deployment costs: the lab's deployed service beside the same programs started by hand with the same flags.

    python tests/benchmarks/overhead/run.py [--rounds 16] [--pairs 5] [--tokens 64]

Needs the lab of `make lab` (LLAMA_LAB_BASE as there). The second set runs as root with nohup on the same nodes and other ports: no unit, no user, no sandbox,
no watchdog. Both are loaded and only one is asked at a time; each pair asks both the same, in an order that changes from pair to pair. Every round starts
both sets anew, in an order that changes from round to round: two starts of one set differ by some percent for as long as they live. A ratio is deployed to by
hand, above 1 where the deployed one is faster; a round counts once. Fails where the lower end of the 95 % interval of a ratio is below 0.97.
"""

import argparse
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time
import urllib.request

CACHE = pathlib.Path(os.environ.get("LLAMA_CLUSTER_CACHE") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "llama-cluster"))
SLOT = int(os.environ.get("LLAMA_LAB_BASE") or 0)
UNITS = {"node1": "llama-head-chat.service", "node2": "llama-rpc-chat.service", "node3": "llama-rpc-chat.service"}
# Ports of the deployed service, and of the second set.
PORTS = {"8000": "8100", "50052": "50152"}
NEEDED = 0.97
PROMPT = "Tell a long story about three nodes that shared one model. " * 8
WARM_UP = 1


def on(node, *command):
    done = subprocess.run(
        ["docker", "exec", "llama-lab%d-%s" % (SLOT, node), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit("overhead: %s on %s ended with status %d: %s" % (" ".join(command)[:80], node, done.returncode, done.stdout.strip()[-400:]))
    return done.stdout


def by_hand(node):
    """The command line of a node's unit with the ports of the second set."""
    start = [line[len("ExecStart=") :] for line in on(node, "systemctl", "cat", UNITS[node]).splitlines() if line.startswith("ExecStart=")][-1]
    words = shlex.split(start)
    for port, other in PORTS.items():
        words = [other if word == port else word.replace(":" + port, ":" + other) for word in words]
    if words == shlex.split(start):
        sys.exit("overhead: %s of %s names no port of %s, the lab's own service is needed: make lab" % (UNITS[node], node, ", ".join(PORTS)))
    return words


def start_by_hand():
    """Workers, then the head."""
    for node in ("node2", "node3", "node1"):
        command = " ".join(shlex.quote(word) for word in by_hand(node))
        shell = "umask 022; nohup %s >/var/tmp/by-hand.log 2>&1 </dev/null & echo $! >/var/tmp/by-hand.pid" % command
        on(node, "bash", "-c", shell)
    wait_for(PORTS["8000"])


def restart_deployed():
    on("node1", "systemctl", "stop", UNITS["node1"])
    for node in ("node2", "node3"):
        on(node, "systemctl", "restart", UNITS[node])
    on("node1", "systemctl", "start", UNITS["node1"])
    wait_for("8000")


def wait_for(port):
    deadline = time.monotonic() + 300
    while True:
        try:
            with urllib.request.urlopen("http://10.213.%d.11:%s/health" % (SLOT, port), timeout=5) as reply:
                if reply.status == 200:
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            sys.exit("overhead: nothing answers on port %s after 300 s, see journalctl -u %s and /var/tmp/by-hand.log on node1" % (port, UNITS["node1"]))
        time.sleep(0.5)


def stop_by_hand():
    for node in ("node1", "node2", "node3"):
        on(node, "bash", "-c", "kill $(cat /var/tmp/by-hand.pid 2>/dev/null) 2>/dev/null; rm -f /var/tmp/by-hand.pid /var/tmp/by-hand.log; true")


def ask(port, tokens):
    """-> (generated tokens per second as the server measured them, seconds of the whole request)"""
    request = {"prompt": PROMPT, "n_predict": tokens, "ignore_eos": True, "temperature": 0, "cache_prompt": False}
    started = time.monotonic()
    message = urllib.request.Request("http://10.213.%d.11:%s/completion" % (SLOT, port), json.dumps(request).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(message, timeout=600) as reply:
        timings = json.load(reply)["timings"]
    if timings["predicted_n"] != tokens:
        sys.exit("overhead: %d tokens came from port %s, %d are needed for a comparison" % (timings["predicted_n"], port, tokens))
    return timings["predicted_per_second"], time.monotonic() - started


def student(freedom):
    """97.5 % quantile of Student's distribution (Cornish-Fisher expansion, exact to three digits from 10 degrees of freedom on)."""
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def interval(ratios):
    """Geometric mean of ratios and the 95 % interval of it."""
    logs = [math.log(ratio) for ratio in ratios]
    mean, half = statistics.mean(logs), student(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return tuple(round(math.exp(value), 4) for value in (mean, mean - half, mean + half))


def one_round(number, pairs, tokens):
    """Both sets started anew -> [(deployed, by hand), ...], each as ask() returns it."""
    stop_by_hand()
    for start in (restart_deployed, start_by_hand) if number % 2 else (start_by_hand, restart_deployed):
        start()
    found = []
    for pair in range(-WARM_UP, pairs):
        ports = ("8000", PORTS["8000"])
        seen = {port: ask(port, tokens) for port in (ports if (pair + number) % 2 else reversed(ports))}
        if pair >= 0:
            found.append(tuple(seen[port] for port in ports))
    return found


def ratios(pairs):
    """Geometric means over pairs: (generated tokens/s, speed of the whole request), deployed to by hand."""
    rates = [math.log(deployed[0] / hand[0]) for deployed, hand in pairs]
    whole = [math.log(hand[1] / deployed[1]) for deployed, hand in pairs]
    return math.exp(statistics.mean(rates)), math.exp(statistics.mean(whole))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    arguments = parser.parse_args()
    if arguments.rounds < 12:
        parser.error("--rounds: %d seen, at least 12 are needed for an interval" % arguments.rounds)
    if arguments.rounds * arguments.pairs < 30:
        parser.error("--pairs: %d in all seen, at least 30 are needed for an interval" % (arguments.rounds * arguments.pairs))
    rounds = []
    try:
        for number in range(arguments.rounds):
            rounds.append(one_round(number, arguments.pairs, arguments.tokens))
            print("%3d  tokens/s %.3f  whole request %.3f" % (number + 1, *ratios(rounds[-1])), flush=True)
    finally:
        stop_by_hand()
    found = list(zip(*map(ratios, rounds), strict=True))
    rates, whole = interval(found[0]), interval(found[1])
    report = CACHE / "reports" / ("llama-lab%d" % SLOT) / "overhead.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(json.dumps({"rounds": rounds, "tokens": arguments.tokens, "tokens_per_second": rates, "whole_request": whole}, indent=1))
    pairs = arguments.rounds * arguments.pairs
    print("deployed to by hand, %d rounds, %d pairs of %d tokens: geometric mean of the ratio (95 %% interval)" % (arguments.rounds, pairs, arguments.tokens))
    for name, values in (("generated tokens/s", rates), ("whole request", whole)):
        print("%-20s %.3f (%.3f to %.3f)" % (name, *values))
    medians = [statistics.median(pair[who][0] for pairs in rounds for pair in pairs) for who in (0, 1)]
    print("medians: %.2f and %.2f tokens/s; %s" % (*medians, report))
    return min(rates[1], whole[1]) < NEEDED


if __name__ == "__main__":
    sys.exit(main())
