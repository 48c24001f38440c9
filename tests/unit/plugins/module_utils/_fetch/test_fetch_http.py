# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import contextlib
import email.message
import http.client
import http.server
import re
import socket
import ssl
import subprocess
import threading
import time
import types

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import http as fetch_http
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import urls
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.errors import Transient
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.http import Client, attempts
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.hub import Hub
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.sources import make_source, read_range
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

DATA = bytes(range(256)) * 40


@pytest.fixture
def client():
    client = Client(5)
    yield client
    client.close()


def resolved(url, client, token=None):
    source = make_source(url, token)
    source.resolve(client)
    return source


@contextlib.contextmanager
def serving(handler, context=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_ranges_survive_short_and_broken_bodies(fake, client, monkeypatch):
    monkeypatch.setattr(fetch_http, "FIRST_WAIT", 0)
    source = resolved(fake.add_plain("a", DATA), client)
    for offset in (0, 1, 4095, len(DATA) - 5):
        assert read_range(source, client, offset, 1000) == DATA[offset : offset + 1000]
    fake.cuts = [100] * 20
    assert read_range(source, client, 0, 5000) == DATA[:5000]


def test_byte_per_connection_is_given_up(fake, client, monkeypatch):
    monkeypatch.setattr(fetch_http.time, "sleep", lambda seconds: None)
    source = resolved(fake.add_plain("a", DATA), client)
    fake.cuts = [1] * 20
    with pytest.raises(Refusal, match="the connection ended .* early, 4 times: check the network and run again"):
        read_range(source, client, 0, 200)
    assert len(fake.cuts) == 16


def test_connection_server_closed_meanwhile_is_opened_again(fake, client):
    source = resolved(fake.add_plain("a", DATA), client)
    for connection in fake.servers["hub"].sockets:
        connection.shutdown(2)
    assert read_range(source, client, 3, 10) == DATA[3:13]


def test_redirects_end(fake, client):
    fake.add_repo("o/r", {"a": DATA})
    fake.redirect_to = fake.url + "/o/r/resolve/main/a"
    with pytest.raises(Refusal, match="more than 8 redirects"):
        resolved(fake.url + "/o/r/resolve/main/a", client)


def test_shorter_range_than_asked_for_is_continued(fake, client):
    source = resolved(fake.add_plain("a", DATA), client)
    fake.answers = [(206, {"Content-Range": "bytes 0-9/%d" % len(DATA)}, DATA[:10])]
    assert read_range(source, client, 0, 100) == DATA[:100]
    assert [asked for _path, asked in fake.bytes_requests()[-2:]] == ["bytes=0-99", "bytes=10-99"]
    assert fake.servers["hub"].connections == 1, "what was sent was read to its end"


def test_server_that_says_nothing_is_transient():
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Transient, match="timed out"):
        resolved("http://127.0.0.1:%d/m.gguf" % silent.getsockname()[1], Client(0.2))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]
    subprocess.run(
        [*command, "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True
    )
    return folder


class OverTls(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.send_response(302 if self.path == "/away" else 206)
        self.send_header("Location", "http://127.0.0.1:9/m.gguf")
        self.send_header("Content-Range", "bytes 0-0/1")
        self.send_header("Content-Length", "1")
        self.end_headers()
        self.wfile.write(b"x")


def test_tls_is_verified_and_not_left_again(certificate, client, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(certificate / "cert.pem"), str(certificate / "key.pem"))
    with serving(OverTls, context) as port:
        with pytest.raises(
            Refusal, match="its certificate does not verify .*: install the CA on this node or set SSL_CERT_FILE"
        ):
            resolved("https://localhost:%d/m.gguf" % port, client)
        trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
        monkeypatch.setattr(fetch_http, "tls", lambda: trusting)
        assert resolved("https://localhost:%d/m.gguf" % port, client).size == 1
        with pytest.raises(Refusal, match="redirects from https to http://127.0.0.1:9/m.gguf, which is not encrypted"):
            resolved("https://localhost:%d/away" % port, client)


@contextlib.contextmanager
def speaking(*answers):
    """A server that sends each answer to one connection, the last one to all others. answer: bytes, or parts of them
    until the client closes the connection."""

    def speak(connection, answer):
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            for part in [answer] if isinstance(answer, bytes) else answer():
                connection.sendall(part)

    def serve(listener):
        left = list(answers)
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                answer = left.pop(0) if len(left) > 1 else left[0]
                threading.Thread(target=speak, args=(connection, answer), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield "http://127.0.0.1:%d/m.gguf" % listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def drip(head=b"", tail=b"x"):
    """``head`` at once, then ``tail`` again and again for 20 seconds, unless the client ends it."""

    def parts():
        yield head
        for _number in range(2000):
            time.sleep(0.01)
            yield tail

    return parts


HEAD = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %d-%d/100000\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SLOW = "slower than 4,096 bytes per second for [0-9]+ seconds"


@pytest.fixture
def impatient(monkeypatch):
    """Slow is less than 4096 bytes per second over a tenth of one."""
    monkeypatch.setattr(fetch_http, "_LOWEST_OVER", 0.1)
    monkeypatch.setattr(fetch_http, "FIRST_WAIT", 0.001)


@pytest.mark.parametrize(
    "answer",
    [drip(b"HTTP/1.1 206 Partial Content\r\nX-Slow: "), drip(tail=b"HTTP/1.1 100 Continue\r\n\r\n")],
    ids=["field", "continue"],
)
def test_slow_header_is_transient(client, impatient, answer):
    with speaking(answer) as url, pytest.raises(Transient, match=SLOW):
        resolved(url, client)


def test_header_has_at_most_one_mebibyte(client):
    with (
        speaking(b"HTTP/1.1 100 Continue\r\n\r\n" * 100000) as url,
        pytest.raises(Transient, match="more than 1,048,576 bytes of header fields"),
    ):
        resolved(url, client)


def test_slow_range_is_refused(client, impatient):
    with speaking(HEAD % (0, 0, 1) + b"x", drip(HEAD % (0, 999, 1000))) as url:
        source = resolved(url, client)
        with pytest.raises(Refusal, match=SLOW + ", 4 times: check the network and run again"):
            read_range(source, client, 0, 1000)


@pytest.mark.parametrize(
    "answer",
    [drip(CHUNKED, b"1\r\n \r\n"), drip(HEAD % (0, 99998, 99999), b" ")],
    ids=["chunked", "length"],
)
def test_slow_listing_is_refused(client, impatient, answer):
    with speaking(answer) as url, pytest.raises(Refusal, match=SLOW + ", 4 times"):
        Hub(client, "o/r", url.rpartition("/")[0]).files("0" * 40)


def test_abort_ends_waiting_request():
    client, failures = Client(60), []

    def ask(url):
        try:
            client.get(url, {})
        except Transient as failure:
            failures.append(failure)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        for _attempt in ("while it waits", "before it begins"):
            thread = threading.Thread(target=ask, args=("http://127.0.0.1:%d/m" % silent.getsockname()[1],))
            thread.start()
            connection, _address = silent.accept()
            with connection:
                connection.recv(65536)
                client.abort()
                thread.join(5)
            assert not thread.is_alive()
    assert len(failures) == 2
    client.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://[::1", "its host or port cannot be read: correct the address"),
        ("http://h:port/m.gguf", "http://h:port/m.gguf: its host or port cannot be read"),
        ("http://h:99999/m.gguf", "its host or port cannot be read"),
        ("http://h%20h/m.gguf", "its host or port cannot be read"),
        ("http://a..b/m.gguf", "its host or port cannot be read"),
        ("http://%s.example/m.gguf" % ("a" * 64), "its host or port cannot be read"),
        ("http:///m.gguf", "an http or https URL is needed"),
        (
            "http://user:hunter2@h/m.gguf?key=hunter2",
            "http://h/m.gguf: has a user or password in it, which are never sent: leave them out",
        ),
        ("http://user:hunter2/x@h/m.gguf", "its host or port cannot be read"),
        ("http://user@h/m.gguf", "has a user or password in it"),
    ],
)
def test_unusable_url_is_refused_without_secrets(url, words):
    with pytest.raises(Refusal) as caught:
        make_source(url)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value) and "\n" not in str(caught.value)


