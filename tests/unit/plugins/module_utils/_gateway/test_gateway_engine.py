# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine over real sockets: what reaches a server, what comes back, and what happens when one of them ends."""

import asyncio
import errno
import gc
import json
import threading
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway import probes
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_gateway import (
    CHUNKED,
    DONE,
    LOADING,
    Server,
    chat,
    configuration,
    gateways,
    plain,
    request,
    service,
    wait_for,
)


@pytest.fixture
def made(tmp_path):
    """made(services, **keys of gateway.json) -> a gateway that is stopped after the test."""
    yield from gateways(tmp_path)


def together(*calls):
    found = [None] * len(calls)

    def run(at, call):
        found[at] = call()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    return threads, found


def test_body_is_passed_on_without_connection_headers(made):
    server = Server()
    gateway = made(service("big", server), {"clients": {"me": "sk-me"}, "services": {"big": "sk-service"}})
    body = b'{ "model": "BIG",\n "messages": [ ], "temperature": 0.10 }'
    status, headers, _body = gateway.ask(
        body=body, Authorization="Bearer sk-me", X_Api_Key="sk-me", Connection="close, x-own", X_Own="1",
        X_Task_Not="2", X_Llama_Key="3", X_Forwarded_For="4", Accept="text/html", X_Conversation_Id="5",
        Anthropic_Version="6", OpenAI_Organization="7", User_Agent="8", Cookie="9", Traceparent="10",
    )  # fmt: skip
    head, seen = server.requests[0]
    names = {line.partition(":")[0].lower() for line in head[1:]}
    assert (status, headers["x-llama-service"], headers["x-llama-node"], seen) == (200, "big", "n1", body)
    passed = {"accept", "anthropic-version", "openai-organization", "user-agent", "traceparent"}
    assert names == {"host", "authorization", "content-length", "connection", *passed}
    assert "Authorization: Bearer sk-service" in head


def test_stream_is_passed_on_as_it_comes(made):
    goes_on = threading.Event()

    def act(_server, end):
        end.sendall(CHUNKED + b"6\r\ndata: \r\n")
        assert goes_on.wait(5)
        end.sendall(DONE)

    gateway = made(service("big", Server(act=act)))
    with gateway.open(request(body=chat(stream=True))) as end:
        end.settimeout(5)
        found = b""
        while b"data: " not in found:
            found += end.recv(65536)
        goes_on.set()
        while not found.endswith(DONE):
            found += end.recv(65536)
        assert end.recv(1) == b""
    assert found.count(b"Transfer-Encoding: chunked") == 1


@pytest.mark.parametrize("broken", [b"", b"6\r\ndat", b"no size\r\n"])
def test_broken_stream_never_looks_complete(made, broken):
    def act(_server, end):
        end.sendall(CHUNKED + b"6\r\ndata: \r\n")
        time.sleep(0.1)
        end.sendall(broken)

    gateway = made(service("big", Server(act=act)))
    found = gateway.raw(request(body=chat(stream=True)))
    assert b"200 OK" in found
    assert b"\r\n0\r\n" not in found and b"[DONE]" not in found


PING = b"3\r\n:\n\n\r\n"


def pings(seconds, before=b""):
    """An act: a stream that goes on with nothing but comments."""

    def act(_server, end):
        end.sendall(CHUNKED + before)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            end.sendall(PING)
            time.sleep(0.05)

    return act


def test_stream_of_pings_is_silent(made):
    server = Server(act=pings(10))
    gateway = made(service("big", server, timeout=1.0))
    began = time.monotonic()
    found = gateway.raw(request(body=chat(stream=True)))
    # The comments were passed on, so the error is the stream's last event.
    head, *chunks = found.split(b"\r\n\r\n", 1)[0], *found.split(PING)
    assert b"200 OK" in head and len(chunks) > 10 and chunks[-1].endswith(b"\n\n\r\n0\r\n\r\n")
    assert json.loads(chunks[-1].split(b"data: ")[1].split(b"\n")[0])["error"]["code"] == "timeout"
    assert 1 <= time.monotonic() - began < 3
    assert gateway.state("big")["endpoints"][0]["free"] == 1

    server.act = pings(10, before=b"8\r\ndata: 1\n\r\n")
    began = time.monotonic()
    found = gateway.raw(request(body=chat(stream=True)))
    assert b"data: 1" in found and PING in found and b"\r\n0\r\n" not in found and time.monotonic() - began < 3


