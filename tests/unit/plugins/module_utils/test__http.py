# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import contextlib
import http.server
import socket
import ssl
import subprocess
import threading
from urllib.parse import urlsplit

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _http
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._http import (
    Client,
    FetchError,
    Transient,
    attempts,
    make_source,
    public_url,
    read_range,
)
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_hub import FakeHub

DATA = bytes(range(256)) * 40


@pytest.fixture
def fake():
    with FakeHub() as fake:
        yield fake


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


@pytest.mark.parametrize("offset", [0, 1, 4095])
@pytest.mark.parametrize("ranges", [True, False])
def test_ranges_are_the_bytes_asked_for(fake, client, ranges, offset):
    fake.ranges = ranges
    source = resolved(fake.add_plain("a", DATA), client)
    assert (source.ranges, source.size) == (ranges, len(DATA))
    assert read_range(source, client, offset, 1000) == DATA[offset : offset + 1000]
    assert read_range(source, client, len(DATA) - 5, 1000) == DATA[-5:]


def test_one_connection_serves_many_requests(fake, client):
    source = resolved(fake.add_plain("a", DATA), client)
    for offset in range(20):
        read_range(source, client, offset, 10)
    assert fake.servers["hub"].connections == 1


def test_a_connection_the_server_closed_meanwhile_is_opened_again(fake, client):
    source = resolved(fake.add_plain("a", DATA), client)
    for connection in fake.servers["hub"].sockets:
        connection.shutdown(2)
    assert read_range(source, client, 3, 10) == DATA[3:13]


def test_a_file_without_a_name_or_length_is_refused(fake, client):
    fake.ranges, fake.length = False, False
    with pytest.raises(FetchError, match="says neither how long it is nor answers ranges"):
        resolved(fake.add_plain("a", DATA), client)


def test_an_empty_file_is_refused(fake, client):
    with pytest.raises(FetchError, match="empty, a GGUF file is needed"):
        resolved(fake.add_plain("a", b""), client)


def test_compressed_answers_are_refused(fake, client):
    source = resolved(fake.add_plain("a", DATA), client)
    fake.answers = [(206, {"Content-Encoding": "gzip", "Content-Range": "bytes 0-9/%d" % len(DATA)}, b"0123456789")]
    with pytest.raises(FetchError, match="sends Content-Encoding gzip"):
        source.open(client, 0, 10)


def test_redirects_end(fake, client):
    fake.add_repo("o/r", {"a": DATA})
    fake.redirect_to = fake.url + "/o/r/resolve/main/a"
    with pytest.raises(FetchError, match="more than 8 redirects"):
        resolved(fake.url + "/o/r/resolve/main/a", client)


def test_a_redirect_to_another_scheme_is_refused(fake, client):
    fake.add_repo("o/r", {"a": DATA})
    fake.redirect_to = "file:///etc/passwd"
    with pytest.raises(FetchError, match="redirects to file:///etc/passwd, http or https is needed"):
        resolved(fake.url + "/o/r/resolve/main/a", client)


def test_a_shorter_range_than_asked_for_is_continued(fake, client):
    source = resolved(fake.add_plain("a", DATA), client)
    fake.answers = [(206, {"Content-Range": "bytes 0-9/%d" % len(DATA)}, DATA[:10])]
    assert read_range(source, client, 0, 100) == DATA[:100]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_body_that_breaks_off_is_continued(fake, client, monkeypatch, ranges):
    monkeypatch.setattr(_http, "FIRST_WAIT", 0)
    fake.ranges = ranges
    source = resolved(fake.add_plain("a", DATA), client)
    fake.cuts = [100] * (20 if ranges else 3)
    assert read_range(source, client, 0, 5000) == DATA[:5000]


def test_a_body_that_breaks_off_at_once_every_time_is_given_up(fake, client, monkeypatch):
    monkeypatch.setattr(_http, "FIRST_WAIT", 0)
    source = resolved(fake.add_plain("a", DATA), client)
    fake.cuts = [0] * 4
    with pytest.raises(FetchError, match="the connection ended 5,000 bytes early, 4 times: check the network and run again"):
        read_range(source, client, 0, 5000)


def test_a_server_that_says_nothing_is_transient():
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Transient, match="timed out"):
        resolved("http://127.0.0.1:%d/m.gguf" % silent.getsockname()[1], Client(0.2))


def test_attempts_give_up_with_the_last_reason(monkeypatch):
    waits = []
    monkeypatch.setattr(_http.time, "sleep", waits.append)

    def fail():
        raise Transient("http://h/m: down", 7 if len(waits) == 1 else None)

    with pytest.raises(FetchError, match="http://h/m: down, 4 times: check the network and run again"):
        attempts(fail)
    assert waits == [0.5, 7, 2.0]


def test_urls_are_shown_without_secrets():
    assert public_url("https://user:secret@host:8443/a/b?X-Amz-Signature=secret#f") == "https://host:8443/a/b"


def test_a_proxy_of_the_environment_is_used(fake, client, monkeypatch):
    asked = []
    port = urlsplit(fake.url).port

    class Proxy(http.server.BaseHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

        def do_GET(self):
            asked.append(self.path)
            self.send_response(206)
            self.send_header("Content-Range", "bytes 0-0/%d" % len(DATA))
            self.send_header("Content-Length", "1")
            self.end_headers()
            self.wfile.write(DATA[:1])

    with serving(Proxy) as proxy_port:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:%d" % proxy_port)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        resolved(fake.add_plain("a", DATA), client)
        assert asked == []
        resolved("http://models.invalid:%d/m.gguf?x=1" % port, client)
        assert asked == ["http://models.invalid:%d/m.gguf?x=1" % port]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True)
    return folder


class OverTls(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:9/m.gguf")
            self.send_header("Content-Length", "0")
        else:
            self.send_response(206)
            self.send_header("Content-Range", "bytes 0-0/1")
            self.send_header("Content-Length", "1")
        self.end_headers()
        if self.path != "/away":
            self.wfile.write(b"x")


def test_tls_is_verified_and_not_left_again(certificate, client, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(certificate / "cert.pem"), str(certificate / "key.pem"))
    with serving(OverTls, context) as port:
        with pytest.raises(FetchError, match="its certificate does not verify .*: install the CA on this node or set SSL_CERT_FILE"):
            resolved("https://localhost:%d/m.gguf" % port, client)
        monkeypatch.setattr(Client, "_tls", ssl.create_default_context(cafile=str(certificate / "cert.pem")))
        assert resolved("https://localhost:%d/m.gguf" % port, client).size == 1
        with pytest.raises(FetchError, match="redirects from https to http://127.0.0.1:9/m.gguf, which is not encrypted"):
            resolved("https://localhost:%d/away" % port, client)


def test_a_local_file_that_changes_is_noticed(tmp_path, client):
    path = tmp_path / "a"
    path.write_bytes(DATA)
    source = resolved(path.as_uri(), client)
    assert read_range(source, client, 10, 5) == DATA[10:15]
    path.write_bytes(DATA + b"x")
    with pytest.raises(FetchError, match="changed while it was fetched: run again"):
        read_range(source, client, 10, 5)
