# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request on a socket that never waits, and every piece of its answer with the moment at which it was there.
Private to the collection.

Nothing is parsed while requests run: what one answer costs to read would be late in the stamps of the others.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from .._node.sock_diag import Listener
from .._node.sockets import is_of, listener
from .._text import Refusal

# Bytes of one answer, many times those of the longest.
LARGEST = 32 << 20
PIECE = 1 << 16
# How a body of unknown length ends.
LAST_CHUNK = b"0\r\n\r\n"

# No socket has this inode.
NOBODY = Listener(-1, 0)
READ, WRITE = 1, 2  # as selectors has them


class Target(NamedTuple):
    """Who is asked. family and address: of the socket; host: as its certificate and the Host header name it. own: who
    has to listen there; whoever else does is sent nothing."""

    family: int
    address: tuple[Any, ...]
    host: str
    path: str
    tls: ssl.SSLContext | None
    key: str | None
    own: Listener | None = None

    def post(self, path: str, body: bytes) -> bytes:
        """The bytes of a request, whose connection ends with its answer."""
        lines = [f"POST {self.path}{path} HTTP/1.1", "Host: " + self.host, "Content-Type: application/json"]
        lines += ["Accept: text/event-stream", "Connection: close", f"Content-Length: {len(body)}"]
        if self.key:
            lines.append("Authorization: Bearer " + self.key)
        return "\r\n".join(lines + ["", ""]).encode() + body


