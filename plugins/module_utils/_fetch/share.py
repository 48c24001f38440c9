# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server of a few files to a few nodes, for the time that they need to copy them.

It answers GET and HEAD with ranges, keeps connections alive, and ends by itself when nobody has asked for a while.
There is one per port and node, found through a socket in Linux's abstract namespace: that name is gone with the
process, whatever ends it, and the kernel says who is at its other end. No file has to be written, and none can be
stale. Any user of the node may take the name first:
then nothing is lent, and the error names the user.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import http.server
import os
import re
import select
import signal
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from io import FileIO
from typing import Any
from urllib.parse import unquote

from .._files import open_directory, open_ours
from .._text import Refusal

IDLE = 600.0  # seconds; a node that hashes what it has does not ask for so long
_STALLED = 60.0  # seconds after which a connection that does not move is closed
_STOPPING = 10.0  # seconds that a server is given to end
_MOST = 32  # connections of one peer; gguf_fetch has at most 17
_TICK = 0.5  # seconds between looks at the clock
_RANGE = re.compile(r"^bytes=(\d*)-(\d*)\Z")


def base_url(address: str, port: int) -> str:
    """Where a server's files are; their names follow."""
    return "http://%s:%d/" % (address, port)


def _open(path: str) -> int:
    """A descriptor of a file of root's, on a way without links of others. Raises OSError, Refusal."""
    folder = open_directory(os.path.dirname(path), others=True)
    try:
        return open_ours("/proc/self/fd/%d/%s" % (folder, os.path.basename(path)))
    finally:
        os.close(folder)


def names(files: Iterable[str]) -> dict[str, str]:
    """{name: path} of the paths ``files``; raises Refusal for one that cannot be served."""
    found: dict[str, str] = {}
    for path in files:
        name = os.path.basename(path)
        if found.setdefault(name, path) != path:
            raise Refusal(f"files: {found[name]} and {path} have one name, names of their own are needed")
        if not os.path.isfile(path):
            raise Refusal(f"files: {path} is no file of this node, one that is there is needed")
        try:
            os.close(_open(path))
        except OSError as error:
            text = (
                "files: %s: %s, a regular file of root's with one name is needed: look at who made it, then run "
                "gguf_fetch for it"
            )
            raise Refusal(text % (path, error.strerror)) from None
    return found


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The (first, end) of a Range header's only range, end not included; None to send everything.

    Raises ValueError when nothing of it is there (status 416).
    """
    match = _RANGE.match(header or "")
    if not match or match.group(0) == "bytes=-":
        return None  # several ranges, other units: RFC 9110 14.2 lets a server ignore the header
    first, last = match.groups()
    if not first:
        begin, end = max(0, size - int(last)), size
    else:
        begin, end = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < begin:
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
            self._answer()

    do_HEAD = do_GET

    def _answer(self) -> None:
        path = self.server.files.get(unquote(self.path)[1:])
        try:
            stream = open(_open(path), "rb", buffering=0) if path else None  # noqa: SIM115 - closed below, after its own OSErrors are told apart from a client's
        except (OSError, Refusal):
            stream = None
        if stream is None:
            self._refuse(404)
            return
        with stream:
            self._send(stream)

    def _refuse(self, status: int, headers: Sequence[tuple[str, str]] = ()) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, stream: FileIO) -> None:
        found = os.fstat(stream.fileno())
        size = found.st_size
        etag = f'"{found.st_ino:x}-{size:x}-{found.st_mtime_ns:x}"'
        wanted = None
        # A file that was replaced is sent whole, and the client sees that it is another one.
        if self.headers.get("If-Range", etag) == etag:
            try:
                wanted = byte_range(self.headers.get("Range"), size)
            except ValueError:
                self._refuse(416, [("Content-Range", "bytes */%d" % size)])
                return
        first, end = wanted or (0, size)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (first, end - 1, size))
        self.send_header("Content-Length", str(end - first))
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", etag)
        self.end_headers()
        # sendfile(2); a file that became shorter ends the connection, so that nobody takes the rest for whole.
        if (
            self.command == "GET"
            and end > first
            and self.connection.sendfile(stream, first, end - first) != end - first
        ):
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Bound and listening. files: {name: path}; peers: addresses that may ask; idle: seconds. Raises Refusal."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    timeout = 0  # handle_request() does not wait, serve() does

    def __init__(
        self,
        address: str,
        port: int,
        files: dict[str, str],
        peers: Iterable[str],
        idle: float = IDLE,
    ) -> None:
        self.files, self.peers, self.idle = files, frozenset(peers), idle
        self._lock = threading.Lock()
        self._running, self._asked = 0, time.monotonic()
        self._connected: Counter[str] = collections.Counter()
        try:
            super().__init__((address, port), _Handler)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise Refusal("port: %d of %s is in use, a free port is needed" % (port, address)) from None
            raise Refusal(
                "address: %s port %d: %s, an address of this node is needed" % (address, port, error.strerror)
            ) from None
        self.port = self.server_address[1]
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._control.bind(_control_name(self.port))
        except OSError:
            self.server_close()
            raise Refusal(
                "port: %d is shared by another server on this node, a free port is needed" % self.port
            ) from None
        self._control.listen(1)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """A stranger's connection is closed before it gets a thread or is read from, a peer's beyond _MOST too: any
        user of its node is that peer."""
        with self._lock:
            return client_address[0] in self.peers and self._connected[client_address[0]] < _MOST

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connected[client_address[0]] += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._connected[client_address[0]] -= 1

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

    def serve(self) -> str:
        """Answer until nobody has asked for ``idle`` seconds or stop() is called. -> "idle" or "stopped" """
        try:
            while True:
                ready = select.select([self.socket, self._control], [], [], min(_TICK, self.idle))[0]
                if self.socket in ready:
                    self.handle_request()
                if self._control in ready:
                    caller = self._control.accept()[0]
                    if _user(caller) in (0, os.geteuid()):
                        # Kept open until the port is free: its end tells the caller so.
                        self.server_close()
                        caller.close()
                        return "stopped"
                    caller.close()
                with self._lock:
                    if not self._running and time.monotonic() - self._asked > self.idle:
                        return "idle"
        finally:
            self.server_close()

    def server_close(self) -> None:
        super().server_close()
        if hasattr(self, "_control"):
            self._control.close()


def _control_name(port: int) -> str:
    return "\0llama-cluster-share-%d" % port


def _user(connection: socket.socket) -> int:
    """The user id of the process at the other end, from the kernel."""
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]


def _find(port: int) -> socket.socket | None:
    """A connection to the server of ``port``, None when there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_STOPPING)
    try:
        connection.connect(_control_name(port))
    except OSError:
        connection.close()
        return None
    return connection


