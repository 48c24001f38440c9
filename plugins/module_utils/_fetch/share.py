# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server of a few files to a few nodes, for the time that they need to copy them.

It answers GET and HEAD with ranges, keeps connections alive, and ends by itself when it is idle. There is one per port
and node: it holds a lock on a file in /run, which has its process id and is unlocked by whatever ends the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import os
import re
import signal
import socketserver
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from .._files import open_file
from .._node import paths
from .._text import Refusal

IDLE = 600.0  # seconds; a node that hashes what it has does not ask for so long
_STALLED = 60.0  # seconds after which a connection that does not move is closed
_STOPPING = 10.0  # seconds that a server is given to end
_MOST = 32  # connections for each peer; gguf_fetch has at most 17
_TICK = 0.5  # seconds between looks at the clock
_RANGE = re.compile(r"^bytes=(\d{0,18})-(\d{0,18})\Z")


def base_url(address: str, port: int) -> str:
    """Where a server's files are; their names follow."""
    return f"http://{address}:{port}/"


def names(files: Iterable[str]) -> dict[str, str]:
    """{name: path} of the paths ``files``; raises Refusal for one that cannot be served."""
    found: dict[str, str] = {}
    for path in files:
        name = os.path.basename(path)
        if found.setdefault(name, path) != path:
            raise Refusal(f"files: {found[name]} and {path} have one name, names of their own are needed")
        try:
            os.close(open_file(path))
        except OSError as error:
            raise Refusal(f"files: {path}: {error.strerror}: run gguf_fetch for it") from None
    return found


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The (first, end) of a Range header's only range, end not included; None to send everything.

    Raises ValueError if the range begins after the end of the file (status 416).
    """
    match = _RANGE.match(header or "")
    if not match or match.group(0) == "bytes=-":
        return None  # several ranges, other units: RFC 9110 14.2 lets a server ignore the header
    first, last = match.groups()
    begin, end = int(first or max(0, size - int(last or 0))), size
    if first and last:
        end = min(int(last) + 1, size)
        if int(last) < begin:
            return None
    if begin >= end:
        raise ValueError(header)
    return begin, end


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "gguf_share", ""
    timeout = _STALLED
    # A small header and the file behind it must not wait for each other's acknowledgement.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        with self.server.request_running():
            try:
                descriptor = open_file(self.server.files.get(unquote(self.path)[1:], ""))
            except (OSError, Refusal):
                self._head(404, {"Content-Length": "0"})
                return
            with open(descriptor, "rb", buffering=0) as stream:
                self._send(stream)

    do_HEAD = do_GET

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, stream: Any) -> None:
        found = os.fstat(stream.fileno())
        size = found.st_size
        etag = f'"{found.st_ino:x}-{size:x}-{found.st_mtime_ns:x}"'
        wanted = None
        # A file that was replaced is sent whole, and the client sees that it is another one.
        if self.headers.get("If-Range", etag) == etag:
            try:
                wanted = byte_range(self.headers.get("Range"), size)
            except ValueError:
                self._head(416, {"Content-Range": f"bytes */{size}", "Content-Length": "0"})
                return
        first, end = wanted or (0, size)
        headers = {"Content-Range": f"bytes {first}-{end - 1}/{size}"} if wanted else {}
        headers.update({"Content-Length": str(end - first), "Accept-Ranges": "bytes", "ETag": etag})
        self._head(206 if wanted else 200, dict(headers, **{"Content-Type": "application/octet-stream"}))
        # sendfile(2); a file that became shorter ends the connection, so that the client sees that bytes are missing.
        if self.command == "GET" and end > first:
            sent = self.connection.sendfile(stream, first, end - first)
            self.close_connection = self.close_connection or sent != end - first

    def log_message(self, format: str, *args: Any) -> None:
        """No log."""


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Bound and listening. files: {name: path}; peers: addresses that may ask; idle: seconds. Raises Refusal."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    timeout = _TICK

    def __init__(self, address: str, port: int, files: dict[str, str], peers: Iterable[str], idle: float) -> None:
        self.files, self.peers, self.idle = files, frozenset(peers), idle
        self._lock = threading.Lock()
        self._running, self._asked = 0, time.monotonic()
        try:
            super().__init__((address, port), _Handler)
        except OSError as error:
            raise Refusal(
                f"address: {address} port {port}: {error.strerror}: give an address of this node and a free port"
            ) from None

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Close other hosts' connections, and those of peers beyond _MOST, before they get a thread."""
        return client_address[0] in self.peers and threading.active_count() <= _MOST * len(self.peers)

    @contextlib.contextmanager
    def request_running(self) -> Iterator[None]:
        """While a request runs the server is not idle."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._asked = time.monotonic()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away asks again or does not."""

    def serve(self) -> None:
        """Answer until there was no request for ``idle`` seconds."""
        with contextlib.closing(self.socket):
            while self._running or time.monotonic() - self._asked <= self.idle:
                self.handle_request()


def _claim(port: int) -> int | None:
    """A descriptor that holds the lock of ``port``, None while a server has it."""
    descriptor = os.open(f"{paths.SHARE_LOCK}-{port}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_running(port: int) -> bool:
    """Whether a server of this node shares files at ``port``."""
    descriptor = _claim(port)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def stop(port: int) -> bool:
    """End the server of ``port``. -> whether there was one; raises Refusal if it goes on."""
    if not is_running(port):
        return False
    with open(f"{paths.SHARE_LOCK}-{port}") as stream, contextlib.suppress(ProcessLookupError, ValueError):
        os.kill(int(stream.read()), signal.SIGTERM)
    deadline = time.monotonic() + _STOPPING
    while is_running(port):
        if time.monotonic() > deadline:
            raise Refusal(
                f"port: the server of {port} does not end: end the process that {paths.SHARE_LOCK}-{port} names"
            )
        time.sleep(0.02)
    return True


def start(address: str, port: int, files: Iterable[str], peers: Iterable[str], idle: float = IDLE) -> int:
    """Share ``files`` (paths) from a process of its own; one that still runs at this port is ended first.

    -> the process id. When this returns, the server listens. Raises Refusal.
    """
    stop(port)
    server = Server(address, port, names(files), peers, idle)
    descriptor = _claim(port)
    if descriptor is None:
        server.server_close()
        raise Refusal(f"port: {port} is shared by another server on this node, a free port is needed")
    child = os.fork()
    if child:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"%d\n" % child)
        # The child has its own descriptors of the same socket and lock.
        server.server_close()
        os.close(descriptor)
        return child
    status = 1
    try:
        _detach({server.fileno(), descriptor})
        server.serve()
        status = 0
    finally:
        os._exit(status)


def _detach(keep: Iterable[int]) -> None:
    """Leave the caller's session and descriptors: a reader of the caller's output must not wait for this process."""
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for fd in {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2} - set(keep):
        with contextlib.suppress(OSError):
            os.close(fd)
