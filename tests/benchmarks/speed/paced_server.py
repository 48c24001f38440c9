"""A server whose speed is known, because it writes down what it does: tokens at fixed moments, like llama-server's
stream.

    python paced_server.py PORT   (or PacedServer in a process of its own)

A request waits `prompt` seconds, then its tokens follow each other by `pace` seconds, at moments that are fixed when it
arrives: a late one does not delay the others. GET /truth tells of each request when it arrived and when each token was
given to the kernel, in seconds of CLOCK_MONOTONIC, which this machine's processes share.
"""

import asyncio
import json
import sys
import time

EVENT = 'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"object":"chat.completion.chunk"}'


def chunk(text):
    data = (text + "\n\n").encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


class PacedServer:
    """pace and prompt: seconds. tokens: of each answer, unless a request says max_tokens."""

    def __init__(self, pace=0.02, prompt=0.05):
        self.pace, self.prompt = pace, prompt
        self.served = []

    async def handle(self, reader, writer):
        arrived = time.monotonic()
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                arrived = time.monotonic()
                line, *fields = head.split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _colon, value in (one.partition(":") for one in fields)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, path = line.split(" ")[:2]
                if method == "POST":
                    await self.stream(writer, json.loads(body), arrived)
                else:
                    self.tell(writer, path)
                if headers.get("connection") == "close":
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def stream(self, writer, request, arrived):
        tokens = request.get("max_completion_tokens") or request.get("max_tokens") or 32
        written = []
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(tokens):
            await asyncio.sleep(arrived + self.prompt + number * self.pace - time.monotonic())
            writer.write(chunk(EVENT % ("w%d " % number)))
            written.append(time.monotonic())
        usage = {"prompt_tokens": 32, "completion_tokens": tokens, "total_tokens": 32 + tokens}
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "object": "chat.completion.chunk"}
        last = {"choices": [], "usage": usage, "object": "chat.completion.chunk"}
        for part in ("data: " + json.dumps(end), "data: " + json.dumps(last), "data: [DONE]"):
            writer.write(chunk(part))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        self.served.append({"arrived": arrived, "written": written})

    def tell(self, writer, path):
        known = {"/v1/models": {"object": "list", "data": [{"id": "paced", "object": "model"}]}, "/health": {}}
        if path == "/truth":
            known[path], self.served = self.served, []
        body = json.dumps(known.get(path, {})).encode()
        status = "200 OK" if path in known else "404 Not Found"
        head = "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        writer.write(head.encode() + body)


async def serve(port, **speed):
    server = await asyncio.start_server(PacedServer(**speed).handle, "127.0.0.1", port, backlog=512)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    given = dict(zip(("pace", "prompt"), map(float, sys.argv[2:]), strict=False))
    asyncio.run(serve(int(sys.argv[1]), **given))
