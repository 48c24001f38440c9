"""What decides between HAProxy and our engine behind nginx: bodies that are larger than a buffer, memory, and where a
conversation goes (make bench-gateway PARTS=bake_off).

    bake_off.py [--bursts 3]

HAProxy is tried with small buffers and with ones that hold a body of 1 MB. All candidates run side by side before the
same fake llama-servers and are measured in turn, so that what else the machine does meets all of them.
"""

import argparse
import asyncio
import random
import threading

import load
import report
from candidates import EngineBehindNginx, Fakes, Haproxy, HaproxyLarge, service

TOKENS, PROMPT, MEGABYTE = 50, 20 * 1024, 1024 * 1024
CHAT, TWO = 24001, (24011, 24012)


def services():
    return {
        "chat": service("or1-behemoth", [CHAT], slots=512, tier="fast"),
        "two": service("two-replicas", TWO, slots=2),
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


def most_memory(candidate, bursts):
    """Of 200 streams of prompts of 20 KB that start together."""
    body, failed, most = load.request(load.chat("or1-behemoth", 2 * TOKENS, PROMPT)), 0, 0
    for _one in range(bursts):
        with Peak(candidate) as peak:
            found = asyncio.run(load.together(candidate.port, [body] * 200))
        failed += sum(load.failures(found, 2 * TOKENS).values())
        most = max(most, peak.most[0])
    return "%.0f MB, %d of %d failed" % (most, failed, 200 * bursts)


def routed(candidate, size):
    """What a body of so many bytes gets whose last key is `model`, as the openai SDK writes it."""
    body = load.request(load.chat("two-replicas", 1, size, stream=False))
    found = asyncio.run(load.together(candidate.port, [body], stream=False))[0]
    return "yes" if found.ok and (found.json() or {}).get("model") == "two-replicas" else "no: %s" % found.why()


def large_bodies(candidate):
    bodies = [load.request(load.chat("two-replicas", 1, MEGABYTE, stream=False)) for _one in range(8)]
    found = asyncio.run(load.together(candidate.port, bodies, stream=False))
    return "%d of %d" % (sum(one.ok and one.json().get("model") == "two-replicas" for one in found), len(found))


def affinity(candidate, image=False):
    """Six conversations of four turns, in a random order of speakers: follow-ups at the replica of the turn before."""
    chosen, same, followed = random.Random(7), 0, 0
    first = [said("talk %d" % n + " word" * 800, image) for n in range(6)]
    talks = [{"turns": [{"role": "user", "content": one}], "at": None} for one in first]
    order = [n for n in range(6) for _one in range(4)]
    chosen.shuffle(order)
    for number in order:
        talk = talks[number]
        body = load.request({"messages": talk["turns"], "max_tokens": 1, "stream": False, "model": "two-replicas"})
        port = (asyncio.run(load.ask(candidate.port, body, False)).json() or {}).get("port")
        if talk["at"] is not None:
            followed += 1
            same += port == talk["at"]
        talk["at"] = port
        answer = {"role": "assistant", "content": " token"}
        talk["turns"] = [*talk["turns"], answer, {"role": "user", "content": "and then? " * 20}]
    return "%d of %d" % (same, followed)


def said(text, image):
    """As clients write it that send an image."""
    return [{"type": "text", "text": text}] if image else text


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
    parser.add_argument("--bursts", type=int, default=3, help="how often 200 streams start together")
    arguments = parser.parse_args()
    print(report.versions(), flush=True)
    fakes = Fakes()
    fakes.start(CHAT, "or1-behemoth", slots=512)
    for port in TWO:
        fakes.start(port, "two-replicas", slots=2)
    everyone = [Haproxy(services()), HaproxyLarge(services()), EngineBehindNginx(services())]
    for candidate in everyone:
        candidate.start()
    looks = (
        ("200 streams of 20 KB, PSS at most", lambda one: most_memory(one, arguments.bursts)),
        ("a body of 100 KB, `model` last: routed", lambda one: routed(one, 100 * 1024)),
        ("of 1 MB", lambda one: routed(one, MEGABYTE)),
        ("of 4 MB", lambda one: routed(one, 4 * MEGABYTE)),
        ("of 20 MB", lambda one: routed(one, 20 * MEGABYTE)),
        ("follow-ups at the replica that has their prompt", affinity),
        ("the same, messages as lists of parts", lambda one: affinity(one, image=True)),
    )
    rows = [[words, *(look(candidate) for candidate in everyone)] for words, look in looks]
    table = report.table(["", *(candidate.name for candidate in everyone)], rows)
    print(table)
    report.keep("bake_off", {"versions": report.versions(), "able": table})
    for candidate in everyone:
        candidate.stop()
    fakes.stop()


if __name__ == "__main__":
    main()
