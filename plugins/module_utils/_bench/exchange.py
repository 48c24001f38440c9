# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Concurrent requests, each piece of an answer with its moment of arrival. Private to the collection.

Answers are parsed after all requests: parsing would delay the stamps of others.
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

PIECE = 1 << 16
# Bytes of an answer: a server is not believed. A piece counts as at least so many: each takes that much memory.
LARGEST, LEAST = 32 << 20, 128
# The most requests at a time.
MOST = 64


class Target(NamedTuple):
    """A server. address: of the socket; host: as its certificate and the Host header name it. own: the listener that
    the key is for; another listener is sent nothing."""

    address: tuple[Any, ...]
    host: str
    path: str
    tls: ssl.SSLContext | None
    key: str | None
    own: Listener | None = None


class Exchange(NamedTuple):
    """A request and its answer. All moments are of time.monotonic().

    began: before the connection. pieces: (moment, bytes) of the body. ended: after the last byte; failed: the error,
    None after an orderly end. status: of HTTP, 0 without an answer. instead_of: the service for which a gateway had its
    fallback answer, None for the usual case.
    """

    began: float
    pieces: list[tuple[float, bytes]]
    ended: float
    failed: str | None = None
    status: int = 0
    instead_of: str | None = None


def target(url: str, key: str | None = None, pid: int | None = None, verify: bool = True) -> Target:
    """The server at http://HOST:PORT[/PATH]. pid: the process that a key is for, that of a unit of this node. verify:
    False for a gateway that its own host contacts by an address, which no certificate names. Errors: Refusal for
    another URL, for an unknown name, and if the process does not listen there."""
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
    if tls and not verify:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    own = None
    if key and pid is not None:
        # A head listens on IPv4; any other address raises OSError.
        with contextlib.suppress(OSError):
            own = listener((str(address[0]), port))
        if own is None or not is_of(own, pid):
            raise Refusal("%s: process %d of the unit does not listen there: it gets no key" % (url, pid))
    return Target(address, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), tls, key, own)


def closed_loop(to: Target, bodies: Sequence[bytes], concurrency: int, timeout: float) -> list[Exchange]:
    """Sends all of them, `concurrency` at a time: the next one when one has ended. timeout: seconds for each."""
    # A garbage collection takes milliseconds, which would count as the server's.
    gc.freeze()
    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(lambda body: exchange(to, body, timeout), bodies))


def exchange(to: Target, body: bytes, timeout: float) -> Exchange:
    """One request. timeout: seconds for all of it, however slowly the answer trickles."""
    began, pieces, status, failed, instead_of = time.monotonic(), [], 0, None, None
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
        status, instead_of = response.status, response.getheader("X-Llama-Fallback")
        size = 0
        while data := response.read1(PIECE):
            pieces.append((time.monotonic(), data))
            size += max(len(data), LEAST)
            if size > LARGEST:
                raise Refusal(f"an answer of more than {LARGEST >> 20} MiB")
    except Refusal as refusal:
        failed = str(refusal)
    except http.client.IncompleteRead:
        failed = "the stream ended without its last piece"
    except (http.client.HTTPException, ValueError):
        failed = "the connection ended without an answer"
    except OSError as error:
        failed = "the connection broke (%s)" % (getattr(error, "reason", None) or error.strerror or error)
    finally:
        timer.cancel()
        sock.close()
    failed = f"no whole answer in {timeout:g} s" if late.is_set() else failed
    return Exchange(began, pieces, time.monotonic(), failed, status, instead_of)


def _expire(sock: socket.socket, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(OSError):
        # Not the method of a TLS socket, which another thread is using.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _answer(to: Target, sock: Any, body: bytes) -> http.client.HTTPResponse:
    """The status and headers of the answer; its connection ends with it. Refusal if another process listens."""
    # The listener before and after the connection is the same: it has got the connection.
    if to.own and listener(sock.getpeername()[:2]) != to.own:
        raise Refusal("another process listens there now: it gets no key")
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
