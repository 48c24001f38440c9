"""Overhead of the gateway: nginx and the engine against the same servers without them (make bench WHAT=gateway).

    overhead.py [--rounds 8] [--seconds 3]

Requests alternate, so that other load meets both. Fails if a bound is missed.
"""

import argparse
import asyncio
import sys

import load
from gateway import PORT, Fakes, Gateway, Peak, service

CHAT, SLOW, LARGE = 24001, 24002, 24003
MODELS = {CHAT: "chat", SLOW: "slow", LARGE: "large"}
TOKENS, PROMPT, MEGABYTE = 50, 20 << 10, 1 << 20
ADDED, MEMORY = 2.0, 300.0  # ms of the median, MB


def first_bytes(rounds, seconds):
    """-> outcomes of 64 clients with streams, asked directly and through the gateway."""
    found = {CHAT: [], PORT: []}
    message = load.request("chat", TOKENS, PROMPT)
    for number in range(rounds):
        for port in sorted(found, reverse=bool(number % 2)):
            found[port] += asyncio.run(load.steady(port, message, 64, seconds, TOKENS))
    return found[CHAT], found[PORT]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3)
    arguments = parser.parse_args()
    fakes = Fakes()
    for port, model in MODELS.items():
        fakes.start(port, model, pace=0.1 if port == SLOW else 0.02)
    gateway = Gateway({model: service(model, [port]) for port, model in MODELS.items()})
    found = first_bytes(arguments.rounds, arguments.seconds)
    (plain, plain99), (through, through99) = map(load.times, found)
    failed = [load.failures(outcomes) for outcomes in found]
    print(f"| {len(found[1])} streams, first byte p50 ms | {plain:.2f} | {through:.2f} |")
    print(f"| the same, p99 ms | {plain99:.2f} | {through99:.2f} |")
    with Peak(gateway) as peak:
        slow = asyncio.run(load.together(PORT, load.request("slow", TOKENS, PROMPT), 200, TOKENS))
    failed.append(load.failures(slow))
    print(f"| 200 streams that start together: failed | - | {failed[-1] or 0} |")
    print(f"| the same, most memory, PSS MB | - | {peak.most:.0f} |")
    with Peak(gateway) as large:
        bodies = asyncio.run(load.together(PORT, load.request("large", 1, MEGABYTE, stream=False), 8))
    failed.append(load.failures(bodies))
    print(f"| eight bodies of 1 MB at once, failed; most memory, PSS MB | - | {failed[-1] or 0}; {large.most:.0f} |")
    gateway.stop()
    for port in list(fakes.running):
        fakes.kill(port)
    return any(failed) or through - plain > ADDED or peak.most > MEMORY


if __name__ == "__main__":
    sys.exit(main())
