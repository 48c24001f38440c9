# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of samples, for the monitoring hosts alone. Private to the collection."""

import socket
import socketserver
import threading
import time
from collections.abc import Collection
from typing import Any, Callable

# Seconds for a request and its answer, requests at one time, and bytes of a request: a monitoring host asks for one
# page, in a few words.
PATIENCE, MOST, LARGEST = 5.0, 8, 8192
ANSWER = (
    "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: %d\r\n"
    "Connection: close\r\n\r\n"
)
NOT_FOUND = b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Page(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """allowed: the addresses that are answered. Everybody else is hung up on. Errors: OSError."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], allowed: Collection[str], content: Callable[[], bytes]) -> None:
        self._allowed, self.content = frozenset(allowed), content
        self._room = threading.BoundedSemaphore(MOST)
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        # The address of a fabric may come after this program.
        self.socket.setsockopt(socket.SOL_IP, getattr(socket, "IP_FREEBIND", 15), 1)
        super().server_bind()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return client_address[0] in self._allowed and self._room.acquire(False)

    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request(request, client_address)
        except BaseException:
            # No thread is left for it.
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever breaks off is no news."""


class Handler(socketserver.BaseRequestHandler):
    """One request. Its time is that of all of it: a byte now and then gains nothing."""

    def handle(self) -> None:
        end = time.monotonic() + PATIENCE
        asked = b""
        while b"\r\n\r\n" not in asked:
            self.request.settimeout(max(0.01, end - time.monotonic()))
            piece = self.request.recv(LARGEST - len(asked))
            asked += piece
            if not piece or len(asked) >= LARGEST or time.monotonic() >= end:
                return
        self.request.settimeout(PATIENCE)
        if asked.split(b" ")[:2] != [b"GET", b"/metrics"]:
            self.request.sendall(NOT_FOUND)
            return
        content = self.server.content()  # type: ignore[attr-defined]
        self.request.sendall((ANSWER % len(content)).encode("ascii") + content)


def serve(address: tuple[str, int], allowed: Collection[str], content: Callable[[], bytes]) -> Page:
    """Answers from now on. Errors: OSError, where the port is taken."""
    page = Page(address, allowed, content)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    return page