def test_another_server_answers_until_the_first_event(made, capfd):
    def act(_server, end):
        pings(0.3)(_server, end)
        end.sendall(DONE)

    servers = [Server("a", pings(0.3)), Server("b", act)]
    gateway = made(service("big", *servers))
    found = [gateway.raw(request(body=chat(text=text, stream=True))) for text in "12"]
    assert all(one.endswith(DONE) and one.count(b"200 OK") == 1 and PING in one for one in found)
    assert servers[0].requests and all(one.split(b"\r\n\r\n")[1].startswith(PING[:4]) for one in found)
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    assert all(line["ttfb"] >= 0.3 for line in lines if line["path"] == "/v1/chat/completions")


@pytest.mark.parametrize("sent, ends", [(plain(b'{"error":\n 1}', 400), True), (b"HTTP/1.1 200 OK\r\n\r\nx", False)])
def test_answer_after_pings_is_the_last_event(made, sent, ends):
    def act(_server, end):
        end.sendall(sent)

    gateway = made({**service("big", Server("a", pings(0.2)), fallback="small"), **service("small", Server("b", act))})
    found = gateway.raw(request(body=chat(stream=True)))
    assert PING in found and found.endswith(b'data: {"error": 1}\n\n\r\n0\r\n\r\n' if ends else PING)


def test_cost_of_an_answer_is_logged(made, capfd):
    timings = {"cache_n": 700, "prompt_n": 112, "prompt_ms": 300.5, "predicted_n": 64, "predicted_ms": 1700.25}
    says = {
        "choices": [{"text": '"predicted_n":7,"prompt_ms":9}'}],
        "usage": {"prompt_tokens": 812},
        "timings": timings,
    }
    whole = json.dumps(says).encode()
    stream = CHUNKED + b"%x\r\ndata: %s\n\n\r\n" % (len(whole) + 8, whole) + DONE
    server = Server()
    gateway = made(service("big", server))
    messages = b'{"usage": {"cache_read_input_tokens": 30, "input_tokens": 1, "output_tokens": 8}}'
    own = b'{"timings": {"cache_n": 30, "prompt_n": 1, "prompt_ms": 1e-05}}'
    for sent in (
        plain(whole),
        stream,
        plain(messages),
        plain(own),
        plain(b'{"usage": {"completion_tokens": 99999999999, "prompt_tokens": -1}}'),
    ):
        server.act = lambda _server, end, sent=sent: end.sendall(sent)
        gateway.ask(body=chat())
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    fields = ("prompt_tokens", "cached_tokens", "tokens", "prompt_seconds", "generation_seconds")
    found = [tuple(line[field] for field in fields) for line in lines if line["service"]]
    assert found[:2] == [(812, 700, 64, 0.3, 1.7)] * 2
    assert found[2:] == [(31, 30, 8, None, None), (31, 30, None, None, None), (None,) * 5]


def test_answer_without_length_ends_with_its_connection(made):
    gateway = made(service("big", Server(act=lambda _server, end: end.sendall(b"HTTP/1.1 200 OK\r\n\r\nall of it"))))
    assert gateway.raw(request(body=chat())).endswith(b"\r\n\r\n9\r\nall of it\r\n0\r\n\r\n")


def test_status_1xx_is_not_an_answer(made):
    gateway = made(
        service("big", Server(act=lambda _server, end: end.sendall(b"HTTP/1.1 102 X\r\n\r\n" + plain(b"1"))))
    )
    assert gateway.ask(body=chat())[::2] == (200, 1)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", plain(b"half of it")[:-3], b"SSH-2.0\r\n\r\n", CHUNKED])