def test_urls_and_redirects_are_quoted(fake, client):
    assert (
        urls.clean_url("http://B\u00fccher.example:80/\u00fc a?n=\u00fc&s=%2F+#f")
        == "http://xn--bcher-kva.example:80/%C3%BC%20a?n=%C3%BC&s=%2F+"
    )
    url = fake.add_plain("\u00fc b.gguf", DATA)
    assert resolved(url.replace("%C3%BC%20", "\u00fc "), client).size == len(DATA)
    location = fake.url.encode() + "/files/\u00fc b.gguf".encode()
    with speaking(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n" % location) as other:
        assert resolved(other, client).size == len(DATA)


@pytest.mark.parametrize(
    ("location", "words"),
    [
        (b"http://[::1", "redirects to an address that cannot be read"),
        (b"http://h:bad/", "its host or port cannot be read"),
        (b"http://", "more than 8 redirects"),
        (b"http://user:pw@127.0.0.1/", "has a user or password in it"),
        (b"javascript:\x1b[2J", "redirects to javascript:"),
        (b"file:///etc/passwd", "redirects to file:///etc/passwd, http or https is needed"),
    ],
)
def test_redirect_that_cannot_be_followed_is_one_sentence(client, location, words):
    with (
        speaking(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n" % location) as url,
        pytest.raises(Refusal) as caught,
    ):
        resolved(url, client)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 503 \x1b[2Jgone\r\nContent-Length: 0\r\nRetry-After: nan\r\n\r\n",
        b"HTTP/1.1 503 Gone"
        + b"e" * 60000
        + b"\r\nContent-Length: 0\r\nRetry-After: Mon, 01 Jan 0001 00:00:00 GMT\r\n\r\n",
        b"HTTP/1.1 206 OK\r\nContent-Length: 1\r\nContent-Range: bytes 0-0/" + b"9" * 5000 + b"\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/9 nonsense\r\n\r\n",
    ],
)
def test_server_that_talks_nonsense_is_one_short_sentence(client, answer):
    with speaking(answer) as url, pytest.raises((Refusal, Transient)) as caught:
        resolved(url, client)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400
    assert getattr(caught.value, "wait", None) in (None, 0)


def fields(*pairs):
    message = email.message.Message()
    for name, value in pairs:
        message[name] = value
    return message


@pytest.mark.parametrize(
    ("pairs", "seconds"),
    [
        ([("RateLimit", '"api";r=0;t=42'), ("RateLimit-Policy", '"fixed window";"api";q=500;w=300')], 42),
        ([("Retry-After", "7"), ("RateLimit", '"api";r=0;t=42')], 7),
        ([("Retry-After", "601")], 600),
        ([("Retry-After", "1.5")], 1),
        *(([("Retry-After", value)], None) for value in ("-5", "nan", "soon", "Mon, 01 Jan 2001 00:00:00 GMT")),
        ([("RateLimit", '"api";r=0;t=5'), ("RateLimit", '"pages";r=0;t=9')], 9),
        ([("RateLimit", "limit=100, remaining=0, reset=50")], 50),
        ([("RateLimit", '"api";r=0')], None),
        ([("RateLimit", "nonsense" * 1000)], None),
    ],
)
def test_requested_wait_in_seconds(pairs, seconds):
    assert fetch_http._retry_after(fields(*pairs)) == seconds


def test_refusal_says_until_when_server_asks_to_wait(client, monkeypatch):
    monkeypatch.setattr(fetch_http.time, "sleep", lambda seconds: None)
    answer = b'HTTP/1.1 429 Too Many\r\nContent-Length: 0\r\nRateLimit: "api";r=0;t=200\r\n\r\n'
    with speaking(answer) as url, pytest.raises(Refusal) as caught:
        fetch_http.attempts(lambda: resolved(url, client))
    words = r"answered 429 Too Many, it asks to wait 3 min 20 s, until \d\d:\d\d:\d\d UTC, 4 times: run again then$"
    assert re.search(words, str(caught.value))


def test_user_and_password_of_proxy_are_used(client, monkeypatch):
    seen = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

        def do_GET(self):
            seen.append(self.headers["Proxy-Authorization"])
            self.send_response(407 if seen[-1] is None else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_CONNECT = do_GET

    with serving(Proxy) as port:
        for scheme in ("http", "https"):
            monkeypatch.setenv(scheme + "_proxy", "http://us%%40er:pass@127.0.0.1:%d" % port)
            with pytest.raises((Refusal, Transient), match="404"):
                resolved(scheme + "://models.invalid/m.gguf", client)
            assert seen.pop() == "Basic dXNAZXI6cGFzcw=="
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:%d" % port)
        with pytest.raises(Refusal, match="407 .*: the proxy needs user and password"):
            resolved("http://other.invalid/m.gguf", client)
    for wrong in ("socks5://user:hunter2@127.0.0.1:1", "http://user:hunter2@127.0.0.1:port", "http://"):
        monkeypatch.setenv("http_proxy", wrong)
        with pytest.raises(
            Refusal, match="^http_proxy: .*given, http://HOST:PORT is needed: correct the environment$"
        ) as caught:
            resolved("http://third.invalid/m.gguf", client)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "again"),
    [(400, False), (401, False), (403, False), (404, False), (408, True), (416, False), (425, True), (429, True)]
    + [(499, False), (501, False), (505, False), (500, True), (503, True), (599, True)],
)
def test_which_failures_later_attempt_may_not_meet(status, again):
    headers = email.message.Message()
    headers["Retry-After"] = "7"
    response = types.SimpleNamespace(status=status, reason="x" * 61, headers=headers)
    failure = fetch_http.status_failure("https://u:p@h/m?token=s", response, "do this")
    begin = "https://h/m: answered %d %s" % (status, "x" * 57)
    assert isinstance(failure, Transient if again else Refusal) and str(failure).startswith(begin)
    assert str(failure).endswith("do this") is not again
    with_code = fetch_http.status_failure("https://h/m", response)
    step = {401: "see model_token_file", 403: "see model_token_file"}.get(status, "check the address")
    assert again or str(with_code).endswith(step)
    assert (", it asks to wait 7 s, until " in str(failure)) is again
    assert getattr(failure, "wait", None) == (7.0 if again else None)


