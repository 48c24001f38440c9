"""Requests lost while things change behind the gateway or in it (make bench WHAT=gateway): loss.py [--seconds 8]

Twenty clients ask one after the other. Fails where one request failed.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time

import load
from gateway import PORT, Fakes, Gateway, replace, service, wait_for

PAIR, LONE, HELP, MORE, SINGLE = (24011, 24012), 24041, 24042, 24013, 24043
CLIENTS, TOKENS = 20, 10


def services(pair=PAIR):
    return {
        "pair": service("pair", pair),
        "lone": service("lone", [LONE], fallback="help"),
        "help": service("help", [HELP]),
        "single": service("single", [SINGLE]),
    }


def drain(_gateway, _fakes, number):
    """One replica, the other, both at once (requests wait), none."""
    nodes = [[PAIR[0]], [PAIR[1]], list(PAIR), []][number % 4]
    entries = [{"service": "pair", "node": f"node{port}", "since": 0, "reason": "change"} for port in nodes]
    replace("/var/lib/llama-cluster/draining.json", {"endpoints": entries})


def configure(gateway, _fakes, number):
    """A replica more, one less, and SIGHUP."""
    gateway.configure(services([(*PAIR, MORE), PAIR[:1], PAIR[1:], PAIR][number % 4]))
    gateway.signal(signal.SIGHUP)


def kill_all(gateway, _fakes, _number):
    """The main process and its worker, which has requests in flight: those that had no answer yet are sent again."""
    for pid in reversed(gateway.pids()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # nginx sends a request once more, not twice: the next kill has to find an engine that answers.
    wait_for(PORT)


def kill_server(port, model):
    def change(_gateway, fakes, number):
        if number % 2 == 0:
            fakes.kill(port)
        else:
            fakes.start(port, model)

    return change


def kill_single(_gateway, fakes, _number):
    """Requests wait: no other server has the model."""
    fakes.kill(SINGLE)
    time.sleep(0.5)
    fakes.start(SINGLE, "single", wait=False, loading=1)


def send(number):
    return lambda gateway, _fakes, _number: gateway.signal(number)


# (row of the table, model, seconds between two, what is done, whether clients stream)
DRILLS = (
    ("nothing", "pair", 1, lambda *_: None, False),
    ("replicas drained and back, one, the other, both", "pair", 0.5, drain, False),
    ("replicas added and taken away, with SIGHUP", "pair", 0.5, configure, False),
    ("SIGHUP", "pair", 0.2, send(signal.SIGHUP), False),
    ("restart of the engine", "pair", 1, send(signal.SIGTERM), False),
    ("restart of the engine, clients that stream", "pair", 1, send(signal.SIGTERM), True),
    ("kill -9 of the engine's main process", "pair", 1, send(signal.SIGKILL), False),
    ("kill -9 of all processes of the engine", "pair", 1.5, kill_all, False),
    ("kill -9 of one of two replicas, and its return", "pair", 1.5, kill_server(PAIR[0], "pair"), False),
    ("kill -9 of a single server with a fallback, and its return", "lone", 1.5, kill_server(LONE, "lone"), False),
    ("kill -9 of a single server without one, and its load of 1 s", "single", 2, kill_single, False),
)


async def drill(gateway, fakes, model, each, change, streams, seconds):
    """-> outcomes, number of changes."""
    message, tokens = load.request(model, TOKENS, 2048, streams), TOKENS if streams else None
    waiting = asyncio.ensure_future(load.steady(PORT, message, CLIENTS, seconds, tokens))
    loop, number = asyncio.get_running_loop(), 0
    # The last change comes early enough for the clients to meet what follows it.
    until = loop.time() + seconds - 1
    await asyncio.sleep(0.5)
    while loop.time() < until:
        await loop.run_in_executor(None, change, gateway, fakes, number)
        number += 1
        await asyncio.sleep(each)
    # Requests that wait for a drained replica are answered now.
    replace("/var/lib/llama-cluster/draining.json", {"endpoints": []})
    return await waiting, number


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8)
    arguments = parser.parse_args()
    fakes, lost = Fakes(), 0
    ports = {**dict.fromkeys((*PAIR, MORE), "pair"), LONE: "lone", HELP: "help", SINGLE: "single"}
    for port, model in ports.items():
        fakes.start(port, model)
    gateway = Gateway(services())
    for words, model, each, change, streams in DRILLS:
        found, times = asyncio.run(drill(gateway, fakes, model, each, change, streams, arguments.seconds))
        failed, longest = load.failures(found), max(one.seconds for one in found)
        lost += sum(failed.values())
        print(f"| {words} | {times} | {len(found)} | {failed or 0} | {longest:.2f} |", flush=True)
        for port in ports.keys() - fakes.running.keys():
            fakes.start(port, ports[port])
        gateway.configure(services())
        gateway.signal(signal.SIGHUP)
        time.sleep(3)
    gateway.stop()
    for port in list(fakes.running):
        fakes.kill(port)
    return bool(lost)


if __name__ == "__main__":
    sys.exit(main())
