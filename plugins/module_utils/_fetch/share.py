# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server of a few files to a few nodes, for the time that they need to copy them.

It answers GET with ranges, keeps connections alive, and ends when it is idle. There is one per port and node: it holds
a lock on a file in /run, which has its process id and is unlocked by whatever ends the process.
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
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from .._files import open_file
from .._node import paths
from .._text import Refusal

IDLE = 600.0  # seconds; a node that hashes its file, or receives 32 MiB, does not ask for so long
_STALLED = 60.0  # seconds after which a connection that does not move is closed
_STOPPING = 10.0  # seconds that a server is given to end
_MOST = 32  # connections for each peer; gguf_fetch has at most 17
_TICK = 0.5  # seconds between looks at the clock
_RANGE = re.compile(r"^bytes=(\d{1,18})-(\d{1,18})\Z")


def base_url(address: str, port: int) -> str:
    """The URL below which a server's files are, by their names."""
    return f"http://{address}:{port}/"


def names(files: Iterable[str]) -> dict[str, str]:
    """{name: path} of the paths ``files``; raises Refusal for one that cannot be served."""
    found = {os.path.basename(path): path for path in files}
    for path in found.values():
        try:
            os.close(open_file(path))
        except OSError as error:
            raise Refusal(f"files: {path}: {error.strerror}: run gguf_fetch for it") from None
    return found


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = _STALLED
    # A small header and the file behind it must not wait for each other's acknowledgement.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.server.asked = time.monotonic()
        try:
            with open(open_file(self.server.files[unquote(self.path)[1:]]), "rb", buffering=0) as stream:
                self._send(stream)
        except (KeyError, Refusal, FileNotFoundError):
            self._head(404, {"Content-Length": "0"})
        self.server.asked = time.monotonic()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, stream: Any) -> None:
        found = os.fstat(stream.fileno())
        size = found.st_size
        etag = f'"{found.st_ino:x}-{size:x}-{found.st_mtime_ns:x}"'
        # RFC 9110 14.2 lets a server ignore other forms of the header. A file that was replaced is sent from its start.
        wanted = _RANGE.match(self.headers.get("Range", "")) if self.headers.get("If-Range", etag) == etag else None
        first, end = (int(wanted.group(1)), min(int(wanted.group(2)) + 1, size)) if wanted else (0, size)
        if wanted and first >= end:
            self._head(416, {"Content-Range": f"bytes */{size}", "Content-Length": "0"})
            return
        headers = {"Content-Range": f"bytes {first}-{end - 1}/{size}"} if wanted else {}
        self._head(206 if wanted else 200, dict(headers, **{"Content-Length": str(end - first), "ETag": etag}))
        # sendfile(2); a file that became shorter ends the connection, so that the client sees that bytes are missing.
        if end > first:
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
        self.files, self.idle = files, idle
        self.free = {peer: threading.Semaphore(_MOST) for peer in peers}
        self.asked = time.monotonic()
        try:
            super().__init__((address, port), _Handler)
        except OSError as error:
            raise Refusal(
                f"address: {address} port {port}: {error.strerror}: give an address of this node and a free port"
            ) from None

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Close connections of other hosts, and beyond _MOST for each peer, before they get a thread."""
        return client_address[0] in self.free and self.free[client_address[0]].acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free[client_address[0]].release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that closed its connection needs no message."""

    def serve(self) -> None:
        """Answer until there was no request for ``idle`` seconds."""
        with contextlib.closing(self.socket):
            while time.monotonic() - self.asked <= self.idle:
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
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def stop(port: int) -> bool:
    """End the server of ``port``. -> whether there was one; raises Refusal if it does not end."""
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
    """Share ``files`` (paths) from a new process; one that still runs at this port is ended first.

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
    try:
        _detach({server.fileno(), descriptor})
        server.serve()
    finally:
        os._exit(0)


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
