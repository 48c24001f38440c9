# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A gateway's engine over real sockets, and servers behind it that do what a llama-server may do to a client."""

import asyncio
import contextlib
import json
import os
import socket
import threading
import time

from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.engine import Engine, Files

HEALTHY = (b'{"status":"ok"}', 200)
LOADING = (b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}', 503)
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def plain(body, status=200):
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        status,
        len(body),
        body,
    )


def wait_for(seen, seconds=8):
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


class Server:
    """act(server, connection): what it does with a request for a completion, once that is read; closes after it."""

    def __init__(self, name="s", act=None, port=0):
        self.name, self.health, self.requests = name, HEALTHY, []
        self.act = act or (lambda server, end: end.sendall(plain(json.dumps({"model": server.name}).encode())))
        self.slots = None  # its answer about them
        self.props = None
        self.looked_at = []  # paths, beside /health
        self.stuck = None  # called instead of an answer about its health
        self.left = 0  # clients that have left before their answer
        self._ends = []
        self.port = port
        self.start()

    def start(self):
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                end = listener.accept()[0]
                self._ends.append(end)
                threading.Thread(target=self._serve, args=(end,), daemon=True).start()

    def _serve(self, end):
        with contextlib.suppress(OSError), end, end.makefile("rb") as stream:
            head = []
            while True:
                line = stream.readline()
                if line in (b"\r\n", b""):
                    break
                head.append(line.decode().strip())
            if not head:
                return
            length = [int(line[15:]) for line in head if line.lower().startswith("content-length:")]
            body = stream.read(length[0]) if length else b""
            path = head[0].split()[1]
            if path == "/health" and self.stuck:
                self.stuck()
            elif path == "/health":
                end.sendall(plain(*self.health))
            elif path in ("/slots", "/props"):
                self.looked_at.append(path)
                found = self.slots if path == "/slots" else self.props
                end.sendall(plain(found) if found else plain(b"{}", 501))
            else:
                self.requests.append((head, body))
                self.act(self, end)

    def waits(self, seconds=20):
        """An act: no answer until the client leaves."""

        def act(server, end):
            end.settimeout(seconds)
            with contextlib.suppress(OSError):
                if end.recv(1) == b"":
                    server.left += 1

        self.act = act
        return self

    def die(self):
        """As a process that is killed: nothing listens, what was open is reset."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                end.shutdown(socket.SHUT_RDWR)
        self._ends = []


def service(name, *servers, **keys):
    found = {
        "kind": "server",
        "tier": None,
        "models": [{"name": name, "aliases": [name.upper()], "quant": "Q8_0", "build": "b1", "slot_ctx_size": 4096}],
        "endpoints": [
            {"node": "n%d" % (at + 1), "address": "127.0.0.1", "port": one.port, "slots": 1}
            for at, one in enumerate(servers)
        ],
        "state": "started",
        "fallback": None,
        "timeout": 60.0,
        "queue": 4,
    }
    return {name: dict(found, **keys)}


def configuration(services, **keys):
    found = {
        "version": 1,
        "services": services,
        "unserved": {},
        "routes": {"default": None, "tasks": {}},
        "unknown_model": "404",
        "auth": "log_only",
        "registry": None,
        "base_urls": ["http://gw:8000"],
        "tiers": {},
    }
    return dict(found, **keys)


class Gateway:
    """An engine in a thread of its own. files: the folder that it reads."""

    def __init__(self, files, config, keys=None):
        self.files, self.socket = str(files), os.path.join(str(files), "s")
        self.write("gateway.json", config)
        self.write("keys.json", keys or {"clients": {"me": "sk-me"}, "services": {}})
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.socket)
        listener.listen(64)
        listener.setblocking(False)
        self.loop = asyncio.new_event_loop()
        paths = Files(self.files, *(os.path.join(self.files, name) for name in ("draining.json", "registry.json")))
        ready = threading.Event()

        def run():
            asyncio.set_event_loop(self.loop)
            self.engine = Engine(self.loop, listener, paths)
            self.engine._notify = ready.set
            self.loop.run_until_complete(self.engine.run())
            self.loop.run_until_complete(asyncio.sleep(0.01))
            self.loop.close()
            self.ended.set()

        self.ended = threading.Event()
        threading.Thread(target=run, daemon=True).start()
        assert ready.wait(5)

    def write(self, name, value):
        path = os.path.join(self.files, name)
        with open(path + ".new", "w") as stream:
            stream.write(value if isinstance(value, str) else json.dumps(value))
        os.rename(path + ".new", path)

    def drain(self, *entries):
        known = [{"service": service, "node": node, "since": 1, "reason": reason} for service, node, reason in entries]
        self.write("draining.json", {"endpoints": known})

    def stop(self):
        if not self.ended.is_set():
            self.loop.call_soon_threadsafe(self.engine.end)

    def raw(self, data, seconds=20):
        """All bytes until the connection ends."""
        with self.open(data) as end:
            end.settimeout(seconds)
            found = b""
            with contextlib.suppress(ConnectionError):
                while True:
                    data = end.recv(65536)
                    if not data:
                        break
                    found += data
            return found

    def open(self, data=b""):
        end = socket.socket(socket.AF_UNIX)
        end.connect(self.socket)
        end.sendall(data)
        return end

    def ask(self, path="/v1/chat/completions", body=None, method=None, **headers):
        """-> (status, {header: value}, body)"""
        found = self.raw(request(path, body, method, **headers))
        head, _empty, rest = found.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        answered = dict(line.lower().split(": ", 1) for line in lines[1:])
        with contextlib.suppress(ValueError):
            rest = json.loads(rest)
        return int(lines[0].split()[1]), answered, rest

    def state(self, name):
        return self.ask("/status.json")[2]["services"][name]


def gateways(folder):
    """For a fixture: make(services, keys, **keys of gateway.json) -> a Gateway. All are stopped afterwards."""
    made = []

    def make(services, keys=None, **config):
        made.append(Gateway(folder, configuration(services, **config), keys))
        return made[-1]

    yield make
    for gateway in made:
        gateway.stop()
        assert gateway.ended.wait(5), "something is still open"


def request(path="/v1/chat/completions", body=None, method=None, **headers):
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = ["%s %s HTTP/1.1" % (method or ("GET" if body is None else "POST"), path), "Host: gw"]
    lines += ["%s: %s" % (name.replace("_", "-"), value) for name, value in headers.items()]
    if body is not None:
        lines.append("Content-Length: %d" % len(data))
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data


def chat(model="big", text="hi", **keys):
    return dict({"model": model, "messages": [{"role": "user", "content": text}]}, **keys)
