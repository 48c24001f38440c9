"""Requests that are lost while things change behind the gateway, or in it (make bench-gateway): loss.py [--seconds 8]

Twenty clients that do not stream ask one after the other, and once twenty that stream. Fails where one request failed.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time

import load
import report
from candidates import EngineBehindNginx, Fakes, replace, service, wait_for

PAIR, LONE, HELP, MORE, SINGLE = (24011, 24012), 24041, 24042, 24013, 24043
CLIENTS, TOKENS = 20, 10


def services():
    return {
        "pair": service("pair", PAIR, slots=32, tier="fast"),
        "lone": service("lone", [LONE], slots=32, fallback="help"),
        "help": service("help", [HELP], slots=32),
        "single": service("single", [SINGLE], slots=32),
    }


def start_fakes(fakes):
    for port in PAIR:
        fakes.start(port, "pair", slots=32)
    fakes.start(LONE, "lone", slots=32)
    fakes.start(HELP, "help", slots=32)
    fakes.start(MORE, "pair", slots=32)
    fakes.start(SINGLE, "single", slots=32)


def drain(gateway, _fakes, number):
    """One replica, the other, both at once (requests wait), none."""
    nodes = [[PAIR[0]], [PAIR[1]], list(PAIR), []][number % 4]
    entries = [{"service": "pair", "node": "node%d" % port, "since": 0, "reason": "change"} for port in nodes]
    replace("/var/lib/llama-cluster/draining.json", {"endpoints": entries})


def undrain(*_):
    replace("/var/lib/llama-cluster/draining.json", {"endpoints": []})


def configure(gateway, _fakes, number):
    """A replica more, one less, and SIGHUP."""
    ports = [(*PAIR, MORE), PAIR[:1], PAIR[1:], PAIR][number % 4]
    gateway.services["pair"] = service("pair", ports, slots=32, tier="fast")
    gateway.configure()
    gateway.reload()


def reload(gateway, _fakes, _number):
    gateway.reload()


def restart(gateway, _fakes, _number):
    gateway.restart()


def kill(gateway, _fakes, _number):
    gateway.restart(signal.SIGKILL)


def kill_all(gateway, _fakes, _number):
    """The main process and its worker, which has requests in flight: those that had no answer yet are sent again."""
    for pid in reversed(gateway.engine_pids()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # nginx sends a request once more, not twice: the next kill has to find an engine that answers.
    wait_for(gateway.port)


def kill_replica(_gateway, fakes, number):
    port = PAIR[number // 2 % 2]
    if number % 2 == 0:
        fakes.kill(port)
    else:
        fakes.start(port, "pair", slots=32)


def kill_lone(_gateway, fakes, number):
    if number % 2 == 0:
        fakes.kill(LONE)
    else:
        fakes.start(LONE, "lone", slots=32)


def kill_single(_gateway, fakes, _number):
    """Requests wait: nobody else answers."""
    fakes.kill(SINGLE)
    time.sleep(0.5)
    fakes.start(SINGLE, "single", slots=32, loading=1)


# (row of the table, model, seconds between two, what is done, what puts it back, whether clients stream, whether a
# failed one is a loss)
DRILLS = (
    ("nothing", "pair", 1, lambda *_: None, None, False, True),
    ("replicas drained and back, one, the other, both", "pair", 0.5, drain, undrain, False, True),
    ("replicas added and taken away, with SIGHUP", "pair", 0.5, configure, None, False, True),
    ("SIGHUP", "pair", 0.2, reload, None, False, True),
    ("restart of the engine", "pair", 1, restart, None, False, True),
    ("restart of the engine, clients that stream", "pair", 1, restart, None, True, True),
    ("kill -9 of the engine's main process", "pair", 1, kill, None, False, True),
    ("kill -9 of all processes of the engine", "pair", 1.5, kill_all, None, False, True),
    ("kill -9 of one of two replicas, and its return", "pair", 1.5, kill_replica, None, False, True),
    ("kill -9 of a single server with a fallback, and its return", "lone", 1.5, kill_lone, None, False, True),
    ("kill -9 of a single server without one, and its load of 1 s", "single", 2, kill_single, None, False, True),
)


async def drill(gateway, fakes, model, each, change, back, streams, seconds):
    message = load.request(load.chat(model, TOKENS, 2048, stream=streams))
    waiting = asyncio.ensure_future(load.steady(gateway.port, message, CLIENTS, seconds, streams, spread=0.2))
    loop = asyncio.get_running_loop()
    number = 0
    # The last change comes early enough for the clients to meet what follows it.
    until = loop.time() + seconds - 1
    await asyncio.sleep(0.5)
    while loop.time() < until:
        await loop.run_in_executor(None, change, gateway, fakes, number)
        number += 1
        await asyncio.sleep(each)
    if back:
        # Who waits for a drained replica is answered now.
        await loop.run_in_executor(None, back)
    return await waiting, number


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--only", default="", help="drills whose words have this in them")
    arguments = parser.parse_args()
    versions = report.versions()
    print(versions, flush=True)
    fakes = Fakes()
    start_fakes(fakes)
    gateway = EngineBehindNginx(services())
    gateway.start()
    rows, lost = [], 0
    for words, model, each, change, back, streams, counts in DRILLS:
        if arguments.only not in words:
            continue
        found, changes = asyncio.run(drill(gateway, fakes, model, each, change, back, streams, arguments.seconds))
        for port, name in ((PAIR[0], "pair"), (PAIR[1], "pair"), (LONE, "lone")):
            if port not in fakes.running:
                fakes.start(port, name, slots=32)
        gateway.services = services()
        gateway.configure()
        gateway.reload()
        why = load.failures(found, TOKENS if streams else None)
        lost += sum(why.values()) if counts else 0
        longest = max(one.seconds for one in found)
        told = ", ".join("%d x %s" % (count, reason) for reason, count in why.items())
        rows.append(
            [words, changes, len(found), "%d%s" % (sum(why.values()), " (%s)" % told if told else ""), "%.2f" % longest]
        )
        print(" | ".join(map(str, rows[-1])), file=sys.stderr, flush=True)
        load_until_quiet(gateway)
    head = ("under %d clients" % CLIENTS, "times", "requests", "failed", "longest s")
    print(report.table(head, rows))
    report.keep("loss", {"versions": versions, "table": report.table(head, rows)})
    if lost or "Traceback" in gateway.log():
        print("the engine's log ends with:\n" + gateway.log()[-3000:])
    gateway.stop()
    fakes.stop()
    return bool(lost)


def load_until_quiet(gateway):
    """The next drill begins when both services answer again."""
    for model in ("pair", "lone"):
        for _one in range(50):
            found = asyncio.run(load.ask(gateway.port, load.request(load.chat(model, 1, stream=False))))
            if found.ok and found.json()["model"] == model:
                break
            asyncio.run(asyncio.sleep(0.2))
        else:
            sys.exit("gateway loss: %s does not answer 10 s after a drill: %s" % (model, found.why()))


if __name__ == "__main__":
    sys.exit(main())
