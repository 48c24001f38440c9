"""Accuracy of llama_bench's figures, against a server that records its own moments.

    python tests/benchmarks/speed/calibration.py [--rounds 5]

For 1, 8 and 64 streams at a time, the difference between the measured figures and the server's record: tokens/s of all
requests, time to first token, and time between tokens. Ends with status 1 where tokens/s
differ by more than 1 %, or a time to first token by more than 2 ms at 1 stream, p50 2 ms and p99 10 ms at 64.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
sys.path.insert(0, str(REPOSITORY / ".collections"))

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench import run  # noqa: E402
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench.answer import answer  # noqa: E402
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench.exchange import closed_loop, target  # noqa: E402
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench.figures import (  # noqa: E402
    figures,
    percentile,
)

TOKENS = 128
ASKED = run.Asked(model="paced", max_tokens=TOKENS, ignore_eos=True, cache_prompt=False, timeout=120)
# streams: (p50, p99) allowed of a time to first token, seconds
ALLOWED = {1: (0.002, 0.002), 64: (0.002, 0.010)}
RATE_ALLOWED = 0.01


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(pace, prompt):
    """A paced server in a process of its own -> (process, port)"""
    port = free_port()
    process = subprocess.Popen([sys.executable, str(HERE / "paced_server.py"), str(port), str(pace), str(prompt)])
    for _attempt in range(100):
        with socket.socket() as one:
            if not one.connect_ex(("127.0.0.1", port)):
                return process, port
        time.sleep(0.05)
    raise SystemExit("the paced server does not listen")


def truth(port):
    with urllib.request.urlopen("http://127.0.0.1:%d/truth" % port, timeout=10) as stream:
        return json.load(stream)


def compare(port, streams):
    """One round -> (our tokens/s by the server's, [difference of a time to first token], [of a gap])"""
    truth(port)
    to = target("http://127.0.0.1:%d" % port)
    bodies = [run.request_body(ASKED, "calibrate") for _number in range(streams)]
    done = closed_loop(to, bodies, streams, 120)
    answers = sorted((answer(one) for one in done), key=lambda one: one.began)
    failed = [one.error for one in answers if one.error]
    if failed:
        raise SystemExit("calibration: %s" % failed[0])
    served = sorted(truth(port), key=lambda one: one["arrived"])
    took = max(one["written"][-1] for one in served) - min(one["arrived"] for one in served)
    true_rate = sum(len(one["written"]) for one in served) / took
    # Sorted: neighbours may have changed places on the way.
    measured = sorted(one.first_text - one.began for one in answers)
    theirs = sorted(one["written"][0] - one["arrived"] for one in served)
    first = [seen - true for seen, true in zip(measured, theirs, strict=True)]
    gaps = sorted(b - a for one in answers for a, b in zip(one.stamps, one.stamps[1:]))
    true_gaps = sorted(b - a for one in served for a, b in zip(one["written"], one["written"][1:]))
    between = [seen - true for seen, true in zip(gaps, true_gaps, strict=True)]
    return figures(answers)["tokens_per_second"] / true_rate, first, between


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    process, port = start(0.02, 0.1)
    well = True
    print(
        "| streams | tokens/s, measured by the server's | first token p50 | p99 | between tokens p50 | p99 | (ms late)"
    )
    print("|--:|--:|--:|--:|--:|--:|")
    try:
        for streams in (1, 8, 64):
            seen = [compare(port, streams) for _round in range(rounds)]
            ratio = statistics.median(one[0] for one in seen)
            worst = max(abs(one[0] - 1) for one in seen)
            first = sorted(abs(late) for one in seen for late in one[1])
            between = sorted(abs(late) for one in seen for late in one[2])
            row = [percentile(values, share) for values in (first, between) for share in (50, 99)]
            print(
                "| %d | %.4f (worst %.4f) | %s |"
                % (streams, ratio, 1 + worst, " | ".join("%.2f" % (one * 1e3) for one in row))
            )
            p50, p99 = ALLOWED.get(streams, (1, 1))
            well = well and worst <= RATE_ALLOWED and row[0] <= p50 and row[1] <= p99
    finally:
        process.terminate()
        process.wait()
    print("load %.1f, %d rounds of %d tokens" % (os.getloadavg()[0], rounds, TOKENS))
    return int(not well)


if __name__ == "__main__":
    sys.exit(main())
