"""Who carries the gateway's logic: HAProxy, HAProxy behind nginx, or our engine behind nginx (make bench-gateway).

    bake_off.py [--rounds 3] [--seconds 4] [--bursts 3]

All candidates run side by side before the same fake llama-servers and are measured in turn, so that what else the
machine does meets all of them. HAProxy has buffers that hold a body of 1 MB, else it could not route one.
"""

import argparse
import asyncio
import random
import re
import sys
import threading
import time

import load
import report
from candidates import Direct, Fakes, all_candidates, service

TOKENS, PROMPT, LARGE = 50, 20 * 1024, 1024 * 1024
CHAT, LONE, SMALL, SLOW = 24001, 24041, 24021, 24031
TWO, GROW = (24011, 24012), (24051, 24052)
LOADING = 4


def services():
    return {
        "chat": service("or1-behemoth", [CHAT], slots=512, aliases=["OR1-Behemoth"], tier="fast"),
        "two": service("two-replicas", TWO, slots=2),
        "small": service("small-queue", [SMALL], slots=1, queue=4),
        "slow": service("slow-loader", [SLOW]),
        "lone": service("lone-server", [LONE], fallback="chat"),
        "grow": service("growing", GROW[:1], slots=8),
    }


class Peak(threading.Thread):
    """The most memory that a candidate had while something ran."""

    def __init__(self, candidate):
        super().__init__(daemon=True)
        self.candidate, self.most, self.over = candidate, (0.0, 0.0), threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()

    def run(self):
        # The first look before the first wait: eight bodies of 1 MB are through in less than 0.2 s.
        while True:
            self.most = tuple(map(max, zip(self.most, self.candidate.memory())))
            if self.over.wait(0.02):
                return


def at_once(candidate, clients, size=PROMPT):
    """So many requests that start together: streams of prompts of 20 KB, or bodies of 1 MB without a stream."""
    stream = size == PROMPT
    body = load.chat("or1-behemoth", 2 * TOKENS if stream else 1, size, stream)
    with Peak(candidate) as peak:
        found = asyncio.run(load.together(candidate.port, [load.request(body)] * clients, stream))
    return found, peak.most


def ask(candidate, body, **options):
    return asyncio.run(load.ask(candidate.port, load.request(body), bool(body.get("stream")), **options))


# What each candidate can do: (row of the table, function -> what was seen).


def routes(candidate, _fakes):
    found = [ask(candidate, load.chat(name, 1, PROMPT, stream=False)) for name in ("OR1-Behemoth", "two-replicas")]
    names = [(one.json() or {}).get("model") for one in found]
    return "yes" if names == ["or1-behemoth", "two-replicas"] else "no: %s" % names


def large_bodies(candidate, _fakes):
    bodies = [load.request(load.chat("two-replicas", 1, LARGE, stream=False)) for _one in range(8)]
    found = asyncio.run(load.together(candidate.port, bodies, stream=False))
    routed = [one for one in found if one.ok and (one.json() or {}).get("model") == "two-replicas"]
    return "%d of %d" % (len(routed), len(found))


def unknown(candidate, _fakes):
    found = ask(candidate, load.chat("or1-behemot", 1, stream=False))
    error = (found.json() or {}).get("error") or {}
    shape = found.status == 404 and {"message", "type", "param", "code"} <= set(error)
    near = "or1-behemoth" in str(error.get("message")).replace("or1-behemot ", "")
    return "%s, nearest names: %s" % ("yes" if shape else "no (%s)" % found.why(), "yes" if near else "no")


def queue(candidate, _fakes):
    bodies = [load.request(load.chat("small-queue", 20, stream=False)) for _one in range(12)]
    found = asyncio.run(load.together(candidate.port, bodies, stream=False))
    status = [one.status for one in found]
    told = all(one.header("retry-after") for one in found if one.status == 429)
    counted = ", ".join("%d x %s" % (status.count(each), each) for each in sorted(set(status), key=str))
    return "%s%s" % (counted, ", Retry-After" if told and 429 in status else "")


def loading(candidate, fakes):
    """It has loaded once under the candidate's eyes, and loads again."""
    for again in (False, True):
        fakes.start(SLOW, "slow-loader", loading=LOADING)
        if again:
            time.sleep(1.5)
            found = ask(candidate, load.chat("slow-loader", 1, stream=False))
        until, serves = time.monotonic() + LOADING + 10, False
        while not serves and time.monotonic() < until:
            serves = ask(candidate, load.chat("slow-loader", 1, stream=False)).ok
            time.sleep(0.2)
        fakes.kill(SLOW)
        time.sleep(1.5)
    message = ((found.json() or {}).get("error") or {}).get("message", "")
    seconds = re.search(r"\d+ s\b", message)
    return "%s, Retry-After %s, seconds left: %s, serves later: %s" % (
        found.status,
        found.header("retry-after") or "no",
        seconds.group() if seconds else "not told",
        "yes" if serves else "no",
    )