@pytest.mark.parametrize(
    ("setting", "via"),
    [
        ("http://proxy.example", ("proxy.example", 3128, {})),
        ("proxy.example:8080", ("proxy.example", 8080, {})),
        ("http://u:@proxy.example:1", ("proxy.example", 1, {"Proxy-Authorization": "Basic dTo="})),
        ("http://u@proxy.example", ("proxy.example", 3128, {"Proxy-Authorization": "Basic dTo="})),
    ],
)
def test_proxy_as_environment_names_it(setting, via):
    assert fetch_http._proxy("http", setting) == via


@pytest.mark.parametrize(
    ("error", "kind", "end"),
    [
        (OSError(111, "Connection refused"), Transient, ": Connection refused"),
        (http.client.BadStatusLine("what"), Transient, ": what"),
        (OSError(), Transient, ": OSError"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong"), Transient, "wrong"),
        (ssl.CertificateError("of another host"), Refusal, "or set SSL_CERT_FILE"),
    ],
)
def test_error_of_network_is_one_sentence(error, kind, end):
    found = fetch_http.network_failure("https://h/m", error)
    assert found.__class__ is kind and str(found).startswith("https://h/m: ") and str(found).endswith(end)


@pytest.mark.parametrize("tries", [1, 2, 4])
def test_as_many_attempts_as_are_allowed(monkeypatch, tries):
    waits, asked = [], []
    monkeypatch.setattr(fetch_http.time, "sleep", waits.append)

    def fail():
        asked.append(1)
        raise Transient("down")

    with pytest.raises(Refusal, match="^down, %d times: check the network and run again$" % tries):
        attempts(fail, tries)
    assert (len(asked), waits) == (tries, [0.5, 1.0, 2.0][: tries - 1])
    assert attempts(lambda: "there", tries) == "there"
