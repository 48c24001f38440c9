"""A fake llama-server: tokens at a fixed pace, the answers of /health, /slots, /v1/models, no model and no memory.

    python3 fake_llama_server.py --port 24001 --model chat [--pace 0.02] [--loading 5] [--record FILE]

`max_tokens` of a request is the number of its tokens. A stream has its first token at once, each other one --pace
seconds later; an answer that is not streamed comes after all of that time. It answers with the name it was started
with, whatever name was asked for, as a llama-server of one model does. --record: one JSON line for each request, with
what a second reading of its head (the other of Content-Length and Transfer-Encoding) would make of it.
"""

import argparse
import asyncio
import json
import pathlib
import sys
import time

HEAD_END = b"\r\n\r\n"
DONE = b"data: [DONE]\n\n"


class Server:
    def __init__(self, arguments):
        self.model, self.pace, self.port = arguments.model, arguments.pace, arguments.port
        self.slots = arguments.slots
        self.ready_at = time.monotonic() + arguments.loading
        self.record = arguments.record and pathlib.Path(arguments.record)
        self.busy, self.most, self.served, self.left = 0, 0, 0, []
        text = {"index": 0, "finish_reason": None, "delta": {"content": " token"}}
        body = {"choices": [text], "created": 1, "id": "chatcmpl-fake", "model": self.model}
        body["object"] = "chat.completion.chunk"
        self.event = chunk(b"data: " + json.dumps(body).encode() + b"\n\n")
        text = {"index": 0, "finish_reason": "stop", "delta": {}}
        body["choices"] = [text]
        self.last = chunk(b"data: " + json.dumps(body).encode() + b"\n\n") + chunk(DONE) + b"0\r\n\r\n"

    def loading(self):
        return time.monotonic() < self.ready_at


def chunk(content):
    return b"%x\r\n%s\r\n" % (len(content), content)


class Connection(asyncio.Protocol):
    def __init__(self, server):
        self.server, self.loop = server, asyncio.get_running_loop()
        self.buffer, self.timer, self.transport = bytearray(), None, None
        self.since = None

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, _reason):
        if self.timer:
            self.timer.cancel()
        if self.since is not None:
            self.free()
            self.server.left.append(time.time())

    def data_received(self, data):
        self.buffer += data
        if self.since is None:
            self.read()

    def read(self):
        """The next request of the buffer, if it is there as a whole."""
        end = self.buffer.find(HEAD_END)
        if end < 0:
            return
        lines = bytes(self.buffer[:end]).split(b"\r\n")
        heads = [tuple(part.strip() for part in line.partition(b":")[::2]) for line in lines[1:]]
        lengths = [value for name, value in heads if name.lower() == b"content-length"]
        codings = [value for name, value in heads if name.lower() == b"transfer-encoding"]
        start = end + len(HEAD_END)
        if codings:
            body, after = read_chunks(self.buffer, start)
            if body is None:
                return
        else:
            length = int(lengths[0]) if lengths and lengths[0].isdigit() else 0
            body, after = bytes(self.buffer[start : start + length]), start + length
            if len(self.buffer) < after:
                return
        del self.buffer[:after]
        method, _space, rest = lines[0].partition(b" ")
        path = rest.rpartition(b" ")[0]
        if self.server.record:
            seen = {
                "line": lines[0].decode("latin-1"),
                "heads": [[k.decode("latin-1"), v.decode("latin-1")] for k, v in heads],
            }
            seen.update(lengths=len(lengths), codings=len(codings), body_bytes=len(body), model=name_in(body))
            seen["body_head"] = body[:80].decode("latin-1")
            with self.server.record.open("a") as record:
                record.write(json.dumps(seen) + "\n")
        self.answer(method, path.partition(b"?")[0], body)

    def answer(self, method, path, body):
        server = self.server
        if path == b"/fake":
            counts = {"busy": server.busy, "most": server.most, "served": server.served, "left": server.left}
            self.whole(200, counts)
        elif server.loading():
            error = {"message": "Loading model", "type": "unavailable_error", "code": 503}
            self.whole(503, {"error": error})
        elif path == b"/health":
            self.whole(200, {"status": "ok"})
        elif path == b"/slots":
            slots = range(server.slots)
            self.whole(200, [{"id": n, "n_ctx": 4096, "is_processing": n < server.busy} for n in slots])
        elif path in (b"/v1/models", b"/models"):
            self.whole(200, {"object": "list", "data": [{"id": server.model, "object": "model"}]})
        elif method == b"POST" and path.startswith(b"/v1/"):
            self.generate(body)
        else:
            self.whole(404, {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}})

    def generate(self, body):
        server = self.server
        try:
            asked = json.loads(body)
            tokens = max(1, int(asked.get("max_tokens") or 8))
        except (ValueError, AttributeError, TypeError, OverflowError, RecursionError) as problem:
            self.whole(400, {"error": {"message": str(problem), "type": "invalid_request_error", "code": 400}})
            return
        self.since = time.monotonic()
        server.busy += 1
        server.most = max(server.most, server.busy)
        if asked.get("stream"):
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            self.transport.write(head + server.event)
            self.timer = self.loop.call_later(server.pace, self.token, self.loop.time() + server.pace, tokens - 1)
        else:
            self.timer = self.loop.call_later(server.pace * tokens, self.finish, asked, tokens)

    def token(self, due, left):
        if left <= 0:
            self.transport.write(self.server.last)
            self.free()
            self.read()
            return
        self.transport.write(self.server.event)
        due += self.server.pace
        self.timer = self.loop.call_at(due, self.token, due, left - 1)

    def finish(self, asked, tokens):
        message = {"role": "assistant", "content": " token" * tokens}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": 1 + tokens}
        answer = {"choices": [choice], "model": self.server.model, "object": "chat.completion", "usage": usage}
        self.free()
        self.whole(200, dict(answer, id="chatcmpl-fake", created=1, asked=asked.get("model"), port=self.server.port))
        self.read()

    def free(self):
        self.since = None
        self.server.busy -= 1
        self.server.served += 1

    def whole(self, status, answer):
        content = json.dumps(answer).encode()
        head = b"HTTP/1.1 %d Fake\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.transport.write(head % (status, len(content)) + content)
        if self.buffer and self.since is None:
            self.loop.call_soon(self.read)


def name_in(body):
    try:
        return json.loads(body).get("model")
    except (ValueError, AttributeError, RecursionError):
        return None


def read_chunks(buffer, at):
    """-> (body, where the next request begins), (None, None) while something is missing."""
    body = b""
    while True:
        end = buffer.find(b"\r\n", at)
        if end < 0:
            return None, None
        try:
            size = int(bytes(buffer[at:end]).partition(b";")[0], 16)
        except ValueError:
            return body, len(buffer)
        if len(buffer) < end + 4 + size:
            return None, None
        body += bytes(buffer[end + 2 : end + 2 + size])
        at = end + 4 + size
        if size == 0:
            return body, at


async def serve(arguments):
    server = Server(arguments)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: Connection(server), "127.0.0.1", arguments.port, backlog=1024)
    await listener.serve_forever()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--pace", type=float, default=0.02)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--loading", type=float, default=0, help="seconds for which it answers 503, as while it loads")
    parser.add_argument("--record")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
