"""What the gateway costs: nginx and the engine beside the same servers asked directly (make bench-gateway).

    overhead.py [--rounds 8] [--seconds 3] [--pairs 40]

The two are asked in turn, so that what else the machine does meets both. Fails where a bound of BOUNDS is missed.
"""

import argparse
import asyncio
import math
import pathlib
import statistics
import subprocess
import sys

import bake_off
import load
import report
from candidates import Direct, EngineBehindNginx, Fakes, service, wait_for

BOUNDS = {"added p50 ms": 2.0, "tokens/s": 0.97, "memory MB": 300.0}
REAL, PROMPT = 24091, "Tell a long story about three nodes that shared one model. " * 8
TOKENS = 32


def real_server(folder):
    """A llama-server of this project's build with its small model, one thread: the gateway has the other core."""
    archive = sorted(pathlib.Path("/cache/builds").glob("llama.cpp-b11434-cpu-*.tar.gz"))
    if not archive:
        sys.exit("gateway overhead: no build of llama.cpp b11434 in the cache, one is needed: make lab")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-C", str(folder), "-xzf", str(archive[0])], check=True)
    command = [str(folder / "bin/llama-server"), "--model", "/cache/files/SmolLM2-135M-Instruct.Q4_1.gguf"]
    command += ["--host", "127.0.0.1", "--port", str(REAL), "--threads", "1", "--parallel", "1", "--ctx-size", "2048"]
    process = subprocess.Popen([*command, "--alias", "small"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(REAL, seconds=60)
    return process


def tokens_per_second(port):
    body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": TOKENS, "temperature": 0, "stream": True}
    body.update(ignore_eos=True, cache_prompt=False, model="small")
    found = asyncio.run(load.ask(port, load.request(body), stream=True))
    if not found.ok or not found.done:
        sys.exit("gateway overhead: %s from port %d, a whole stream is needed" % (found.why(), port))
    return TOKENS / found.seconds


def student(freedom):
    """97.5 % quantile of Student's distribution (Cornish-Fisher expansion, exact to three digits from 10 degrees of
    freedom on)."""
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def pairs(direct, gateway, count):
    """-> (geometric mean of the ratio, its 95 % interval, median tokens/s directly)"""
    logs, speeds = [], []
    for number in range(-2, count):
        order = (direct, gateway) if number % 2 else (gateway, direct)
        seen = {port: tokens_per_second(port) for port in order}
        if number >= 0:
            logs.append(math.log(seen[gateway] / seen[direct]))
            speeds.append(seen[direct])
    mean, half = statistics.mean(logs), student(count - 1) * statistics.stdev(logs) / math.sqrt(count)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half), statistics.median(speeds)


def added(direct, gateway, rounds, seconds):
    """-> (table, added p50 in ms) of 64 streams, each client one after the other."""
    found = bake_off.speed([direct, gateway], rounds, seconds)
    seen = {name: load.times(outcomes) for (name, _mode), outcomes in found.items()}
    by_round = [[name, len(found[(name, 64)]), load.failures(found[(name, 64)], bake_off.TOKENS) or 0] for name in seen]
    rows = [[*row, *("%.2f" % value for value in seen[row[0]])] for row in by_round]
    more = [seen[gateway.name][at] - seen[direct.name][at] for at in (0, 1)]
    rows.append(["added", "", "", *("%.2f" % value for value in more)])
    failed = sum(sum(load.failures(outcomes, bake_off.TOKENS).values()) for outcomes in found.values())
    return (
        report.table(("64 streams, 20 KB prompts", "streams", "failed", "first byte p50 ms", "p99 ms"), rows),
        more[0],
        failed,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--pairs", type=int, default=40)
    arguments = parser.parse_args()
    if arguments.pairs < 30:
        parser.error("--pairs: %d seen, at least 30 are needed for an interval" % arguments.pairs)
    versions = report.versions()
    print(versions, flush=True)
    fakes = Fakes()
    services = {
        "chat": service("or1-behemoth", [bake_off.CHAT], slots=512),
        "slow": service("slow-streams", [24002], slots=512),
        "large": service("two-replicas", [bake_off.TWO[0]], slots=8),
        "small": service("small", [REAL], slots=1),
    }
    fakes.start(bake_off.CHAT, "or1-behemoth", slots=512)
    fakes.start(24002, "slow-streams", slots=512, pace=0.1)
    fakes.start(bake_off.TWO[0], "two-replicas")
    server = real_server(pathlib.Path("/tmp/llama"))
    gateway, missed = EngineBehindNginx(services), []
    gateway.start()
    try:
        direct = Direct(services)
        first_byte, median, failed = added(direct, gateway, arguments.rounds, arguments.seconds)
        print(first_byte, flush=True)
        if median > BOUNDS["added p50 ms"] or failed:
            missed.append("added p50 %.2f ms, %d failed" % (median, failed))

        messages = [load.request(load.chat("slow-streams", 50, bake_off.PROMPT)) for _one in range(200)]
        rest = gateway.memory()
        with bake_off.Peak(gateway) as peak:
            found = asyncio.run(load.together(gateway.port, messages))
        failed = load.failures(found, 50)
        slow = (
            "200 streams that start together, 20 KB prompts, a token each 100 ms: failed %s of %d; first byte "
            "p50 %.0f ms, p99 %.0f ms; PSS at rest %.0f MB, at most %.0f MB (RSS %.0f MB)"
            % (sum(failed.values()), len(found), *load.times(found), rest[0], *peak.most)
        )
        print(slow, failed or "", flush=True)
        if failed or peak.most[1] > BOUNDS["memory MB"]:
            missed.append(slow)

        with bake_off.Peak(gateway) as peak:
            routed = bake_off.large_bodies(gateway)
        large = "bodies of 1 MB at once, `model` last: %s routed, PSS at most %.0f MB" % (routed, peak.most[0])
        print(large, flush=True)
        if routed != "8 of 8":
            missed.append(large)

        mean, low, high, speed = pairs(REAL, gateway.port, arguments.pairs)
        real = (
            "tokens/s of a real llama-server (b11434, SmolLM2 135M Q4_1, 1 thread, %.0f tokens/s), %d interleaved "
            "pairs of %d tokens: ratio %.3f (95 %%: %.3f to %.3f)" % (speed, arguments.pairs, TOKENS, mean, low, high)
        )
        print(real, flush=True)
        if low < BOUNDS["tokens/s"]:
            missed.append(real)
    finally:
        server.kill()
        gateway.stop()
        fakes.stop()
    report.keep(
        "overhead", {"versions": versions, "first byte": first_byte, "slow": slow, "large": large, "real": real}
    )
    for text in missed:
        print("missed: " + text)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
