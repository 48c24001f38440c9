# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import api as llama_api
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import server as llama_server
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama.api import LlamaApi, NoAnswer
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_json_and_text_are_returned_with_their_status(server):
    api = llama_api.LlamaApi(server.url + "/")
    assert api.get("/health", 5) == (200, {"status": "ok"})
    assert api.get("/metrics", 5)[1].startswith("# TYPE llamacpp:n_decode_total counter")
    assert api.get("/nothing", 5)[0] == 404


def test_the_key_is_sent_in_a_header(server):
    llama_api.LlamaApi(server.url, "k3y").get("/props", 5)
    assert server.headers[0]["Authorization"] == "Bearer k3y"


def test_only_named_process_gets_key(server):
    api = llama_api.LlamaApi(server.url, "k3y", pid=os.getpid())
    api.get("/props", 5)
    api.of("m").get("/props", 5)
    assert [headers["Authorization"] for headers in server.headers] == ["Bearer k3y"] * 2
    # A process of the same user, such as another head.
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    for pid in (other.pid, 1 << 30):
        api.use_key("k3y", pid)
        for ask in (lambda: api.get("/props", 5), lambda: list(api.stream("x")), lambda: api.of("m").get("/props", 5)):
            with pytest.raises(llama_api.NoAnswer, match="user id %d listens at " % os.geteuid()) as caught:
                ask()
            assert caught.value.kind == "foreign"
    other.communicate(b"\n")
    assert len(server.headers) == 2
    # There is nothing to keep back.
    assert llama_api.LlamaApi(server.url, pid=os.getpid()).get("/props", 5)[0] == 200


def test_replaced_listener_gets_no_key(server, monkeypatch):
    seen = [llama_api.Listener(os.geteuid(), 1), llama_api.Listener(os.geteuid(), 2), None, None]
    monkeypatch.setattr(llama_api, "listener", lambda _end: seen.pop(0))
    api = llama_api.LlamaApi(server.url, "k3y", pid=os.getpid())
    for who in ("user id %d" % os.geteuid(), "an unknown user"):
        with pytest.raises(llama_api.NoAnswer, match=who + " listens at"):
            api.get("/props", 5)
    assert server.headers == [] and seen == []


def test_unchecked_address_gets_no_key(monkeypatch):
    """A name may have two: the look is at the IPv4 one, the connection goes to the other."""
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        with socket.create_server(("::1", port), family=socket.AF_INET6) as other:
            monkeypatch.setattr(llama_api.socket, "gethostbyname", lambda _name: "127.0.0.1")
            with pytest.raises(llama_api.NoAnswer, match="it gets no key"):
                llama_api.LlamaApi("http://[::1]:%d" % port, "k3y", pid=os.getpid()).get("/health", 5)
            assert other.accept()[0].recv(9999) == b""


@pytest.mark.parametrize("model", [None, "m"])
def test_a_stream_is_asked_of_the_model(server, model):
    server.responses["/completion"] = lambda: (200, 'data: {"content":"a","stop":true}\n\n')
    assert list(llama_api.LlamaApi(server.url, model=model).stream("Once")) == ['{"content":"a","stop":true}']
    assert server.asked("/completion")[0].get("model", "none") == (model or "none")


@pytest.mark.parametrize("model", [None, "m"])
def test_an_embedding_is_asked_of_the_model(server, model):
    server.responses["/v1/embeddings"] = (200, {"data": []})
    assert llama_api.LlamaApi(server.url, model=model).embed("Red", 5) == (200, {"data": []})
    assert server.asked("/v1/embeddings") == [dict({"input": "Red"}, **({"model": "m"} if model else {}))]


def test_token_prompt_is_not_repeated(server):
    server.responses["/completion"] = (200, {"tokens_evaluated": 3})
    assert llama_api.LlamaApi(server.url).read([5, 6, 7], 5) == (200, {"tokens_evaluated": 3})
    (request,) = server.asked("/completion")
    assert request["prompt"] == [5, 6, 7] and "tokens_evaluated" in request["response_fields"]
    assert "prompt" not in request["response_fields"]


