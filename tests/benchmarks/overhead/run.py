"""What the deployment costs: the lab's deployed service beside the same programs started by hand with the same flags.

    python tests/benchmarks/overhead/run.py [--rounds 16] [--pairs 2] [--tokens 64]

Needs the lab of `make lab` (LLAMA_LAB_SLOT as there) and nothing else on the machine. Two more sets run as root with
nohup on the same nodes and other ports:
no unit, no user, no sandbox, no watchdog. The second of them is the control: what its ratio to the first is away from 1
is the machine's doing. All three are loaded and only one is asked at a time.

A round counts once. In it all sets are stopped and started three times, so that each is once the first, the second and
the last to start: starts of one set differ by up to a tenth for as long as they live, and the first after a stop was
the slowest. For the time of the benchmark the service is deployed with one thread: three nodes share this machine's
cores here, and with two threads each they mostly measure whose threads wait for whose.

A ratio is deployed to by hand (the mean of both), above 1 where the deployed one is faster. Fails where the lower end
of its 95 % interval is below 0.97.
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

import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
CACHE = pathlib.Path(
    os.environ.get("LLAMA_CLUSTER_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "llama-cluster")
)
SLOT = int(os.environ.get("LLAMA_LAB_SLOT") or 0)
UNITS = {"node1": "llama-head-chat.service", "node2": "llama-rpc-chat.service", "node3": "llama-rpc-chat.service"}
NODES = ("node2", "node3", "node1")  # workers, then the head
DEPLOYED, BY_HAND, CONTROL = SETS = ("deployed", "by hand", "control")
# Port of the head, port of the workers.
PORTS = {DEPLOYED: ("8000", "50052"), BY_HAND: ("8100", "50152"), CONTROL: ("8200", "50252")}
NEEDED = 0.97
PROMPT = "Tell a long story about three nodes that shared one model. " * 8
WARM_UP = 1


def on(node, *command):
    done = subprocess.run(
        ["docker", "exec", "llama-lab%d-%s" % (SLOT, node), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(
            "overhead: %s on %s ended with status %d: %s"
            % (" ".join(command)[:80], node, done.returncode, done.stdout.strip()[-400:])
        )
    return done.stdout


def deploy(**changes):
    """The lab's service with changed settings; without any as `make lab` has it."""
    services = yaml.safe_load((REPOSITORY / "inventories/lab/group_vars/all/services.yml").read_text())[
        "llama_services"
    ]
    services["chat"].update(changes)
    command = [".venv/bin/ansible-playbook", "playbooks/site.yml", "-i", "inventories/lab", "--tags", "rpc,head"]
    command += ["-e", json.dumps({"llama_services": services})] if changes else []
    done = subprocess.run(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit(
            "overhead: site.yml --tags rpc,head ended with status %d: %s"
            % (done.returncode, done.stdout.strip()[-2000:])
        )


def command_line(node, name):
    """The command line of a node's unit with the ports of a set."""
    start = [
        line[len("ExecStart=") :]
        for line in on(node, "systemctl", "cat", UNITS[node]).splitlines()
        if line.startswith("ExecStart=")
    ][-1]
    words = shlex.split(start)
    for port, other in zip(PORTS[DEPLOYED], PORTS[name], strict=True):
        words = [other if word == port else word.replace(":" + port, ":" + other) for word in words]
    if words == shlex.split(start):
        sys.exit(
            "overhead: %s of %s names no port of %s, the lab's own service is needed: make lab"
            % (UNITS[node], node, ", ".join(PORTS[DEPLOYED]))
        )
    return words


def start(name):
    """Workers, then the head -> when it answers."""
    for node in NODES:
        if name == DEPLOYED:
            on(node, "systemctl", "start", UNITS[node])
            continue
        command = " ".join(shlex.quote(word) for word in command_line(node, name))
        place = "/var/tmp/overhead-" + PORTS[name][0]
        on(
            node,
            "bash",
            "-c",
            "umask 022; nohup %s >%s.log 2>&1 </dev/null & echo $! >%s.pid" % (command, place, place),
        )
    wait_for(PORTS[name][0])


def stop_by_hand():
    for node in NODES:
        on(
            node,
            "bash",
            "-c",
            'for file in /var/tmp/overhead-*.pid; do [ ! -f "$file" ] || kill "$(cat "$file")"; done; rm -f '
            "/var/tmp/overhead-*",
        )


def stop_all():
    for node in reversed(NODES):
        on(node, "systemctl", "stop", UNITS[node])
    stop_by_hand()
    # Their memory is the machine's again before the next ones take it.
    for node in NODES:
        on(node, "bash", "-c", "while pgrep -x 'llama-server|ggml-rpc-server' >/dev/null; do sleep 0.1; done")


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
            sys.exit(
                "overhead: nothing answers on port %s after 300 s, see journalctl -u %s and /var/tmp/overhead-*.log on "
                "node1" % (port, UNITS["node1"])
            )
        time.sleep(0.5)


def ask(port, tokens):
    """-> (generated tokens per second as the server measured them, seconds of the whole request)"""
    request = {"prompt": PROMPT, "n_predict": tokens, "ignore_eos": True, "temperature": 0, "cache_prompt": False}
    started = time.monotonic()
    message = urllib.request.Request(
        "http://10.213.%d.11:%s/completion" % (SLOT, port),
        json.dumps(request).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(message, timeout=600) as reply:
        timings = json.load(reply)["timings"]
    if timings["predicted_n"] != tokens:
        sys.exit(
            "overhead: %d tokens came from port %s, %d are needed for a comparison"
            % (timings["predicted_n"], port, tokens)
        )
    return timings["predicted_per_second"], time.monotonic() - started


def student(freedom):
    """97.5 % quantile of Student's distribution (Cornish-Fisher expansion, exact to three digits from 10 degrees of
    freedom on)."""
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def interval(ratios):
    """Geometric mean of ratios and the 95 % interval of it."""
    logs = [math.log(ratio) for ratio in ratios]
    mean, half = statistics.mean(logs), student(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return tuple(round(math.exp(value), 4) for value in (mean, mean - half, mean + half))


def one_round(pairs, tokens):
    """-> {set: (generated tokens/s, seconds of a request)}, logarithms, each the mean of three starts."""
    found = {name: [] for name in SETS}
    for first in range(len(SETS)):
        order = SETS[first:] + SETS[:first]
        stop_all()
        for name in order:
            start(name)
        for pair in range(-WARM_UP, pairs):
            for name in order if pair % 2 else reversed(order):
                seen = ask(PORTS[name][0], tokens)
                if pair >= 0:
                    found[name].append([math.log(value) for value in seen])
    return {
        name: tuple(statistics.mean(column) for column in zip(*values, strict=True)) for name, values in found.items()
    }


def ratios(seen):
    """One round -> (tokens/s, speed of the whole request, tokens/s of the control): deployed to the mean of both by
    hand, control to the other by hand."""
    rate, whole = (seen[DEPLOYED][at] - (seen[BY_HAND][at] + seen[CONTROL][at]) / 2 for at in (0, 1))
    return math.exp(rate), math.exp(-whole), math.exp(seen[CONTROL][0] - seen[BY_HAND][0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument(
        "--pairs", type=int, default=2, help="requests to each set after each of a round's three starts"
    )
    parser.add_argument("--tokens", type=int, default=64)
    arguments = parser.parse_args()
    if arguments.rounds < 12:
        parser.error("--rounds: %d seen, at least 12 are needed for an interval" % arguments.rounds)
    deploy(threads=1)
    rounds = []
    try:
        for number in range(arguments.rounds):
            rounds.append(one_round(arguments.pairs, arguments.tokens))
            print(
                "%3d  tokens/s %.3f  whole request %.3f  control %.3f" % (number + 1, *ratios(rounds[-1])), flush=True
            )
    finally:
        stop_by_hand()
        for node in NODES:
            on(node, "systemctl", "start", UNITS[node])
        deploy()
    names = ("generated tokens/s", "whole request", "control, tokens/s")
    found = dict(zip(names, map(interval, zip(*map(ratios, rounds), strict=True)), strict=True))
    report = CACHE / "reports" / ("llama-lab%d" % SLOT) / "overhead.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(json.dumps({"rounds": rounds, "tokens": arguments.tokens, **found}, indent=1))
    starts, requests = len(SETS) * arguments.rounds, len(SETS) * arguments.rounds * arguments.pairs
    print(
        "deployed to by hand, %d rounds, %d starts and %d requests of %d tokens each: "
        % (arguments.rounds, starts, requests, arguments.tokens),
        end="",
    )
    print("geometric mean of the ratio (95 % interval)")
    for name, values in found.items():
        print("%-20s %.3f (%.3f to %.3f)" % (name, *values))
    speeds = [math.exp(statistics.mean(seen[name][0] for seen in rounds)) for name in SETS]
    print("tokens/s: %s; %s" % (", ".join("%s %.2f" % pair for pair in zip(SETS, speeds, strict=True)), report))
    return min(found[name][1] for name in names[:2]) < NEEDED


if __name__ == "__main__":
    sys.exit(main())
