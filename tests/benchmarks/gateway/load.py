"""The clients of the benchmarks: requests over connections of their own, and what became of each."""

import asyncio
import json
import statistics
import time

EVENT = b"data: {"
TIMEOUT = 60


class Outcome:
    """One request. `whole`: the transfer came to its end as HTTP has it; `done`: with [DONE]."""

    def __init__(self):
        self.started = time.perf_counter()
        self.status, self.first, self.ended = None, None, None
        self.head, self.body = "", b""
        self.tokens, self.done, self.whole, self.error = 0, False, False, None

    @property
    def ok(self):
        return self.status == 200 and self.whole and self.error is None

    @property
    def ttfb(self):
        return self.first - self.started

    @property
    def seconds(self):
        return self.ended - self.started

    def header(self, name):
        for line in self.head.split("\r\n")[1:]:
            key, _colon, value = line.partition(":")
            if key.strip().lower() == name.lower():
                return value.strip()
        return None

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def why(self):
        if self.ok:
            return "ok"
        if self.error or not self.whole:
            return self.error or "status %s, cut" % self.status
        error = (self.json() or {}).get("error") or {}
        return "status %s %s" % (self.status, error.get("code"))


class Client(asyncio.Protocol):
    """Sends one request and reads its answer. A stream's events are counted and not kept."""

    def __init__(self, request, outcome, finished, stream):
        self.request, self.outcome, self.finished, self.stream = request, outcome, finished, stream
        self.buffer, self.transport, self.left, self.chunked = b"", None, None, False

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data):
        outcome, content = self.outcome, data
        if outcome.first is None:
            outcome.first = time.perf_counter()
        if outcome.status is None:
            self.buffer += content
            head, end, content = self.buffer.partition(b"\r\n\r\n")
            if not end:
                return
            self.buffer = b""
            outcome.head = head.decode("latin-1")
            outcome.status = int(outcome.head.split(" ")[1])
            length = outcome.header("content-length")
            self.left = None if length is None else int(length)
            self.chunked = "chunked" in (outcome.header("transfer-encoding") or "")
        if self.stream and self.chunked and outcome.status == 200:
            # An event is never split here: it is looked for in what came, with the end of what came before.
            text = self.buffer + content
            outcome.tokens += text.count(EVENT)
            outcome.done = outcome.done or b"data: [DONE]" in text
            self.buffer = text[-(len(EVENT) - 1) :] if not text.endswith(b"0\r\n\r\n") else text[-5:]
        else:
            outcome.body += content
            self.buffer = outcome.body[-5:]
        last_chunk = self.chunked and self.buffer.endswith(b"0\r\n\r\n")
        if last_chunk or (self.left is not None and len(outcome.body) >= self.left):
            self.end(whole=True)

    def end(self, whole):
        if self.outcome.ended is None:
            self.outcome.whole, self.outcome.ended = whole, time.perf_counter()
            self.transport.abort()
            if not self.finished.done():
                self.finished.set_result(None)

    def connection_lost(self, exc):
        if self.outcome.ended is None:
            if self.outcome.status is None:
                self.outcome.error = "closed without an answer" if exc is None else type(exc).__name__
            # Without a length and without chunks the end of the connection is the end of the answer.
            self.end(whole=self.outcome.status is not None and self.left is None and not self.chunked)


def request(body, path="/v1/chat/completions", host="bench", headers=()):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = ["POST %s HTTP/1.1" % path, "Host: " + host, "Content-Type: application/json"]
    lines += ["Content-Length: %d" % len(content), "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def get(path, headers=()):
    return "\r\n".join(["GET %s HTTP/1.1" % path, "Host: bench", "Connection: close", *headers]).encode() + b"\r\n\r\n"


def chat(model, tokens, size=0, stream=True, last=True, prompt=""):
    """A chat request of about `size` bytes, with `model` as its last key."""
    text = prompt + " word" * max(0, (size - len(prompt) - 150) // 5)
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "stream": stream}
    return dict(body, model=model) if last else dict({"model": model}, **body)


async def ask(port, message, stream=False, timeout=TIMEOUT, leave_after=None):
    """-> Outcome. leave_after: this client closes its connection so many seconds after it was made."""
    loop = asyncio.get_running_loop()
    outcome, finished = Outcome(), loop.create_future()
    try:
        client = (await loop.create_connection(lambda: Client(message, outcome, finished, stream), "127.0.0.1", port))[
            1
        ]
        if leave_after is not None:
            await asyncio.sleep(leave_after)
            client.end(whole=False)
        await asyncio.wait_for(finished, timeout)
    except asyncio.TimeoutError:
        outcome.error, outcome.ended = "no end after %d s" % timeout, time.perf_counter()
    except OSError as problem:
        outcome.error, outcome.ended = type(problem).__name__, time.perf_counter()
    return outcome


async def together(port, messages, stream=True, timeout=TIMEOUT):
    return await asyncio.gather(*(ask(port, message, stream, timeout) for message in messages))


async def steady(port, message, clients, seconds, stream=True, spread=1.0):
    """Clients that ask again and again for so long, the first time at moments spread over a while."""
    found = []
    until = time.perf_counter() + seconds

    async def one(number):
        await asyncio.sleep(spread * number / clients)
        while time.perf_counter() < until:
            found.append(await ask(port, message, stream))

    await asyncio.gather(*(one(number) for number in range(clients)))
    return found


def quantile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def times(outcomes):
    """-> (median, 99th percentile) of the time to the first byte, in milliseconds."""
    found = [outcome.ttfb * 1000 for outcome in outcomes if outcome.first is not None]
    return (statistics.median(found), quantile(found, 0.99)) if found else (float("nan"), float("nan"))


def failures(outcomes, tokens=None):
    """-> {exc: count} of those that failed, or whose stream was not whole."""
    found = {}
    for outcome in outcomes:
        why = outcome.why()
        if why == "ok" and tokens is not None and (outcome.tokens != tokens + 1 or not outcome.done):
            why = "%d of %d events" % (outcome.tokens, tokens + 1)
        if why != "ok":
            found[why] = found.get(why, 0) + 1
    return found