def target(url: str, key: str | None = None, pid: int | None = None) -> Target:
    """Of http://HOST:PORT[/PATH]. pid: of a unit of this node, the process that a key is for. Errors: Refusal for
    another URL, for a name that is unknown, and where somebody else listens."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        host, port = None, 0
    if not host or parts.scheme not in ("http", "https"):
        raise Refusal(f"url {url!r} is not an address: http://HOST:PORT is needed")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise Refusal(f"url {url}: {host} is not known here ({error.strerror}): give its address") from None
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    own = _owner((str(found[4][0]), port), url, pid) if key and pid is not None else None
    return Target(found[0], found[4], parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), tls, key, own)


def _owner(end: tuple[str, int], url: str, pid: int) -> Listener:
    """The listener of a process; where nobody listens, one that nobody is."""
    try:
        seen = listener(end)
    except OSError:
        # Not an IPv4 address, and a head listens at no other.
        seen = None
    if seen and not is_of(seen, pid):
        raise Refusal("user id %d listens at %s, not process %d of the unit: it gets no key" % (seen.user, url, pid))
    return seen or NOBODY


class Exchange:
    """A request and what came back. All moments are of time.monotonic().

    began: before the connection was asked for. pieces: (moment, bytes) for each time that the socket had something.
    ended: when nothing more came; failed: why it was given up, None after an orderly end.
    """

    def __init__(self, to: Target, request: bytes, timeout: float) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        self.began = time.monotonic()
        self.deadline = self.began + timeout
        self.ended: float | None = None
        self.failed: str | None = None
        self.interest = WRITE
        self._timeout = timeout
        self._left = memoryview(request)
        self._size = 0
        self._tail = b""
        self._connected = self._shaken = False
        self._to = to
        self.socket = socket.socket(to.family, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self.socket.connect_ex(to.address)
        if code not in (0, errno.EINPROGRESS):
            self.give_up(f"no connection ({os.strerror(code)})")

    def fileno(self) -> int:
        return self.socket.fileno()

    def give_up(self, why: str | None = None) -> None:
        """Ends it, as failed where a reason is given."""
        self.ended = time.monotonic()
        self.failed = why
        self.socket.close()

    def expire(self, now: float) -> None:
        if now >= self.deadline:
            self.give_up(f"no whole answer in {self._timeout:g} s")

    def go_on(self) -> None:
        """What the socket is ready for."""
        try:
            if not self._connected:
                self._connect()
            elif not self._shaken:
                self._shake()
            elif self._left:
                self._send()
            else:
                self._receive()
        except ssl.SSLWantReadError:
            self.interest = READ
        except ssl.SSLWantWriteError:
            self.interest = WRITE
        except BlockingIOError:
            pass
        except ssl.SSLError as error:
            self.give_up("TLS fails (%s)" % (error.reason or error))
        except OSError as error:
            self.give_up("the connection broke (%s)" % (error.strerror or error))

    def _connect(self) -> None:
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self.give_up(f"no connection ({os.strerror(code)})")
            return
        # The same one before and after has got the connection, too.
        if self._to.own and listener(self.socket.getpeername()[:2]) != self._to.own:
            self.give_up("somebody else listens there now: it gets no key")
            return
        self._connected = True
        if self._to.tls:
            self.socket = self._to.tls.wrap_socket(
                self.socket, server_hostname=urlsplit("//" + self._to.host).hostname, do_handshake_on_connect=False
            )
        self._shaken = not self._to.tls
        self.go_on()

    def _shake(self) -> None:
        stream: Any = self.socket
        stream.do_handshake()
        self._shaken = True
        self.interest = WRITE
        self._send()

    def _send(self) -> None:
        self._left = self._left[self.socket.send(self._left) :]
        if not self._left:
            self.interest = READ

    def _receive(self) -> None:
        while True:
            data = self.socket.recv(PIECE)
            now = time.monotonic()
            if not data:
                self.give_up()
                return
            self.pieces.append((now, data))
            self._size += len(data)
            self._tail = (self._tail + data[-8:])[-8:]
            if self._size > LARGEST:
                self.give_up("an answer of more than %d MiB" % (LARGEST >> 20))
                return
            if self._tail.endswith(LAST_CHUNK):
                self.give_up()
                return
            # What TLS has decrypted already is not seen by a selector.
            pending = getattr(self.socket, "pending", None)
            if not pending or not pending():
                return


class Response(NamedTuple):
    """What was received, apart. lines: of the body, each with the moment at which its end was there, at most 1 MiB of
    an unfinished one. whole: whether the body ended as its head promised."""

    status: int
    headers: dict[str, str]
    lines: list[tuple[float, bytes]]
    whole: bool


def response(pieces: list[tuple[float, bytes]]) -> Response | None:
    """None where no HTTP head came."""
    buffered, used, found, head, body = b"", 0, b"", b"", b""
    while not found and used < len(pieces) and len(buffered) <= PIECE:
        buffered += pieces[used][1]
        used += 1
        head, found, body = buffered.partition(b"\r\n\r\n")
    if not found:
        return None
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if not words[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():
        return None
    pairs = (line.partition(":") for line in lines[1:])
    headers = {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}
    length = headers.get("content-length", "")
    reader: Any = _Chunks() if headers.get("transfer-encoding", "").lower() == "chunked" else _Plain(length)
    found_lines: list[tuple[float, bytes]] = []
    unfinished: list[bytes] = []
    for moment, data in [(pieces[used - 1][0], body)] + pieces[used:]:
        parts = reader.read(data).split(b"\n")
        for part in parts[:-1]:
            found_lines.append((moment, b"".join(unfinished + [part]).rstrip(b"\r")))
            unfinished = []
        if parts[-1]:
            unfinished.append(parts[-1])
    if unfinished:
        found_lines.append((pieces[-1][0], b"".join(unfinished)))
    return Response(int(words[1][:3]), headers, found_lines, reader.whole)


class _Plain:
    """A body as it is; without a length it is whole when the connection ends."""

    def __init__(self, length: str) -> None:
        self._left = int(length[:12]) if length.isdigit() else 0
        self.whole = self._left <= 0

    def read(self, data: bytes) -> bytes:
        self._left -= len(data)
        self.whole = self._left <= 0
        return data


class _Chunks:
    """A chunked body."""

    def __init__(self) -> None:
        self._buffer = b""
        self._left = 0  # bytes of the chunk that is being read, with the line end after it
        self.whole = False

    def read(self, data: bytes) -> bytes:
        out = []
        self._buffer += data
        while self._buffer and not self.whole:
            if not self._left:
                line, found, rest = self._buffer.partition(b"\r\n")
                if not found:
                    break
                size = line.partition(b";")[0].strip()
                self._left = int(size, 16) + 2 if size and len(size) < 9 and not size.strip(HEX) else 2
                self._buffer = rest
                self.whole = self._left == 2
            else:
                part, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
                out.append(part[: max(0, self._left - 2)])
                self._left -= len(part)
        return b"".join(out)


HEX = b"0123456789abcdefABCDEF"
