# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of samples for the monitoring hosts. Private to the collection."""

from __future__ import annotations

import http.server
import socket
import socketserver
import threading
from collections.abc import Collection
from typing import Any, Callable

# Seconds for each part of a request, and requests at a time: users of a monitoring host share its address.
PATIENCE, MOST = 5.0, 8


class Page(http.server.ThreadingHTTPServer):
    """allowed: client addresses; other connections are closed. Errors: OSError."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], allowed: Collection[str], content: Callable[[], bytes]) -> None:
        self._allowed, self.content = frozenset(allowed), content
        self._free = threading.BoundedSemaphore(MOST)
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        # The address may be configured later.
        self.socket.setsockopt(socket.SOL_IP, getattr(socket, "IP_FREEBIND", 15), 1)
        socketserver.TCPServer.server_bind(self)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return client_address[0] in self._allowed and self._free.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnects is not logged."""


class Handler(http.server.BaseHTTPRequestHandler):
    timeout = PATIENCE

    def do_GET(self) -> None:
        if self.path != "/metrics":
            self.send_error(404)
            return
        content = self.server.content()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_given: Any) -> None:
        """Requests are not logged."""


def serve(address: tuple[str, int], allowed: Collection[str], content: Callable[[], bytes]) -> Page:
    """Starts a server in a thread. Errors: OSError, if the port is in use."""
    page = Page(address, allowed, content)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    return page
