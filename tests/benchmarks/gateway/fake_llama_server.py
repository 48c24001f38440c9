"""A fake llama-server: tokens at a fixed pace, the answers of /health and /slots, no model and no memory.

    python3 fake_llama_server.py --port 24001 --model chat [--pace 0.02] [--loading 5]

`max_tokens` of a request is the number of its tokens. A stream has its first token at once, each other one --pace
seconds later; an answer that is not streamed comes after all of that time.
"""

import argparse
import asyncio
import json
import time

BEGIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
WHOLE = b"HTTP/1.1 %d Fake\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"


def event(text):
    content = b"data: %s\n\n" % text.encode()
    return b"%x\r\n%s\r\n" % (len(content), content)


def whole(status, value):
    content = json.dumps(value).encode()
    return WHOLE % (status, len(content), content)


class Server:
    def __init__(self, arguments):
        self.model, self.pace, self.slots = arguments.model, arguments.pace, arguments.slots
        self.ready_at = time.monotonic() + arguments.loading
        choice = {"index": 0, "finish_reason": None, "delta": {"content": " token"}}
        self.token = event(json.dumps({"choices": [choice], "model": self.model}))
        self.last = event(json.dumps({"choices": [dict(choice, delta={}, finish_reason="stop")]})) + event("[DONE]")

    async def connected(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
            await self.answer(head.split(" ")[1], await reader.readexactly(length), writer)
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    async def answer(self, path, body, writer):
        if time.monotonic() < self.ready_at:
            writer.write(whole(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}))
        elif path == "/slots":
            writer.write(whole(200, [{"id": number, "n_ctx": 4096} for number in range(self.slots)]))
        elif not body:
            writer.write(whole(200, {"status": "ok"}))
        else:
            await self.generate(json.loads(body), writer)

    async def generate(self, asked, writer):
        tokens = int(asked.get("max_tokens") or 8)
        if not asked.get("stream"):
            await asyncio.sleep(self.pace * tokens)
            message = {"role": "assistant", "content": " token" * tokens}
            writer.write(whole(200, {"choices": [{"index": 0, "message": message}], "model": self.model}))
            return
        due = time.monotonic()
        for number in range(tokens):
            writer.write(self.token if number else BEGIN + self.token)
            due += self.pace
            await asyncio.sleep(max(0, due - time.monotonic()))
        writer.write(self.last + b"0\r\n\r\n")


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--pace", type=float, default=0.02)
    parser.add_argument("--slots", type=int, default=512)
    parser.add_argument("--loading", type=float, default=0, help="seconds for which it answers 503, as while it loads")
    arguments = parser.parse_args()
    server = Server(arguments)
    options = {"limit": 1 << 25, "backlog": 1024}
    listener = await asyncio.start_server(server.connected, "127.0.0.1", arguments.port, **options)
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
