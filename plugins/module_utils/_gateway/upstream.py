# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request to a llama-server, and its answer: the head is read, the body is passed on as it comes. Private to the
collection."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import socket
from collections.abc import Iterable

from . import request
from .answers import CORS, Unanswered
from .config import Address
from .request import Headers

# Bytes of a head, and of a piece that is read at once.
HEAD, PIECE = 64 << 10, 64 << 10
# Seconds for a connection.
CONNECT = 1.5
STATUS = re.compile(r"^HTTP/1\.[01] ([1-5][0-9][0-9])(?: ([^\r\n]*))?\Z")
SIZE = re.compile(rb"^([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n\Z")
# Of the connection to the server alone.
OF_CONNECTION = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
    *("transfer-encoding", "upgrade"),
)
# Bytes of a chunk's line.
LINE = 4096
# Who ends without a word is found by the kernel: seconds idle, between two questions, and their number.
KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))


class Unreachable(Unanswered):
    """No connection: nothing of the request was sent."""


class Exhausted(Unanswered):
    """No descriptor is left here: it says nothing of the server."""


class Broken(Unanswered):
    """The server ended, or spoke no HTTP, before its answer was whole."""


# The end of an answer in chunks.
LAST = b"0\r\n\r\n"


def chunk(content: bytes) -> bytes:
    """Nothing for nothing, which would be the last one."""
    return b"%x\r\n%s\r\n" % (len(content), content) if content else b""


class Framing:
    """How far the body of an answer has come. feed(data) -> how many bytes of it belong to the body; content: what they
    say, without the lines of chunks."""

    done = False
    content = b""

    def feed(self, data: bytes) -> int:
        self.content = data
        return len(data)


class Length(Framing):
    def __init__(self, length: int) -> None:
        self.left = length
        self.done = not length

    def feed(self, data: bytes) -> int:
        count = min(self.left, len(data))
        self.left -= count
        self.done = not self.left
        self.content = data[:count]
        return count


class Chunks(Framing):
    """Chunks are passed on as they are; only where they end is looked for. Errors: Broken."""

    def __init__(self) -> None:
        self._left = 0  # of a chunk, with the line feed behind it
        self._line = b""
        self._trailer = False

    def feed(self, data: bytes) -> int:
        at, end, said = 0, len(data), []
        while at < end and not self.done:
            if self._left:
                step = min(self._left, end - at)
                said.append(data[at : at + max(0, min(step, self._left - 2))])
                self._left -= step
                at += step
                continue
            found = data.find(b"\n", at) + 1
            self._line += data[at : found or end]
            if len(self._line) > LINE:
                raise Broken("the line of a chunk is too long")
            at = found or end
            if found:
                self._read_line(self._line)
                self._line = b""
        self.content = b"".join(said)
        return at

    def _read_line(self, line: bytes) -> None:
        if self._trailer:
            self.done = line == b"\r\n"
            return
        size = SIZE.match(line)
        if not size:
            raise Broken("no size of a chunk")
        length = int(size.group(1), 16)
        self._trailer = not length
        self._left = length + 2 if length else 0