def test_server_that_breaks_is_replaced(made, sent):
    servers = [Server("a"), Server("b")]
    dies = threading.Lock()

    def act(server, end):
        if dies.acquire(blocking=False):
            end.sendall(sent)
        else:
            end.sendall(plain(server.name.encode()))

    for server in servers:
        server.act = act
    gateway = made(service("big", *servers))
    assert gateway.ask(body=chat())[0] == 200
    assert sorted(len(server.requests) for server in servers) == [1, 1]


def test_killed_replica_costs_no_request(made):
    goes_on = threading.Event()

    def act(server, end):
        assert goes_on.wait(5)
        end.sendall(plain(json.dumps(server.name).encode()))

    servers = [Server("a").waits(), Server("b", act)]
    gateway = made(service("big", *servers))
    threads, found = together(lambda: gateway.ask(body=chat()), lambda: gateway.ask(body=chat()))
    wait_for(lambda: all(server.requests for server in servers))
    servers[0].die()
    wait_for(lambda: gateway.state("big")["queue"] == 1)
    assert gateway.state("big")["endpoints"][0]["state"] == "down"
    goes_on.set()
    for thread in threads:
        thread.join(10)
    assert [one[::2] for one in found] == [(200, "b"), (200, "b")]
    assert gateway.ask(body=chat())[0] == 200, "nothing is sent to a dead server"
    assert len(servers[0].requests) == 1


def test_request_that_kills_servers_stops_after_three(made):
    servers = [Server(str(at), act=lambda _server, _end: None) for at in range(4)]
    other = Server("other", act=lambda _server, _end: None)
    gateway = made({**service("big", *servers, fallback="small"), **service("small", other)})
    status, headers, body = gateway.ask(body=chat())
    assert (status, body["error"]["code"]) == (503, "no_endpoint")
    assert "retry-after" in headers
    assert sum(len(server.requests) for server in servers) == 3
    assert len(other.requests) == 3


def test_fallback_answers_with_its_own_name(made):
    dead, other = Server(), Server("small")
    dead.die()
    gateway = made({**service("big", dead, fallback="small"), **service("small", other)})
    status, headers, body = gateway.ask(body=chat())
    assert (status, headers["x-llama-service"], headers["x-llama-fallback"]) == (200, "small", "big")
    assert body == {"model": "small"}
    assert json.loads(other.requests[0][1]) == chat("small")


def kill(server, loads=0.5):
    """As a process that is killed and started again."""
    server.die()
    time.sleep(0.3)
    server.health = LOADING
    server.start()
    time.sleep(loads)
    server.health = (b"{}", 200)


def test_requests_wait_for_their_only_server(made):
    def act(server, end):
        time.sleep(0.05)
        end.sendall(plain(b"1"))

    server, over, found = Server(act=act), threading.Event(), []
    gateway = made(service("big", server))

    def client():
        while not over.is_set():
            found.append(gateway.ask(body=chat())[0])

    threads = [threading.Thread(target=client) for _one in range(4)]
    for thread in threads:
        thread.start()
    for _kill in range(3):
        time.sleep(0.5)
        kill(server)
    wait_for(lambda: gateway.state("big")["state"] == "ready")
    over.set()
    for thread in threads:
        thread.join(10)
    assert set(found) == {200}


def test_wait_ends_with_patience(made):
    server = Server()
    gateway = made(service("big", server, patience=2))
    server.die()
    for least, most in ((1, 5), (0, 1)):
        began = time.monotonic()
        assert gateway.ask(body=chat())[2]["error"]["code"] == "no_endpoint"
        assert least <= time.monotonic() - began < most


def test_requests_wait_only_without_fallback(made):
    first, other = Server("a"), Server("small")
    gateway = made({**service("big", first, fallback="small"), **service("small", other)})
    first.die()
    began = time.monotonic()
    assert gateway.ask(body=chat())[1]["x-llama-fallback"] == "big" and time.monotonic() - began < 1
    other.die()
    threads, found = together(lambda: gateway.ask(body=chat()))
    wait_for(lambda: gateway.state("big")["queue"] == 1)
    first.start()
    threads[0].join(10)
    assert (found[0][0], found[0][1]["x-llama-service"]) == (200, "big") and "x-llama-fallback" not in found[0][1]


