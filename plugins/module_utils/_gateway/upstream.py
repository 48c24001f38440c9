# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request to a llama-server and its answer. Private to the collection."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import socket
from collections.abc import Iterable

from . import request
from .answers import CORS, Answered, Unanswered
from .config import Address
from .http_body import Chunks, Plain
from .request import Headers

# Bytes of a head, and of a piece of a body.
HEAD, PIECE = 64 << 10, 64 << 10
# Seconds for a connection.
CONNECT = 1.5
STATUS = re.compile(r"^HTTP/1\.[01] ([1-5][0-9][0-9])(?: ([^\r\n]*))?\Z")
# Headers of a connection, which are not passed on.
OF_CONNECTION = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
    *("transfer-encoding", "upgrade"),
)
# The kernel detects a vanished peer: seconds idle, seconds between two probes, number of probes.
KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))


class Unreachable(Unanswered):
    """No connection; nothing of the request was sent."""


class Exhausted(Unanswered):
    """No descriptor is left here. The server may be fine."""


class Broken(Unanswered):
    """The server ended, or violated HTTP, before its answer was complete."""


class Head:
    """The head of an answer. length: of the body, None if unknown. Errors: Broken."""

    def __init__(self, data: bytes, method: str) -> None:
        lines = data[:-4].decode("latin-1").split("\r\n")
        status = STATUS.match(lines[0])
        try:
            self.headers: Headers = request.parse_headers(lines[1:])
        except Answered:
            status = None
        if not status:
            raise Broken("no HTTP")
        self.status, self.reason = int(status.group(1)), status.group(2) or ""
        framing = [(name, value) for name, value in self.headers if name in ("content-length", "transfer-encoding")]
        length = dict(framing).get("content-length", "0")
        if len(framing) > 1 or not request.LENGTH.match(length):
            raise Broken("not one length")
        self.type = dict(self.headers).get("content-type", "")
        self.chunked = ("transfer-encoding", "chunked") in [(name, value.lower()) for name, value in framing]
        self.length = int(length) if framing and not self.chunked and framing[0][0] == "content-length" else None
        if method == "HEAD" or self.status in (204, 304):
            self.chunked, self.length = False, 0

    @property
    def body(self) -> Plain | Chunks:
        return Chunks() if self.chunked else Plain(self.length)

    def sent(self, also: Iterable[tuple[str, str]]) -> bytes:
        """The head for the client: without headers of the server's connection; chunked if the length is unknown."""
        dropped = (*OF_CONNECTION, "content-length") if self.length is None else OF_CONNECTION
        passed = [
            (name, value)
            for name, value in self.headers
            if name not in dropped and not name.startswith(("x-llama-", "access-control-"))
        ]
        if self.length is None:
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
        """Ends the connection at once: the server stops generating."""
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
                head = Head(await self.reader.readuntil(b"\r\n\r\n"), method)
            except (OSError, EOFError, asyncio.LimitOverrunError) as error:
                raise Broken(type(error).__name__) from None
            if head.status == 101:
                raise Broken("it speaks another protocol")
            # 1xx announces an answer.
            if head.status >= 200:
                return head

    async def piece(self, head: Head, body: Plain | Chunks) -> tuple[bytes, bool]:
        """The next content, and whether it is the last. Errors: Broken."""
        try:
            data = await self.reader.read(PIECE)
            content = body.feed(data)
        except (OSError, ValueError) as error:
            raise Broken(str(error)) from None
        if not data and (head.chunked or head.length is not None):
            raise Broken("half an answer")
        return content, body.done or not data


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
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return Upstream(reader, writer)


def head_of(method: str, target: str, where: Address, headers: Headers, key: str | None, length: int) -> bytes:
    """The head of a request for a server. An empty body has a length too."""
    lines = [f"{method} {target} HTTP/1.1", "Host: %s:%d" % (where.address, where.port)]
    lines += ["%s: %s" % header for header in headers]
    if key:
        lines.append("Authorization: Bearer " + key)
    if length or method in ("POST", "PUT", "PATCH"):
        lines.append("Content-Length: %d" % length)
    lines.append("Connection: close\r\n\r\n")
    return "\r\n".join(lines).encode("latin-1")


async def get(where: Address, path: str, key: str | None, seconds: float, most: int = 4 << 20) -> tuple[int, bytes]:
    """Status and body of a small page of a server. Errors: Unreachable, Exhausted, Broken."""

    async def ask() -> tuple[int, bytes]:
        upstream = await connect(where)
        try:
            await upstream.send(head_of("GET", path, where, [], key, 0), b"")
            head = await upstream.head("GET")
            body, found, ends = head.body, b"", head.length == 0
            while not ends and len(found) <= most:
                content, ends = await upstream.piece(head, body)
                found += content
            return head.status, found
        finally:
            upstream.abort()

    try:
        return await asyncio.wait_for(ask(), seconds)
    except asyncio.TimeoutError:
        raise Broken(f"no answer in {seconds:g} s") from None