class Head:
    """The head of an answer. length: of the body, None where it is not told."""

    def __init__(self, data: bytes, method: str) -> None:
        lines = data[:-4].decode("latin-1").split("\r\n")
        status = STATUS.match(lines[0])
        if not status:
            raise Broken("no HTTP")
        self.status, self.reason = int(status.group(1)), status.group(2) or ""
        try:
            self.headers: Headers = request.parse_headers(lines[1:])
        except request.Malformed:
            raise Broken("a head that is no HTTP") from None
        values = dict(self.headers)
        framing = [name for name, _value in self.headers if name in ("content-length", "transfer-encoding")]
        if len(framing) > 1:
            raise Broken("two lengths")
        self.type = values.get("content-type", "")
        self.chunked = values.get("transfer-encoding", "").lower() == "chunked"
        self.length: int | None = None
        if method == "HEAD" or self.status in (204, 304):
            self.chunked, self.length = False, 0
        elif not self.chunked and "content-length" in values:
            if not re.match(r"^[0-9]{1,15}\Z", values["content-length"]):
                raise Broken("a length that is no number")
            self.length = int(values["content-length"])

    @property
    def framing(self) -> Framing:
        if self.chunked:
            return Chunks()
        return Length(self.length) if self.length is not None else Framing()

    def sent(self, also: Iterable[tuple[str, str]]) -> bytes:
        """As the client gets it: with the framing of the server, and without what is of its connection."""
        passed = [
            (name, value)
            for name, value in self.headers
            if name not in OF_CONNECTION and not name.startswith(("x-llama-", "access-control-"))
        ]
        if self.chunked or self.length is None:
            passed = [(name, value) for name, value in passed if name != "content-length"]
            passed.append(("Transfer-Encoding", "chunked"))
        lines = ["HTTP/1.1 %d %s" % (self.status, self.reason)]
        lines += ["%s: %s" % header for header in (*passed, *CORS, *also)]
        lines.append("Connection: close\r\n\r\n")
        return "\r\n".join(lines).encode("latin-1")


class Upstream:
    """One connection for one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def abort(self) -> None:
        """Ends it at once: the server stops generating."""
        self.writer.transport.abort()

    async def send(self, head: bytes, body: bytes) -> None:
        """Errors: Broken."""
        try:
            self.writer.write(head)
            if body:
                self.writer.write(body)
            await self.writer.drain()
        except OSError as error:
            raise Broken(str(error)) from None

    async def head(self, method: str) -> Head:
        """Errors: Broken."""
        while True:
            try:
                data = await self.reader.readuntil(b"\r\n\r\n")
            except (OSError, EOFError, asyncio.LimitOverrunError) as error:
                raise Broken(type(error).__name__) from None
            head = Head(data, method)
            if head.status == 101:
                raise Broken("it speaks another protocol")
            # 1xx only says that an answer will come.
            if head.status >= 200:
                return head

    async def piece(self) -> bytes:
        """Errors: Broken."""
        try:
            return await self.reader.read(PIECE)
        except OSError as error:
            raise Broken(str(error)) from None


async def connect(where: Address, seconds: float = CONNECT) -> Upstream:
    """Errors: Unreachable, Exhausted."""
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(where.address, where.port, limit=max(HEAD, PIECE)), seconds
        )
    except asyncio.TimeoutError:
        raise Unreachable(f"no connection in {seconds:g} s") from None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise Exhausted() from None
        raise Unreachable(error.strerror or str(error)) from None
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE:
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return Upstream(reader, writer)


def head_of(method: str, target: str, where: Address, headers: Headers, key: str | None, length: int) -> bytes:
    """The head of a request as a server gets it. A body has a length even where it is empty."""
    lines = [f"{method} {target} HTTP/1.1", "Host: %s:%d" % (where.address, where.port)]
    lines += ["%s: %s" % header for header in headers]
    if key:
        lines.append("Authorization: Bearer " + key)
    if length or method in ("POST", "PUT", "PATCH"):
        lines.append("Content-Length: %d" % length)
    lines.append("Connection: close\r\n\r\n")
    return "\r\n".join(lines).encode("latin-1")


async def get(where: Address, path: str, key: str | None, seconds: float, most: int = 4 << 20) -> tuple[int, bytes]:
    """A small answer of a server -> (status, body). Errors: Unreachable, Exhausted, Broken."""

    async def ask() -> tuple[int, bytes]:
        upstream = await connect(where)
        try:
            await upstream.send(head_of("GET", path, where, [], key, 0), b"")
            head = await upstream.head("GET")
            framing, body = head.framing, b""
            while not framing.done and len(body) <= most:
                data = await upstream.piece()
                if not data:
                    break
                framing.feed(data)
                body += framing.content
            if not framing.done and head.length is not None:
                raise Broken("half an answer")
            return head.status, body
        finally:
            upstream.abort()

    try:
        return await asyncio.wait_for(ask(), seconds)
    except asyncio.TimeoutError:
        raise Broken(f"no answer in {seconds:g} s") from None