def is_running(port: int) -> bool:
    """Whether a server of this node shares files at ``port``; by the kernel's list, because a connection would end
    it."""
    with open("/proc/net/unix") as stream:
        return any(line.rstrip("\n").endswith(" @" + _control_name(port)[1:]) for line in stream)


def stop(port: int) -> bool:
    """End the server of ``port``. -> whether there was one; raises Refusal when it goes on."""
    connection = _find(port)
    if connection is None:
        return False
    user = _user(connection)
    if user not in (0, os.geteuid()):
        connection.close()
        text = (
            "port: the name of %d is held by a process of user id %d, one of the same user is needed: end it (ss "
            "-xlp names it) or set another port"
        )
        raise Refusal(text % (port, user))
    try:
        connection.recv(1)
    except OSError:
        pass
    finally:
        connection.close()
    if is_running(port):
        raise Refusal(
            "port: the server of %d does not end, one of the same user is needed: end it with its own user" % port
        )
    return True


def start(address: str, port: int, files: Iterable[str], peers: Iterable[str], idle: float = IDLE) -> int:
    """Share ``files`` (paths) from a process of its own; one that still runs at this port is ended first.

    -> the process id. When this returns, the server listens. Raises Refusal.
    """
    stop(port)
    server = Server(address, port, names(files), peers, idle)
    child = os.fork()
    if child:
        # The child has its own descriptors of the same sockets.
        server.server_close()
        return child
    status = 1
    try:
        _detach({server.fileno(), server._control.fileno()})
        server.serve()
        status = 0
    finally:
        os._exit(status)


def _detach(keep: Collection[int]) -> None:
    """Leave the caller's session and descriptors: whoever waits for the caller's output must not wait for this
    process."""
    os.setsid()
    os.chdir("/")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd > 2 and fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)