def test_proxy_variables_are_ignored(server, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:%d" % unused_port())
    assert llama_api.LlamaApi(server.url).get("/health", 5)[0] == 200


def test_url_path_is_kept(server):
    llama_api.LlamaApi(server.url + "/reasoning/").get("/health", 5)
    assert server.requests[0][1] == "/reasoning/health"


def test_router_get_loads_no_model(server):
    api = llama_api.LlamaApi(server.url, model="strand rust/14b")
    api.get("/health", 5)
    api.get("/slots", 5, of_model=True)
    assert [path for _method, path, _body in server.requests] == [
        "/health",
        "/slots?model=strand%20rust%2F14b&autoload=false",
    ]


def test_completion_is_uncached_at_temperature_0(server):
    llama_api.LlamaApi(server.url, model="m").chat("Name one color.", 64, 5)
    assert server.asked("/v1/chat/completions") == [
        {
            "messages": [{"role": "user", "content": "Name one color."}],
            "max_tokens": 64,
            "temperature": 0,
            "cache_prompt": False,
            "model": "m",
        }
    ]


def test_a_refused_key_names_the_option(server):
    server.responses["/props"] = fake.NO_KEY
    with pytest.raises(llama_api.Refusal, match=r"refused the API key \(401\): set api_key_file"):
        llama_api.LlamaApi(server.url).get("/props", 5)


def no_answer(url, timeout=5):
    with pytest.raises(llama_api.NoAnswer) as problem:
        llama_api.LlamaApi(url).get("/health", timeout)
    return problem.value.kind, str(problem.value)


def test_closed_port_is_refused():
    assert no_answer("http://127.0.0.1:%d" % unused_port()) == ("refused", "Connection refused")


def test_unknown_name_is_unreachable():
    kind, text = no_answer("http://unknown.invalid:8000")
    assert kind == "unreachable"
    assert text


def test_no_answer_in_time(server):
    server.responses["/health"] = server.silent
    assert no_answer(server.url, 0.1) == ("timeout", "no answer in 0.1 s")


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"])
def test_slow_trickle_is_a_timeout(start):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip():
            peer = listener.accept()[0]
            with peer, contextlib.suppress(OSError):
                peer.sendall(start)
                for _byte in range(100):
                    peer.sendall(b"x")
                    time.sleep(0.05)

        threading.Thread(target=drip, daemon=True).start()
        started = time.monotonic()
        assert no_answer("http://127.0.0.1:%d" % listener.getsockname()[1], 0.3) == ("timeout", "no answer in 0.3 s")
        assert time.monotonic() - started < 4


@pytest.mark.parametrize("known", [True, False])
def test_endless_answer_is_refused(known):
    sent = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pour():
            peer = listener.accept()[0]
            with peer, contextlib.suppress(OSError):
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\r\n" + (b"Content-Length: 1000000000\r\n\r\n" if known else b"\r\n"))
                for _piece in range(1000):
                    peer.sendall(b"[" * 100000)
                    sent.append(100000)

        thread = threading.Thread(target=pour)
        thread.start()
        with pytest.raises(
            llama_api.Refusal,
            match="/slots: an answer of more than 2 MiB seen, at most 2 are allowed: see which program",
        ):
            llama_api.LlamaApi("http://127.0.0.1:%d" % listener.getsockname()[1]).get("/slots", 10)
        thread.join(10)
    assert sum(sent) < 20e6


def test_json_that_is_too_deep_is_text(server):
    server.responses["/slots"] = (200, "[" * 200000)
    assert llama_api.LlamaApi(server.url).get("/slots", 5) == (200, "[" * 200000)


def test_a_cut_body():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def cut():
            with listener.accept()[0] as peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}")

        threading.Thread(target=cut, daemon=True).start()
        kind, text = no_answer("http://127.0.0.1:%d" % listener.getsockname()[1])
    assert kind == "cut" and "IncompleteRead" in text


def test_a_cut_connection(server):
    server.responses["/health"] = fake.CUT
    assert no_answer(server.url) == ("cut", "Remote end closed connection without response")


def test_the_first_key_of_a_file(tmp_path):
    (tmp_path / "keys").write_text("# gateway\n\n  first  \nsecond\n")
    assert llama_api.read_api_key(str(tmp_path / "keys")) == "first"


@pytest.mark.parametrize(
    ("content", "text"), [(None, "cannot be read (No such file or directory)"), ("# none\n", "holds no key")]
)
def test_a_file_without_key(tmp_path, content, text):
    if content is not None:
        (tmp_path / "keys").write_text(content)
    with pytest.raises(llama_api.Refusal) as problem:
        llama_api.read_api_key(str(tmp_path / "keys"))
    assert text in str(problem.value)