def affinity(candidate, _fakes):
    """Six conversations of four turns, in a random order of speakers: follow-ups at the replica of the turn before."""
    chosen, same, followed = random.Random(7), 0, 0
    talks = [{"turns": [{"role": "user", "content": "talk %d" % n + " word" * 800}], "at": None} for n in range(6)]
    order = [n for n in range(6) for _one in range(4)]
    chosen.shuffle(order)
    for number in order:
        talk = talks[number]
        body = {"messages": talk["turns"], "max_tokens": 1, "stream": False, "model": "two-replicas"}
        port = (ask(candidate, body).json() or {}).get("port")
        if talk["at"] is not None:
            followed += 1
            same += port == talk["at"]
        talk["at"] = port
        answer = {"role": "assistant", "content": " token"}
        talk["turns"] = [*talk["turns"], answer, {"role": "user", "content": "and then? " * 20}]
    return "%d of %d follow-ups" % (same, followed)


def fallback(candidate, fakes):
    """The only server of a service is killed under four requests, and four more come afterwards."""

    async def run():
        bodies = [load.request(load.chat("lone-server", 25, stream=False)) for _one in range(4)]
        waiting = asyncio.ensure_future(load.together(candidate.port, bodies, stream=False))
        await asyncio.sleep(0.25)
        fakes.kill(LONE)
        return await waiting + await load.together(candidate.port, bodies, stream=False)

    found = asyncio.run(run())
    told = [one for one in found if one.ok and one.header("x-llama-fallback") and one.json()["model"] == "or1-behemoth"]
    fakes.start(LONE, "lone-server")
    failed = sum(not one.ok for one in found)
    return "%d of %d failed, header and `model` tell in %d" % (failed, len(found), len(told))


def killed(candidate, fakes, rounds=6):
    """kill -9 of one of two replicas under 8 POSTs."""
    failed, asked, reasons = 0, 0, {}

    async def run():
        bodies = [load.request(load.chat("two-replicas", 15, stream=False)) for _one in range(8)]
        waiting = asyncio.ensure_future(load.together(candidate.port, bodies, stream=False))
        await asyncio.sleep(0.15)
        fakes.kill(TWO[0])
        return await waiting

    for _one in range(rounds):
        found = asyncio.run(run())
        asked += len(found)
        failed += sum(not one.ok for one in found)
        for why, count in load.failures(found).items():
            reasons[why] = reasons.get(why, 0) + count
        fakes.start(TWO[0], "two-replicas")
        time.sleep(2)
    return "%d of %d failed%s" % (failed, asked, " (%s)" % reasons if reasons else "")


def changes(candidate, fakes):
    """A replica more and one drained, under 20 clients that do not stream, with nothing reloaded."""
    fakes.start(GROW[1], "growing")

    async def run():
        message = load.request(load.chat("growing", 5, stream=False))
        waiting = asyncio.ensure_future(load.steady(candidate.port, message, 20, 4, stream=False, spread=0.2))
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.7)
        endpoint = {"node": "added", "address": "127.0.0.1", "port": GROW[1], "slots": 8}
        await loop.run_in_executor(None, candidate.add_endpoint, "grow", endpoint)
        await asyncio.sleep(1.5)
        await loop.run_in_executor(None, candidate.drain, "grow", "node%d" % GROW[0], True)
        return await waiting

    found = asyncio.run(run())
    candidate.drain("grow", "node%d" % GROW[0], False)
    reached = sum((one.json() or {}).get("port") == GROW[1] for one in found)
    fakes.kill(GROW[1])
    failed = sum(not one.ok for one in found)
    return "%s, %d of %d failed" % ("yes" if reached else "not reached", failed, len(found))


def broken(candidate, fakes):
    """Both replicas are killed under a stream: does it look complete?"""

    async def run():
        message = load.request(load.chat("two-replicas", 200))
        waiting = asyncio.ensure_future(load.ask(candidate.port, message, stream=True))
        await asyncio.sleep(0.5)
        for port in TWO:
            fakes.kill(port)
        return await waiting

    found = asyncio.run(run())
    for port in TWO:
        fakes.start(port, "two-replicas")
    time.sleep(2)
    if found.whole or found.done:
        return "no: it looks complete after %d events" % found.tokens
    return "yes, cut after %d events" % found.tokens


def leaves(candidate, fakes):
    """Until the server notices that its client has left."""
    before = len(fakes.counts(CHAT)["left"])
    outcome = ask(candidate, load.chat("or1-behemoth", 1000), leave_after=0.5)
    gone = time.time() - (time.perf_counter() - outcome.ended)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        left = fakes.counts(CHAT)["left"]
        if len(left) > before:
            return "%.1f ms" % ((left[before] - gone) * 1000)
        time.sleep(0.05)
    return "not within 5 s"


