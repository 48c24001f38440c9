# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for llama-server: its health, slots and metrics, and what a test asks of it.

--port PORT [--rpc HOST:PORT]... [--load SECONDS]: /work?SECONDS is a request that runs, /crash?CODE ends it after six
lines, /print?LINES fills its log, /hang stops all answers. SIGINT and SIGTERM end it at once, a lost worker aborts it.
"""

import argparse
import http.server
import json
import os
import select
import signal
import socket
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument("--rpc", action="append", default=[])
parser.add_argument("--load", type=float, default=0)
options, _others = parser.parse_known_args()
ready_at = time.monotonic() + options.load
running = []
hangs = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path, _mark, text = self.path.partition("?")
        while hangs.is_set():
            time.sleep(1)
        if path == "/work":
            running.append(1)
            time.sleep(float(text))
            running.pop()
        elif path == "/crash":
            for number in range(6):
                print("line %d" % number, flush=True)
            if text:
                os._exit(int(text))
            os.abort()
        elif path == "/print":
            line = "x" * 200
            for _number in range(int(text)):
                print(line)
            sys.stdout.flush()
        elif path == "/hang":
            running.append(1)
            hangs.set()
        working = [{"is_processing": True, "id_task": 1, "n_prompt_tokens": 9} for _one in running]
        answer = {"/health": '{"status": "ok"}', "/slots": json.dumps(working)}.get(path, "{}")
        if path == "/metrics":
            answer = "llamacpp:requests_processing %d\nllamacpp:prompt_tokens_total 1\n" % len(running)
        self.send_response(200 if time.monotonic() >= ready_at else 503)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    do_POST = do_GET

    def log_message(self, *_arguments):
        pass


signal.signal(signal.SIGINT, lambda *_arguments: os._exit(0))
signal.signal(signal.SIGTERM, lambda *_arguments: os._exit(7))
server = http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
workers = [socket.create_connection(one.rsplit(":", 1)) for one in options.rpc]
print("stand-in for llama-server listens", flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
if workers:
    select.select(workers, [], [])
    print("Remote RPC server crashed or returned malformed response", flush=True)
    os.abort()
signal.pause()