def test_metrics():
    text = (
        "# HELP llamacpp:n_decode_total calls\nllamacpp:n_decode_total 96\nllamacpp:prompt_seconds_total "
        "0.323896\nother 1\nllamacpp:big 1e+06\n"
    )
    assert llama_api.parse_metrics(text) == {"n_decode_total": 96.0, "prompt_seconds_total": 0.323896, "big": 1e6}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": {"message": "Loading model", "code": 503}}, "Loading model"),
        ("<html>\n<h1>502 Bad Gateway</h1>", "<html> <h1>502 Bad Gateway</h1>"),
        ("", "an empty answer"),
        ({"error": "text"}, "{'error': 'text'}"),
    ],
)
def test_error_text(body, text):
    assert llama_api.error_text(body) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\n\tb  c", "a b c"),
        ("a\x1b[2Jb", "a [2Jb"),
        (7, "7"),
        (None, "None"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 200),
        ("\n" * 1999 + "ab", "a"),
    ],
)
def test_foreign_text_is_short_and_printable(value, text):
    assert llama_api.plain(value) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": {"message": "Loading\nmodel"}}, "Loading model"),
        ({"error": {"code": 503}}, "{'code': 503}"),
        ({"error": "x"}, "{'error': 'x'}"),
        ("", "an empty answer"),
        ("gone", "gone"),
        ({"error": {"message": "x" * 200}}, "x" * 200),
        # A template's own words come last.
        ({"error": {"message": "a" * 95 + "b" * 300 + "c" * 100}}, "a" * 95 + " ... " + "c" * 100),
    ],
)
def test_the_message_of_an_error(body, text):
    assert llama_api.error_text(body) == text


@pytest.mark.parametrize(("value", "number"), [(7, 7), (0, 0), (-1, 0), (1.5, 0), ("7", 0), (None, 0)])
def test_a_number_of_tokens(value, number):
    assert llama_api.count(value) == number


def test_objects_of_an_answer():
    assert llama_api.table({"a": 1}) == {"a": 1} and llama_api.table([1]) == {} == llama_api.table(None)
    assert llama_api.rows([{"a": 1}, 7]) == [{"a": 1}, {}] and llama_api.rows({}) is None and llama_api.rows([]) == []


@pytest.mark.parametrize("url", ["ftp://h", "h:8000", "10.0.0.31:8000", "http://", "http://h:0", "http://h:port", ""])
def test_what_is_no_address_of_a_server(url):
    with pytest.raises(llama_api.Refusal, match="is not an address: http://HOST:PORT is needed"):
        llama_api.LlamaApi(url)


def test_metrics_are_numbers():
    text = "# HELP x\nllamacpp:a 1\nllamacpp:b 1.5e+02\nother:c 3\nllamacpp:d NaN\n"
    assert llama_api.parse_metrics(text) == {"a": 1.0, "b": 150.0}


def paths(server):
    return [path for _method, path, _body in server.requests]


@pytest.mark.parametrize(
    "props, state",
    [
        ((200, fake.PROPS), "ready"),
        ((200, dict(fake.PROPS, is_sleeping=True)), "sleeping"),
        (fake.LOADING, "loading"),
        ((500, {}), "down"),
        (fake.CUT, "down"),
    ],
)
def test_state_of_a_server(server, props, state):
    server.responses["/props"] = props
    seen = llama_server.probe(LlamaApi(server.url))
    assert seen.state == state and state in llama_server.STATES
    assert paths(server) == ["/props", "/metrics"][: 1 + (state == "ready")], "a question wakes one that sleeps"


def test_working_slots_are_asked(server):
    server.responses["/metrics"] = (200, "llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n")
    server.responses["/slots"] = (200, [fake.WORKING])
    seen = llama_server.probe(LlamaApi(server.url))
    assert (seen.busy, seen.requests, seen.deferred) == (1, 1.0, 2.0)
    assert seen.working == [dict(fake.WORKING, model=None)]


def test_silent_server_is_busy(server, monkeypatch):
    monkeypatch.setattr(llama_server, "ANSWER", 0.2)
    server.responses["/metrics"] = server.silent
    seen = llama_server.probe(LlamaApi(server.url))
    assert (seen.state, seen.silent, seen.requests) == ("ready", True, 1.0)
    server.responses["/props"] = server.silent
    seen = llama_server.probe(LlamaApi(server.url))
    assert (seen.state, seen.silent) == ("down", True)


def test_sleeping_models_of_a_router_are_not_asked(server):
    server.responses.update(fake.router(coder="loaded", chat="sleeping", draft="unloaded"))
    seen = llama_server.probe(LlamaApi(server.url), router=True)
    assert (seen.state, seen.models) == ("ready", ["coder"])
    assert all("coder" in path or path == "/models" for path in paths(server))


@pytest.mark.parametrize("kind, state", [("refused", "loading"), ("timeout", "down"), ("foreign", "down")])
def test_state_without_an_answer(kind, state):
    assert llama_server.unanswered(NoAnswer(kind, "")) == state