CAPABILITIES = (
    ("routed by `model`, the last key of 20 KB", routes),
    ("eight bodies of 1 MB at once routed by `model`, the last key", large_bodies),
    ("unknown model: 404 in OpenAI's shape", unknown),
    ("12 requests, 1 slot, a queue of 4", queue),
    ("a server that loads", loading),
    ("conversations stay with the replica that has their prompt", affinity),
    ("single server killed, service with a fallback", fallback),
    ("kill -9 of one of two replicas under 8 POSTs, 6 rounds", killed),
    ("an endpoint more and one drained under 20 clients, nothing reloaded", changes),
    ("a stream that breaks is seen as broken", broken),
    ("a client that leaves is noticed by the server after", leaves),
)


def start_fakes(fakes):
    fakes.start(CHAT, "or1-behemoth", slots=512)
    for port in TWO:
        fakes.start(port, "two-replicas", slots=2)
    fakes.start(SMALL, "small-queue", slots=1)
    fakes.start(LONE, "lone-server")
    fakes.start(GROW[0], "growing", slots=8)


def speed(everyone, rounds, seconds):
    """-> {(name, clients): outcomes} of clients that ask again and again."""
    found = {}
    message = load.request(load.chat("or1-behemoth", TOKENS, PROMPT))
    for number in range(rounds):
        for candidate in everyone if number % 2 == 0 else reversed(everyone):
            some = asyncio.run(load.steady(candidate.port, message, 64, seconds))
            found.setdefault((candidate.name, 64), []).extend(some)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--bursts", type=int, default=3, help="how often so many requests start together")
    arguments = parser.parse_args()
    print(report.versions(), flush=True)
    fakes = Fakes()
    start_fakes(fakes)
    everyone = all_candidates(services())
    for candidate in everyone:
        candidate.start()
    record = {"versions": report.versions(), "capabilities": {}, "streams": {}}
    idle = {candidate.name: candidate.memory() for candidate in everyone}
    reference = Direct(services())
    steady = speed([reference, *everyone], arguments.rounds, arguments.seconds)
    rows = []
    base = load.times(steady[("direct", 64)])
    for candidate in [reference, *everyone]:
        some = steady[(candidate.name, 64)]
        seen = load.times(some)
        added = [
            "%.1f" % (one - other) if candidate is not reference else "(%.1f)" % one for one, other in zip(seen, base)
        ]
        rows.append([candidate.name, len(some), load.failures(some, TOKENS) or 0, *added])
    steady_table = report.table(
        ("64 clients, one after the other", "streams", "failed", "added p50 ms", "added p99 ms"), rows
    )
    print(steady_table, flush=True)
    rows = []
    for clients, size in ((64, PROMPT), (200, PROMPT), (64, LARGE)):
        found, most = {}, {}
        for number in range(arguments.bursts):
            for candidate in [reference, *everyone] if number % 2 == 0 else [*reversed(everyone), reference]:
                some, memory = at_once(candidate, clients, size)
                found.setdefault(candidate, []).extend(some)
                most[candidate] = max(most.get(candidate, memory), memory)
        base = load.times(found[reference])
        for candidate, some in found.items():
            plain = candidate is reference
            added = ["(%.0f)" % one if plain else "%.0f" % (one - other) for one, other in zip(load.times(some), base)]
            used = ["", "", ""] if plain else ["%.0f" % value for value in (idle[candidate.name][0], *most[candidate])]
            failed = load.failures(some, 2 * TOKENS if size == PROMPT else None)
            words = "%d of %d KB: %s" % (clients, size // 1024, candidate.name)
            rows.append([words, len(some), failed or 0, *added, *used])
    head = ("requests that start together", "requests", "failed", "added p50 ms", "added p99 ms")
    head += ("PSS at rest MB", "PSS peak MB", "RSS peak MB")
    together_table = report.table(head, rows)
    print(together_table, flush=True)
    rows = []
    for words, look in CAPABILITIES:
        row = [words]
        for candidate in everyone:
            try:
                row.append(look(candidate, fakes))
            except Exception as problem:  # the other rows are still wanted
                row.append("failed: %r" % problem)
            print(candidate.name, "|", words, "|", row[-1], file=sys.stderr, flush=True)
        rows.append(row)
    able_table = report.table(["", *(candidate.name for candidate in everyone)], rows)
    print(able_table)
    record.update(steady=steady_table, together=together_table, able=able_table)
    report.keep("bake_off", record)
    for candidate in everyone:
        candidate.stop()
    fakes.stop()


if __name__ == "__main__":
    main()