def test_loading_server_is_used_when_ready(made):
    server = Server()
    server.health = LOADING
    gateway = made(service("big", server))
    status, headers, body = gateway.ask(body=chat())
    assert (status, body["error"]["code"], headers["retry-after"]) == (503, "loading", "10")
    server.health = (b"{}", 200)
    wait_for(lambda: gateway.state("big")["state"] == "ready")
    assert gateway.ask(body=chat())[0] == 200


def test_loading_answer_goes_to_the_fallback(made):
    """It was started again since the last probe."""
    first, other = Server("a", act=lambda _server, end: end.sendall(plain(*LOADING))), Server("small")
    gateway = made({**service("big", first, fallback="small"), **service("small", other)})
    assert gateway.ask(body=chat())[2] == {"model": "small"}


def test_hanging_server_is_seen_when_back(made):
    hangs = threading.Event()
    server = Server()
    server.die()

    def hang():
        hangs.set()
        time.sleep(30)

    gateway = made(service("big", server))
    server.stuck = hang
    server.start()
    assert hangs.wait(5)
    server.stuck = None
    wait_for(lambda: gateway.state("big")["state"] == "ready", 5)


def test_slots_are_bounded_by_the_inventory(made):
    server, other = Server(), Server()
    server.slots = b"[%s]" % b",".join([b'{"n_ctx": 1}'] * 5000)
    other.slots = b'[{"n_ctx": 1}]'
    gateway = made({**service("big", server), **service("small", other)})
    gateway.write("gateway.json", configuration({**service("big", server), **service("small", other)}))
    wait_for(lambda: gateway.state("big")["endpoints"][0]["slot_ctx_size"] == 1)
    assert gateway.state("big")["endpoints"][0]["slots"] == 1


def test_server_that_sleeps_is_not_woken(made):
    server = Server()
    server.slots, server.props = b'[{"n_ctx": 1}]', b'{"is_sleeping": true, "build_info": "b11434-0"}'
    gateway = made(service("big", server))
    wait_for(lambda: "/props" in server.looked_at)
    time.sleep(0.3)
    assert gateway.state("big")["state"] == "ready" and "/slots" not in server.looked_at


def test_failed_probe_is_not_the_last(made, monkeypatch, capfd):
    server = Server()
    gateway = made(service("big", server))
    failed = []

    def saw(self, endpoint, seen):
        failed.append(seen)
        raise RuntimeError("a mistake")

    monkeypatch.setattr(probes.Prober, "saw", saw)
    server.die()
    wait_for(lambda: len(failed) > 1)
    monkeypatch.undo()
    wait_for(lambda: gateway.state("big")["state"] == "down")
    assert "internal error in the probe of big: RuntimeError('a mistake')" in capfd.readouterr().out


def test_server_is_not_down_without_descriptors(made, monkeypatch):
    server = Server()
    gateway = made(service("big", server))
    tried = []

    async def none_left(*_words, **_keys):
        tried.append(1)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio, "open_connection", none_left)
    status, headers, body = gateway.ask(body=chat())
    assert (status, body["error"]["code"], headers["retry-after"]) == (503, "busy", "5")
    wait_for(lambda: len(tried) > 2)
    assert gateway.state("big")["state"] == "ready"


def test_queue_is_bounded(made):
    server = Server().waits()
    gateway = made(service("big", server, queue=1))
    with gateway.open(request(body=chat(text="1"))), gateway.open(request(body=chat(text="2"))):
        wait_for(lambda: gateway.state("big")["queue"] == 1 and server.requests)
        status, headers, body = gateway.ask(body=chat(text="3"))
        assert (status, body["error"]["code"], headers["retry-after"]) == (429, "queue_full", "5")
        assert len(server.requests) == 1
        # Requests without a slot are answered meanwhile.
        server.act = lambda _server, end: end.sendall(plain(b"{}"))
        assert gateway.ask("/v1/chat/completions/input_tokens", chat())[0] == 200


