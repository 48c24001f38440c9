# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An HTTP server that speaks llama-server's JSON (b11434), and workers that are plain sockets.

Its responses were recorded with llama-server and two ggml-rpc-server processes.
"""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

IDLE = {"id": 0, "n_ctx": 4096, "speculative": False, "is_processing": False}
WORKING = dict(
    IDLE,
    is_processing=True,
    id_task=7,
    n_prompt_tokens=2072,
    n_prompt_tokens_processed=2048,
    n_prompt_tokens_cache=24,
    params={"seed": 4294967295, "temperature": 0.0},
    next_token=[{"has_next_token": True, "has_new_line": False, "n_remain": 60, "n_decoded": 0}],
)
PROPS = {
    "model_alias": "or1-behemoth",
    "model_path": "/opt/models/m.gguf",
    "total_slots": 1,
    "default_generation_settings": {"n_ctx": 4096},
    "is_sleeping": False,
}
LOADING = (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
HEALTHY = (200, {"status": "ok"})
NO_KEY = (401, {"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}})
# No HTTP response: the connection ends.
CUT = (0, None)


def answer(tokens=8, finish="length", timings=None, **message):
    """A completion as llama-server returns it."""
    return 200, {
        "choices": [
            {
                "finish_reason": finish,
                "index": 0,
                "message": dict({"role": "assistant", "content": "Blue, as the sky."}, **message),
            }
        ],
        "model": "or1-behemoth",
        "usage": {"completion_tokens": tokens, "prompt_tokens": 34, "total_tokens": 34 + tokens},
        "timings": timings
        or {
            "cache_n": 0,
            "prompt_n": 34,
            "prompt_per_second": 125.5,
            "predicted_n": tokens,
            "predicted_per_second": 58.25,
        },
    }


def models(**meta):
    """The response of /v1/models."""
    known = {"n_vocab": 152064, "n_ctx": 4096, "n_ctx_train": 32768, "n_embd": 8192}
    return 200, {
        "object": "list",
        "data": [{"id": "or1-behemoth", "owned_by": "llamacpp", "meta": dict(known, **meta)}],
    }


def router(**states):
    """The responses of a router, whose models have one slot each."""
    args = ["llama-server", "--ctx-size", "4096", "--parallel", "1"]
    models = [{"id": name, "status": {"value": value, "args": args}} for name, value in states.items()]
    return {"/props": (200, {"role": "router"}), "/models": (200, {"data": models, "object": "list"})}


def metrics(decoded=96, processing=0):
    return (
        200,
        "# TYPE llamacpp:n_decode_total counter\nllamacpp:n_decode_total %d\nllamacpp:tokens_predicted_total "
        "96\nllamacpp:requests_processing %d\n"
        % (
            decoded,
            processing,
        ),
    )


class FakeLlamaServer:
    """responses: {path: (status, body)} or a function that gives it; every request is kept in requests as (method,
    path, body)."""

    def __init__(self):
        self.responses = {
            "/health": HEALTHY,
            "/props": (200, PROPS),
            "/slots": (200, [IDLE]),
            "/metrics": self.consistent_metrics,
            "/v1/chat/completions": answer(),
        }
        self.requests = []
        self.headers = []
        self._released = threading.Event()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_request(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                fake.requests.append((self.command, self.path, body))
                fake.headers.append(dict(self.headers))
                response = fake.responses.get(
                    self.path.split("?")[0], (404, {"error": {"message": "File Not Found", "code": 404}})
                )
                status, content = response() if callable(response) else response
                self.close_connection = True
                if not status:
                    return
                data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = handle_request

            def log_message(self, *_arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.url = "http://127.0.0.1:%d" % self._server.server_port

    def consistent_metrics(self):
        """Metrics that agree with /slots."""
        slots = self.responses["/slots"]
        busy = [1] if callable(slots) else slots[1] if isinstance(slots[1], list) else []
        return metrics(processing=sum(one in (1, WORKING) for one in busy))

    def silent(self):
        """A response that does not come before the server stops."""
        self._released.wait(30)
        return CUT

    def asked(self, path):
        """Bodies of the requests for a path."""
        return [body for _method, asked, body in self.requests if asked.split("?")[0] == path]

    def fileno(self):
        """The listener's descriptor, for another process to inherit."""
        return self._server.fileno()

    def stop(self):
        self._released.set()
        self._server.shutdown()
        self._server.server_close()


class FakeWorker:
    """A listening worker and the head's connection to it, both ends in this process."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.head = None
        self.end = None

    def attach(self):
        """The head connects."""
        self.head = socket.create_connection(self._listener.getsockname())
        self.end = self._listener.accept()[0]
        return self

    def work(self, sent=1000, received=200):
        """The head sends, the worker answers."""
        self.head.sendall(b"x" * sent)
        self._read(self.end, sent)
        self.end.sendall(b"y" * received)
        self._read(self.head, received)

    @staticmethod
    def _read(end, length):
        while length:
            length -= len(end.recv(length))

    def die(self):
        """The worker's process ends, the head keeps its half-closed socket."""
        self.end.close()

    def close(self):
        for end in (self.head, self.end, self._listener):
            if end:
                end.close()
