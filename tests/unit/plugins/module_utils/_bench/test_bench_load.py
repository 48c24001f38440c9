# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to servers on the loopback."""

import contextlib
import json
import os
import socket
import threading
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench import exchange, run
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench.answer import answer
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
PIECE = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n\ndata: [DONE]\n\n'


class Streams:
    """A server that counts requests, and answers each by `act`."""

    def __init__(self, act=None):
        self.act = act or (lambda client: client.sendall(HEAD + PIECE * 3 + LAST))
        self.open = self.most = 0
        self.bodies = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _address = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client, client.makefile("rb") as stream:
            length = 0
            for line in iter(stream.readline, b"\r\n"):
                if not line:
                    return
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            with self.lock:
                self.bodies.append(json.loads(stream.read(length)) if length else None)
                self.open += 1
                self.most = max(self.most, self.open)
            with contextlib.suppress(OSError):
                self.act(client)
            with self.lock:
                self.open -= 1


@pytest.fixture(name="streams")
def fixture_streams():
    made = []

    def make(act=None):
        made.append(Streams(act))
        return made[-1]

    yield make
    for one in made:
        one.listener.close()


def test_closed_loop_keeps_its_concurrency(streams):
    together = threading.Barrier(3, timeout=20)

    def act(client):
        together.wait()
        client.sendall(HEAD + PIECE + LAST)

    server = streams(act)
    to = exchange.target(server.url)
    done = exchange.closed_loop(to, [b"{}"] * 6, 3, 30)
    assert [answer(one).error for one in done] == [None] * 6
    assert server.most == 3


def test_silent_server_times_out(streams):
    over = threading.Event()
    server = streams(lambda client: over.wait(20))
    to = exchange.target(server.url)
    try:
        assert answer(exchange.closed_loop(to, [b"{}"], 1, 0.2)[0]).error == "no whole answer in 0.2 s"
    finally:
        over.set()


@pytest.mark.parametrize("url", ["10.0.0.31:8000", "ftp://a", "http://", "http://a:99999"])
def test_other_url_is_refused(url):
    with pytest.raises(Refusal, match="http://HOST:PORT is needed"):
        exchange.target(url)


ASKED = run.Asked("m", 3, True, False, 30.0)
CELL = run.Cell("short", "Say a.", 0, 2, 4, 1)


def test_cell_counts_tokens_of_others(server):
    pieces = (HEAD + PIECE * 3 + LAST).decode()
    server.responses["/v1/chat/completions"] = (200, pieces.partition("\r\n\r\n")[2])
    counted = iter([100, 130])
    server.responses["/metrics"] = lambda: (200, "llamacpp:tokens_predicted_total %d\n" % next(counted))
    cell = run.measure(server.url, "secret", CELL, ASKED)
    assert cell["figures"]["errors"] == 0 and cell["figures"]["generated_tokens"] == 12
    assert cell["others"] == 18 and cell["concurrency"] == 2
    bodies = [body for _method, path, body in server.requests if path == "/v1/chat/completions"]
    assert len(bodies) == 5 and all(body["model"] == "m" and body["stream"] for body in bodies)
    # Each prompt begins with other words.
    assert len({body["messages"][0]["content"].split(":")[0] for body in bodies}) == 5
    assert {headers.get("Authorization") for headers in server.headers} == {"Bearer secret"}


def test_depth_is_counted_by_the_server(server):
    server.responses["/v1/chat/completions"] = (200, (PIECE + LAST).decode())
    server.responses["/tokenize"] = (200, {"tokens": list(range(20))})
    cell = run.measure(server.url, None, CELL._replace(depth=50), ASKED)
    sent = [body for _method, path, body in server.requests if path == "/v1/chat/completions"][0]["messages"][0][
        "content"
    ]
    assert cell["depth_counted"] and sent.count("The river") == 3 and sent.endswith("\nSay a.")
    server.responses["/tokenize"] = (404, "")
    assert not run.measure(server.url + "/v1", None, CELL._replace(depth=50), ASKED)["depth_counted"]


def test_server_without_answers_is_not_measured(server):
    server.responses["/v1/chat/completions"] = (503, {"error": {"message": "Loading model"}})
    with pytest.raises(Refusal, match=r"it answers 503 \(Loading model\)"):
        run.measure(server.url, None, CELL, ASKED)


def test_trickling_answer_times_out(streams):
    def act(client):
        client.sendall(HEAD)
        while True:
            client.sendall(b"a")
            time.sleep(0.02)

    to = exchange.target(streams(act).url)
    (done,) = exchange.closed_loop(to, [b"{}"], 1, 0.3)
    assert done.failed == "no whole answer in 0.3 s" and done.ended - done.began < 5


def test_endless_answer_is_cut_off(streams, monkeypatch):
    def act(client):
        client.sendall(HEAD + PIECE * 100_000)

    monkeypatch.setattr(exchange, "LARGEST", 1 << 20)
    found = exchange.exchange(exchange.target(streams(act).url), b"{}", 20)
    assert found.failed == "an answer of more than 1 MiB"


def test_many_small_pieces_are_refused(streams, monkeypatch):
    def act(client):
        client.sendall(HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n") + b"1\r\na\r\n" * 10_000)

    monkeypatch.setattr(exchange, "LARGEST", 1 << 20)
    found = exchange.exchange(exchange.target(streams(act).url), b"{}", 20)
    assert found.failed == "an answer of more than 1 MiB" and len(found.pieces) == 8193


def test_key_is_kept_from_another_process():
    with contextlib.closing(Streams().listener) as listener:
        url = "http://127.0.0.1:%d" % listener.getsockname()[1]
        to = exchange.target(url, "k3y", os.getpid())
        (good,) = exchange.closed_loop(to, [b"{}"], 1, 5)
        was_another = to._replace(own=to.own._replace(inode=to.own.inode + 1))
        (bad,) = exchange.closed_loop(was_another, [b"{}"], 1, 5)
    assert answer(good).error is None
    assert (bad.failed, bad.pieces) == ("another process listens there now: it gets no key", [])


def test_key_is_kept_from_an_ipv6_address():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener, pytest.raises(Refusal, match="no key"):
        exchange.target("http://[::1]:%d" % listener.getsockname()[1], "k3y", os.getpid())


def test_unknown_counters_leave_others_unknown(server):
    server.responses["/v1/chat/completions"] = (200, (PIECE + LAST).decode())
    server.responses["/metrics"] = (501, "")
    assert run.measure(server.url, None, CELL, ASKED)["others"] is None