def test_client_that_leaves_frees_slot_and_place(made):
    server = Server().waits()
    gateway = made(service("big", server))
    with gateway.open(request(body=chat(text="1"))):
        wait_for(lambda: server.requests)
        with gateway.open(request(body=chat(text="2"))):
            wait_for(lambda: gateway.state("big")["queue"] == 1)
        wait_for(lambda: gateway.state("big")["queue"] == 0)
        left = time.monotonic()
    wait_for(lambda: server.left == 1)
    assert time.monotonic() - left < 1
    endpoint = gateway.state("big")["endpoints"][0]
    assert (endpoint["in_flight"], endpoint["free"], len(server.requests)) == (0, 1, 1)


def test_requests_wait_through_a_change(made):
    server = Server()
    gateway = made(service("big", server))
    gateway.drain(("big", "n1", "change"))
    wait_for(lambda: gateway.state("big")["state"] == "draining")
    threads, found = together(lambda: gateway.ask(body=chat()))
    wait_for(lambda: gateway.state("big")["queue"] == 1)
    server.die()
    time.sleep(1.5)
    server.health = LOADING
    server.start()
    time.sleep(1.2)
    assert gateway.state("big")["queue"] == 1
    gateway.drain()
    time.sleep(1.2)
    assert gateway.state("big")["state"] == "draining", "until a probe sees it ready"
    server.health = (b"{}", 200)
    threads[0].join(10)
    assert found[0][0] == 200


def test_maintenance_is_as_good_as_down(made):
    held, other = Server("a"), Server("small")
    gateway = made({**service("big", held, fallback="small"), **service("small", other)})
    gateway.drain(("big", "n1", "maintenance"))
    wait_for(lambda: gateway.state("big")["state"] == "draining")
    assert gateway.ask(body=chat())[2] == {"model": "small"}
    gateway.drain(("big", "n1", "maintenance"), ("small", "n1", "maintenance"))
    wait_for(lambda: gateway.state("small")["state"] == "draining")
    assert gateway.ask(body=chat())[2]["error"]["code"] == "no_endpoint"


def test_exchanged_endpoints_cost_no_request(made):
    servers = [Server("a"), Server("b")]
    gateway = made(service("big", servers[0]))
    for at in (1, 0, 1):
        gateway.write("gateway.json", configuration(service("big", servers[at])))
        gateway.loop.call_soon_threadsafe(gateway.engine.reload)
        assert [gateway.ask(body=chat())[0] for _one in range(3)] == [200] * 3
    assert servers[1].requests


def test_broken_configuration_changes_nothing(made, capfd):
    first, second = Server("a"), Server("b")
    gateway = made(service("big", first))
    gateway.write("gateway.json", configuration({**service("big", first), **service("new", second)}))
    gateway.loop.call_soon_threadsafe(gateway.engine.reload)
    wait_for(lambda: gateway.ask(body=chat("new"))[0] == 200)
    gateway.write("gateway.json", '{"version": 1, "services": {"big": []}}')
    gateway.loop.call_soon_threadsafe(gateway.engine.reload)
    assert gateway.ask(body=chat("new"))[0] == 200
    gateway.write("draining.json", "{half")
    time.sleep(0.7)
    assert gateway.ask(body=chat())[0] == 200
    said = capfd.readouterr().out
    assert "gateway.json cannot be used (AttributeError" in said
    assert "draining.json: cannot be read" in said
    assert '"path": "/v1/chat/completions"' in said and "messages" not in said


TWO_LENGTHS = b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"


