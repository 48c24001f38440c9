"""The clients of the benchmarks: requests over connections of their own, and what became of each."""

import asyncio
import collections
import json
import statistics
import time

EVENT = b"data: {"
TIMEOUT = 60


class Outcome:
    """One request. body: the answer with the lines of its chunks; error: why it is no complete answer with 200."""

    def __init__(self):
        self.started, self.first, self.ended = time.perf_counter(), None, None
        self.head, self.body, self.error = b"", b"", ""

    @property
    def seconds(self):
        return self.ended - self.started

    @property
    def ttfb(self):
        return self.first - self.started

    def judge(self, tokens):
        """tokens: of a stream, None for an answer with a length."""
        if b" 200 " not in self.head[:16]:
            return "status " + self.head[9:12].decode("latin-1")
        if tokens is None:
            length = self.head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            return "" if length and len(self.body) == int(length) else "cut"
        events = self.body.count(EVENT)
        complete = events == tokens + 1 and self.body.endswith(b"0\r\n\r\n") and b"[DONE]" in self.body
        return "" if complete else f"{events} of {tokens + 1} events"


def request(model, tokens, size, stream=True):
    """A chat request of about `size` bytes, with `model` as its last key as the openai SDK writes it."""
    messages = [{"role": "user", "content": " word" * (size // 5)}]
    body = json.dumps({"messages": messages, "max_tokens": tokens, "stream": stream, "model": model}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Content-Type: application/json\r\nConnection: close\r\n\r\n" + body


async def ask(port, message, tokens=None):
    """-> Outcome of one request on a connection of its own."""
    outcome = Outcome()
    try:
        await asyncio.wait_for(_exchange(port, message, outcome), TIMEOUT)
        outcome.error = outcome.judge(tokens)
    except (OSError, EOFError, asyncio.TimeoutError) as error:
        outcome.error = type(error).__name__
    outcome.ended = time.perf_counter()
    return outcome


async def _exchange(port, message, outcome):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(message)
        outcome.head = await reader.readuntil(b"\r\n\r\n")
        outcome.first = time.perf_counter()
        outcome.body = await reader.read()
    finally:
        writer.close()


async def together(port, message, count, tokens=None):
    return await asyncio.gather(*(ask(port, message, tokens) for _one in range(count)))


async def steady(port, message, clients, seconds, tokens=None):
    """Clients that ask again and again for so long, the first time at moments spread over a while."""
    found, until = [], time.perf_counter() + seconds

    async def one(number):
        await asyncio.sleep(0.2 * number / clients)
        while time.perf_counter() < until:
            found.append(await ask(port, message, tokens))

    await asyncio.gather(*(one(number) for number in range(clients)))
    return found


def times(outcomes):
    """-> (median, 99th percentile) of the time to the first byte, in milliseconds."""
    found = sorted(one.ttfb * 1000 for one in outcomes if one.first is not None)
    return statistics.median(found), found[int(len(found) * 0.99)]


def failures(outcomes):
    """-> {error: count}"""
    return dict(collections.Counter(one.error for one in outcomes if one.error))
