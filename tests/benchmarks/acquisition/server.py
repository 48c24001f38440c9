# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves a folder with ranges, ETag and keep-alive by sendfile, at a rate per connection, a rate in all, or as fast as
it goes.

server.py FOLDER [--connection-rate BYTES] [--total-rate BYTES]; prints its URL. GET /sent answers {"bytes": so far,
"last": the monotonic time of the last one}, which the machine's other processes can compare with their own clock.
"""

import argparse
import json
import os
import re
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import unquote

STEP = 256 << 10


class Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        """Clients are killed on purpose here."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    lock = threading.Lock()
    sent = 0
    last = 0.0
    free_at = 0.0
    folder = None
    connection_rate = 0
    total_rate = 0

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.respond(False)

    def do_GET(self):
        if self.path == "/sent":
            body = json.dumps({"bytes": Handler.sent, "last": Handler.last}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            self.respond(True)

    def respond(self, with_body):
        path = self.folder / unquote(self.path.lstrip("/"))
        if not path.is_file():
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        size = path.stat().st_size
        etag = '"%x-%x"' % (path.stat().st_mtime_ns, size)
        start, end = 0, size
        wanted = re.match(r"bytes=(\d+)-(\d*)$", self.headers.get("Range", ""))
        if wanted and self.headers.get("If-Range") in (None, etag):
            start, end = int(wanted.group(1)), min(int(wanted.group(2) or size - 1) + 1, size)
            if start >= size:
                self.send_response(416)
                self.send_header("Content-Range", "bytes */%d" % size)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", "bytes %d-%d/%d" % (start, end - 1, size))
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", etag)
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.end_headers()
        if with_body:
            self.body(path, start, end)

    def body(self, path, start, end):
        begun, first = time.monotonic(), start
        with open(path, "rb") as stream:
            while start < end:
                try:
                    count = os.sendfile(self.connection.fileno(), stream.fileno(), start, min(STEP, end - start))
                except OSError:
                    self.close_connection = True
                    return
                start += count
                wait = (
                    begun + (start - first) / self.connection_rate - time.monotonic() if self.connection_rate else 0.0
                )
                with self.lock:
                    Handler.sent += count
                    Handler.last = time.monotonic()
                    if self.total_rate:
                        Handler.free_at = max(Handler.free_at, time.monotonic() - 0.05) + count / self.total_rate
                        wait = max(wait, Handler.free_at - time.monotonic())
                if wait > 0:
                    time.sleep(wait)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--connection-rate", type=int, default=0, help="bytes per second and connection")
    parser.add_argument("--total-rate", type=int, default=0, help="bytes per second over all connections")
    options = parser.parse_args()
    Handler.folder, Handler.connection_rate, Handler.total_rate = (
        options.folder,
        options.connection_rate,
        options.total_rate,
    )
    server = Server(("127.0.0.1", 0), Handler)
    print("http://127.0.0.1:%d" % server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
