# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client's connection: one request and one answer. It ends when the client leaves. Private to the collection."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

from . import request
from .answers import Answer
from .http_body import LAST, chunk
from .log import Entry

# Seconds for a client to send its request, and to read an answer that came before the request was complete.
READ, LINGER = 60.0, 2.0


class Connection(asyncio.StreamReaderProtocol):
    """serve: a coroutine function. Its task is cancelled when the client leaves."""

    def __init__(self, loop: asyncio.AbstractEventLoop, serve: Callable[[Connection], Any]) -> None:
        self.reader = asyncio.StreamReader(limit=request.HEAD, loop=loop)
        super().__init__(self.reader, loop=loop)
        self._running, self._serve = loop, serve
        self._task: asyncio.Task[None] | None = None
        self.started = False  # whether an answer has begun
        self.pinged = False  # whether comments of a stream were passed on, before its first event
        self.left = False
        self.late = False  # whether the request did not come in time
        self.held = 0  # bytes of its body

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.end: Any = transport
        self.writer = asyncio.StreamWriter(self.end, self, self.reader, self._running)
        self._task = self._running.create_task(self._serve(self))

    def eof_received(self) -> bool | None:
        keep = super().eof_received()
        self._leave()
        return keep

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._leave()

    def _leave(self) -> None:
        self.left = True
        if self._task is not None:
            self._task.cancel()

    async def read(self, refused: Callable[[request.Head], Answer | None]) -> tuple[request.Head, bytes]:
        """Errors: Answered, EOFError."""
        timer = self._running.call_later(READ, self._is_late)
        try:
            return await request.read(self.reader, self.writer, refused)
        finally:
            timer.cancel()

    def _is_late(self) -> None:
        self.late = True
        self._leave()

    async def write(self, data: bytes, entry: Entry, status: int | None = None) -> None:
        """status: of the answer that begins with this. Waits while the client reads slower."""
        if status is not None:
            self.started = True
            entry.first_byte(status)
        entry.sent(len(data))
        self.writer.write(data)
        await self.writer.drain()

    async def ping(self, data: bytes, entry: Entry) -> None:
        """Passes on comments of a stream, the first with its head. They do not begin an answer."""
        self.pinged = True
        await self.write(data, entry)

    async def answer(self, head: bytes, body: bytes, entry: Entry, status: int) -> None:
        """Writes a complete answer. After comments of a stream it is the stream's last event."""
        event = chunk(b"data: " + b" ".join(body.split()) + b"\n\n") + LAST
        await self.write(event if self.pinged else head + body, entry, status)

    async def reply(self, answer: Answer, entry: Entry, method: str = "GET") -> None:
        body = b"" if method == "HEAD" else answer.body
        await self.answer(answer.head(), body, entry, answer.status)

    async def linger(self) -> None:
        """Reads the rest of the request; otherwise the client does not see its answer."""
        if self.writer.can_write_eof():
            self.writer.write_eof()
        end = self._running.time() + LINGER
        while self._running.time() < end:
            try:
                if not await asyncio.wait_for(self.reader.read(1 << 16), LINGER):
                    return
            except asyncio.TimeoutError:
                return

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        """An incomplete answer must not look complete."""
        self.end.abort()
