# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of samples, for the monitoring hosts alone. Private to the collection."""

import http.server
import socket
import socketserver
import threading
from typing import Any, Callable, Collection, Tuple

# Seconds for a request, and requests at one time: whoever is no monitoring host is not answered anyway.
PATIENCE, MOST = 5.0, 8
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Page(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Python 3.6 has no ThreadingHTTPServer."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, address: Tuple[str, int], allowed: Collection[str], text: Callable[[], str]) -> None:
        self._allowed, self.text = frozenset(allowed), text
        self._room = threading.BoundedSemaphore(MOST)
        super(Page, self).__init__(address, Handler)

    def server_bind(self) -> None:
        # The address of a fabric may come after this program.
        self.socket.setsockopt(socket.SOL_IP, getattr(socket, "IP_FREEBIND", 15), 1)
        # HTTPServer's asks the name service for a name.
        socketserver.TCPServer.server_bind(self)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return client_address[0] in self._allowed and self._room.acquire(False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super(Page, self).process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever breaks off is no news."""


class Handler(http.server.BaseHTTPRequestHandler):
    timeout = PATIENCE
    server: Page
    server_version, sys_version = "llama-sampler", ""

    def do_GET(self) -> None:
        if self.path != "/metrics":
            self.send_error(404)
            return
        content = self.server.text().encode("utf-8")
        self.send_response(200)
        self.send_header("Content-Type", TYPE)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """A line each five seconds would be the journal's loudest."""


def serve(address: Tuple[str, int], allowed: Collection[str], text: Callable[[], str]) -> Page:
    """Answers from now on. Errors: OSError, where the port is taken."""
    page = Page(address, allowed, text)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    return page
