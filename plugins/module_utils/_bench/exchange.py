# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests on threads, in a closed loop or at a fixed rate, and every piece of each answer with the moment at which it
was there. Private to the collection.

No answer is parsed while requests run: that would delay the stamps of the others.
"""

from __future__ import annotations

import contextlib
import gc
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from .._node.sock_diag import Listener
from .._node.sockets import is_of, listener
from .._text import Refusal

# Bytes of one answer, many times those of the longest.
LARGEST = 32 << 20
PIECE = 1 << 16
# The most requests at a time, also of a fixed rate that the server does not keep up with.
MOST = 64

# No socket has this inode.
NOBODY = Listener(-1, 0)


class Target(NamedTuple):
    """A server. address: of the socket; host: as its certificate and the Host header name it. own: the listener that
    the key is for; another one is sent nothing."""

    address: tuple[Any, ...]
    host: str
    path: str
    tls: ssl.SSLContext | None
    key: str | None
    own: Listener | None = None


class Exchange(NamedTuple):
    """A request and its answer. All moments are of time.monotonic().

    began: before the connection. pieces: (moment, bytes) of the body. ended: when nothing more came; failed: why it was
    given up, None after an orderly end. status: of HTTP, 0 without an answer.
    """

    began: float
    pieces: list[tuple[float, bytes]]
    ended: float
    failed: str | None = None
    status: int = 0


def target(url: str, key: str | None = None, pid: int | None = None) -> Target:
    """Of http://HOST:PORT[/PATH]. pid: of a unit of this node, the process that a key is for. Errors: Refusal for
    another URL, for an unknown name, and if another process listens."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        host, port = None, 0
    if not host or parts.scheme not in ("http", "https"):
        raise Refusal(f"url {url!r} is not an address: http://HOST:PORT is needed")
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4]
    except OSError as error:
        raise Refusal(f"url {url}: {host} is not known here ({error.strerror}): give its address") from None
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    own = _owner((str(address[0]), port), url, pid) if key and pid is not None else None
    return Target(address, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), tls, key, own)


def _owner(end: tuple[str, int], url: str, pid: int) -> Listener:
    """The listener of a process; NOBODY if nothing listens."""
    try:
        seen = listener(end)
    except OSError:
        # Not an IPv4 address, and a head listens at no other.
        seen = None
    if seen and not is_of(seen, pid):
        raise Refusal("user id %d listens at %s, not process %d of the unit: it gets no key" % (seen.user, url, pid))
    return seen or NOBODY


def closed_loop(to: Target, bodies: Sequence[bytes], concurrency: int, timeout: float) -> list[Exchange]:
    """Sends all of them, `concurrency` at a time: the next one when one has ended. timeout: seconds for each."""
    # A collection of what is loaded takes milliseconds, which would count as the server's.
    gc.freeze()
    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(lambda body: exchange(to, body, timeout), bodies))


def fixed_rate(to: Target, bodies: Sequence[bytes], rate: float, timeout: float) -> list[Exchange]:
    """Sends `rate` requests a second, whether others have been answered or not."""
    gc.freeze()
    started, sent = time.monotonic(), []
    with ThreadPoolExecutor(MOST) as pool:
        for number, body in enumerate(bodies):
            time.sleep(max(0.0, started + number / rate - time.monotonic()))
            sent.append(pool.submit(exchange, to, body, timeout))
        return [one.result() for one in sent]


def exchange(to: Target, body: bytes, timeout: float) -> Exchange:
    """One request. timeout: seconds for all of it, however slowly the answer trickles."""
    began, pieces, status, failed = time.monotonic(), [], 0, None
    try:
        sock: Any = socket.create_connection(to.address[:2], timeout)
    except OSError as error:
        return Exchange(began, [], time.monotonic(), f"no connection ({error.strerror or error})")
    sock.settimeout(None)  # the timer ends it
    if to.tls:
        host = urlsplit("//" + to.host).hostname
        sock = to.tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    late = threading.Event()
    timer = threading.Timer(timeout, _expire, (sock, late))
    timer.daemon = True
    timer.start()
    try:
        response = _answer(to, sock, body)
        status, size = response.status, 0
        while data := response.read1(PIECE):
            pieces.append((time.monotonic(), data))
            size += len(data)
            if size > LARGEST:
                raise Refusal("an answer of more than %d MiB" % (LARGEST >> 20))
    except Refusal as refusal:
        failed = str(refusal)
    except ssl.SSLError as error:
        failed = "TLS fails (%s)" % (error.reason or error)
    except http.client.IncompleteRead:
        failed = "the stream ended without its last piece"
    except (http.client.HTTPException, ValueError):
        failed = "the connection ended without an answer"
    except OSError as error:
        failed = "the connection broke (%s)" % (error.strerror or error)
    finally:
        timer.cancel()
        sock.close()
    failed = f"no whole answer in {timeout:g} s" if late.is_set() else failed
    return Exchange(began, pieces, time.monotonic(), failed, status)


def _expire(sock: socket.socket, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(OSError):
        # Not that of a TLS socket, which another thread is using.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _answer(to: Target, sock: Any, body: bytes) -> http.client.HTTPResponse:
    """The head of the answer to a request, whose connection ends with it. Refusal if another process listens."""
    # The same one before and after has got the connection, too.
    if to.own and listener(sock.getpeername()[:2]) != to.own:
        raise Refusal("somebody else listens there now: it gets no key")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if to.tls:
        sock.do_handshake()
    connection = http.client.HTTPConnection(to.host)
    connection.sock = sock
    headers = {"Host": to.host, "Content-Type": "application/json", "Accept": "text/event-stream"}
    headers["Connection"] = "close"
    if to.key:
        headers["Authorization"] = "Bearer " + to.key
    connection.request("POST", to.path + "/v1/chat/completions", body, headers)
    return connection.getresponse()