@pytest.mark.parametrize(
    "sent, status",
    [
        (TWO_LENGTHS, 400),
        (b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\nx", 400),
        (b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999999\r\n\r\nx", 413),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n X-Folded: 1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX Y: 1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n", 400),
        (b"GET /health HTTP/1.0\r\nHost: x\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", 417),
        (b"GET http://x/slots HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (80 << 10) + b"\r\n\r\n", 431),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n[1,2]", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\xff\xfe{\0", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    ],
)
def test_ambiguous_requests_are_refused(made, sent, status):
    server = Server()
    gateway = made(service("big", server))
    assert gateway.raw(sent).startswith(b"HTTP/1.1 %d " % status)
    assert server.requests == []


def test_keys(made):
    server = Server()
    gateway = made(service("big", server), auth="required")
    assert gateway.ask(body=chat())[2]["error"]["code"] == "invalid_api_key"
    assert gateway.ask(body=chat(), Authorization="Bearer sk-m")[0] == 401
    assert gateway.ask(body=chat(), Authorization="Bearer sk-me")[0] == 200
    assert gateway.ask(body=chat(), X_Api_Key="sk-me")[0] == 200
    assert [gateway.ask(path)[0] for path in ("/health", "/status", "/status.json", "/clients", "/clients/openai")] == [
        200
    ] * 5
    assert gateway.ask("/v1/models")[0] == 401


def test_two_keys_while_one_is_exchanged(made, capfd):
    gateway = made(service("big", Server()), auth="required")

    def asked(key, wanted):
        wait_for(lambda: gateway.ask(body=chat(), Authorization="Bearer " + key)[0] == wanted)

    for clients, known, unknown in (
        ({"me": ["sk-new", "sk-me"]}, ("sk-me", "sk-new"), "sk-other"),
        ({"me": "sk-new"}, ("sk-new",), "sk-me"),
        ({"me": ["sk-new", 7]}, ("sk-new",), "sk-me"),
    ):
        gateway.write("keys.json", {"clients": clients, "services": {}})
        gateway.loop.call_soon_threadsafe(gateway.engine.reload)
        for key in known:
            asked(key, 200)
        asked(unknown, 401)
    said = capfd.readouterr().out
    assert "keys.json cannot be used (AttributeError)" in said and "sk-" not in said


def test_wrong_key_of_a_service_is_503(made):
    server = Server(act=lambda _server, end: end.sendall(plain(b'{"error": {"code": 401}}', 401)))
    gateway = made(service("big", server), {"clients": {"me": "sk-me"}, "services": {"big": "sk-old"}}, auth="required")
    status, headers, body = gateway.ask(body=chat(), Authorization="Bearer sk-me")
    assert (status, body["error"]["code"], headers["retry-after"]) == (503, "service_key", "10")
    assert "sk-" not in str(body)


def test_ports_tiers_and_tasks(made):
    server, router = Server("big"), Server("r")
    models = [{"name": "m1", "aliases": ["M1"]}, {"name": "m2", "aliases": []}]
    gateway = made(
        {**service("big", server, tier="reasoning"), **service("r", router, kind="router", tier="fast", models=models)},
        routes={"default": "m2", "tasks": {"analyze": "big"}},
    )
    # A tier answers whatever it is asked for, and passes its own paths on.
    assert gateway.ask(body=chat("probe"), X_Llama_Tier="reasoning")[2] == {"model": "big"}
    assert gateway.ask("/metrics", X_Llama_Tier="reasoning")[0] == 200
    for asked, sent in (("M1", "m1"), ("m2", "m2"), ("other", "m1")):
        gateway.ask(body=chat(asked), X_Llama_Tier="fast")
        assert json.loads(router.requests[-1][1])["model"] == sent
    # The task comes before the model.
    gateway.ask("/task/analyze/v1/chat/completions", chat("m1"))
    assert server.requests[-1][0][0] == "POST /v1/chat/completions HTTP/1.1"
    assert json.loads(server.requests[-1][1])["model"] == "big"
    _status, headers, _body = gateway.ask(body=chat("m1"), X_Task="other")
    assert headers["x-llama-task"] == "default; unknown task other"
    assert json.loads(router.requests[-1][1])["model"] == "m2"
    status, _headers, body = gateway.ask(body=chat("BIGG"))
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert "use big" in body["error"]["message"].lower()
    assert {one["id"] for one in gateway.ask("/v1/models")[2]["data"]} == {"big", "BIG", "m1", "M1", "m2"}
    assert gateway.ask("/v1/models/M1")[2]["meta"]["alias_of"] == "m1"
    assert gateway.ask("/models")[2] == gateway.ask("/v1/models")[2]
    assert gateway.ask("/v1/models/no")[0] == 404
    assert gateway.ask("/props")[0] == 404
    assert gateway.ask("/v1/models", method="DELETE")[0] == 403
    assert gateway.raw(request("/health", method="HEAD")).endswith(b"\r\n\r\n")


def test_rewritten_body_differs_only_in_its_model(made):
    dead, other = Server(), Server("small")
    dead.die()
    gateway = made({**service("big", dead, fallback="small"), **service("small", other)})
    sent = b'{ "model": "big",\n "temperature": 0.10, "seed": 12345678901234567890, "x": 1e999 }'
    assert gateway.ask(body=sent)[0] == 200
    assert other.requests[0][1] == sent[:-1] + b',"model":"small"}'


@pytest.mark.parametrize("path", ["/rerank", "/infill", "/completion", "/tokenize", "/v1/embeddings"])
def test_paths_of_the_servers_go_by_the_model(made, path):
    server = Server("big")
    gateway = made(service("big", server))
    assert gateway.ask(path, {"model": "big"})[0] == 200
    assert server.requests[0][0][0] == "POST %s HTTP/1.1" % path
    assert gateway.ask(path, {"model": "other"})[0] == 404


@pytest.mark.parametrize("tier", [{}, {"X_Llama_Tier": "fast"}])
@pytest.mark.parametrize(
    "path, method, status, words",
    [
        ("/v1/chat/completion", "POST", 404, "use /v1/chat/completions"),
        ("/nothing", "POST", 404, "/nothing is not known here"),
        ("/nothing", "GET", 404, "/nothing is not known here"),
        ("/v1/chat/completions", "GET", 405, "GET is not allowed at /v1/chat/completions: use POST"),
        ("/health", "POST", 405, "POST is not allowed at /health: use GET"),
        ("/v1/completions", "PUT", 405, "use POST"),
    ],
)
def test_wrong_path_names_the_right_one(made, path, method, status, words, tier):
    server = Server()
    gateway = made(service("big", server, tier="fast"))
    seen, headers, body = gateway.ask(path, None if method == "GET" else {}, method, **tier)
    assert seen == status and words in body["error"]["message"]
    assert ("allow" in headers) == (status == 405)
    assert server.requests == []


def test_encodings_of_a_body(made):
    gateway = made(service("big", Server()))
    status, _headers, body = gateway.ask(body=b"\x1f\x8b", Content_Encoding="gzip")
    assert (status, body["error"]["message"].partition(",")[0]) == (415, "content-encoding: gzip seen")
    assert gateway.ask(body=chat(), Content_Encoding="identity")[0] == 200
    assert gateway.ask(body=b"\xef\xbb\xbf" + json.dumps(chat()).encode())[0] == 200


def test_request_holds_only_its_bytes(made):
    server = Server().waits()
    gateway = made(service("big", server))
    sent = b'{"model": "big", "x": [' + b"{}," * 200000 + b"{}]}"
    with gateway.open(request(body=sent)):
        wait_for(lambda: server.requests)
        gc.collect()
        held = [one for one in gc.get_objects() if isinstance(one, list) and len(one) > 100000]
        assert held == []


@pytest.mark.parametrize("tier", ["", "fast"])
@pytest.mark.parametrize(
    "path",
    [
        *("/slots", "/%73lots/0", "//slots", "/v1/../slots", "/models/load", "/v1/models%2funload", "/x/./models/load"),
        *("/v1/stream", "/v1/streams/lookup", "/v1/chat/completions/control", "/v1/stream%73/lookup"),
    ],
)
def test_closed_paths_reach_no_server(made, path, tier):
    server = Server()
    gateway = made(service("big", server, tier="fast"))
    status, _headers, body = gateway.ask(path, {}, **({"X_Llama_Tier": tier} if tier else {}))
    assert (status, body["error"]["code"]) == (403, "closed_path")
    assert server.requests == []
