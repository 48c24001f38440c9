# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server of models against real connections on the loopback interface."""

import contextlib
import hashlib
import http.client
import os
import socket
import threading
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch import share
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.fetch import acquire
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.request import Request
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._fetch.share import (
    Server,
    byte_range,
    is_running,
    names,
    start,
    stop,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.strangers import give_away

MODEL = gguf_files.model(12)


@contextlib.contextmanager
def serving(files, peers=("127.0.0.1",), idle=60.0):
    """A server in a thread; yields it, its attribute `ended` says how it ended."""
    server = Server("127.0.0.1", 0, names(files), peers, idle)
    ended = []
    thread = threading.Thread(target=lambda: ended.append(server.serve()))
    thread.start()
    try:
        yield server
    finally:
        stop(server.port)
        thread.join()
        server.ended = ended[0]


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(MODEL)
    return path


@pytest.fixture
def server(model):
    with serving([str(model)]) as server:
        yield server


@pytest.fixture
def ask(server):
    """ask(path, headers) -> (status, headers, body), all over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)

    def ask(path="/m.gguf", method="GET", **headers):
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, response.headers, response.read()

    ask.connection = connection
    yield ask
    connection.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    ("header", "answer"),
    [
        (None, None),
        ("bytes=0-0", (0, 1)),
        ("bytes=10-", (10, 100)),
        ("bytes=-10", (90, 100)),
        ("bytes=-200", (0, 100)),
        ("bytes=90-500", (90, 100)),
        ("bytes=20-10", None),
        ("bytes=-", None),
        ("bytes=0-1,5-6", None),
        ("lines=0-1", None),
        ("bytes=100-", ValueError),
        ("bytes=100-200", ValueError),
        ("bytes=-0", ValueError),
    ],
)
def test_byte_range(header, answer):
    if answer is ValueError:
        with pytest.raises(ValueError):
            byte_range(header, 100)
    else:
        assert byte_range(header, 100) == answer


def test_nothing_is_there_of_an_empty_file():
    with pytest.raises(ValueError):
        byte_range("bytes=0-0", 0)


def test_the_whole_file_and_its_ranges_over_one_connection(ask):
    status, headers, body = ask()
    assert (status, body == MODEL, headers["Accept-Ranges"]) == (200, True, "bytes")
    here = ask.connection.sock.getsockname()
    status, headers, body = ask(Range="bytes=1000-1999")
    assert (status, body, headers["Content-Range"]) == (206, MODEL[1000:2000], "bytes 1000-1999/%d" % len(MODEL))
    status, headers, body = ask(method="HEAD")
    assert (status, headers["Content-Length"], body) == (200, str(len(MODEL)), b"")
    assert ask.connection.sock.getsockname() == here


def test_a_range_behind_the_end_is_416(ask):
    status, headers, body = ask(Range="bytes=%d-" % len(MODEL))
    assert (status, headers["Content-Range"], body) == (416, "bytes */%d" % len(MODEL), b"")
    assert ask()[0] == 200


def test_a_replaced_file_is_not_spliced(ask, model):
    etag = ask(Range="bytes=0-9")[1]["ETag"]
    assert ask(Range="bytes=0-9", If_Range=etag)[0] == 206
    other = model.parent / "other"
    other.write_bytes(MODEL[::-1])
    os.rename(str(other), str(model))
    status, headers, body = ask(Range="bytes=0-9", If_Range=etag)
    assert (status, body == MODEL[::-1], headers["ETag"] != etag) == (200, True, True)


@pytest.mark.parametrize(
    "path", ["/", "/n.gguf", "/../m.gguf", "/%2e%2e/m.gguf", "/m.gguf/", "/m.gguf.partial", "/etc/passwd"]
)
def test_a_path_that_is_not_shared_is_404(ask, model, path):
    (model.parent / "m.gguf.partial").write_bytes(b"")
    assert (ask(path)[0], ask(path, method="HEAD")[0]) == (404, 404)


def test_a_file_that_is_gone_is_404(ask, model):
    model.unlink()
    assert ask()[0] == 404


def test_other_methods_are_refused(ask):
    assert ask(method="PUT")[0] == 501


def test_strangers_get_no_thread_and_are_not_read_from(model, monkeypatch):
    handled = []
    monkeypatch.setattr(Server, "process_request_thread", lambda self, *asked: handled.append(asked))
    with serving([str(model)], peers=["127.0.0.2"]) as server:
        strangers = [
            socket.create_connection(("127.0.0.1", server.port), 10, source_address=("127.0.0.1", 0))
            for _number in range(20)
        ]
        assert [stranger.recv(1) for stranger in strangers] == [b""] * 20  # closed, although nothing was sent
    assert handled == []
    for stranger in strangers:
        stranger.close()


def test_a_peer_has_so_many_connections_and_no_more(server):
    peers = [socket.create_connection(("127.0.0.1", server.port), 10) for _number in range(share._MOST + 1)]
    assert peers[-1].recv(1) == b""
    peers.pop(0).close()
    while server._connected["127.0.0.1"] == share._MOST:
        time.sleep(0.01)
    peers[-1] = socket.create_connection(("127.0.0.1", server.port), 10)
    peers[-1].sendall(b"GET /m.gguf HTTP/1.1\r\nRange: bytes=0-0\r\n\r\n")
    assert peers[-1].recv(12) == b"HTTP/1.1 206"
    for peer in peers:
        peer.close()


def test_a_peer_is_answered(model):
    with serving([str(model)], peers=["127.0.0.2"]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10, source_address=("127.0.0.2", 0))
        connection.request("GET", "/m.gguf", headers={"Range": "bytes=0-9"})
        response = connection.getresponse()
        assert (response.status, response.read()) == (206, MODEL[:10])
        connection.close()


def test_it_ends_by_itself_when_nobody_asks(model, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(share.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(share, "_TICK", 0.01)
    server = Server("127.0.0.1", 0, names([str(model)]), ["127.0.0.1"], 600.0)
    ended = []
    thread = threading.Thread(target=lambda: ended.append(server.serve()))
    thread.start()
    now[0] += 600
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", "/m.gguf")
    assert connection.getresponse().read() == MODEL
    connection.close()
    with server.request_running():
        now[0] += 601
        thread.join(0.2)
        assert thread.is_alive()
    now[0] += 601
    thread.join()
    assert ended == ["idle"]
    assert not is_running(server.port)


def test_a_server_of_its_own_process_lends_a_model_and_ends_when_told(model, tmp_path):
    port = free_port()
    original = acquire(
        Request(str(tmp_path / "m.gguf"), urls=["file://%s" % model], sha256=[hashlib.sha256(MODEL).hexdigest()])
    )
    child = start("127.0.0.1", port, [str(model)], ["127.0.0.1"])
    assert child != os.getpid()
    assert is_running(port)
    (tmp_path / "second").mkdir()
    copy_of = {"url": share.base_url("127.0.0.1", port), "files": original["files"], "commit": None}
    done = acquire(Request(str(tmp_path / "second/m.gguf"), urls=["http://127.0.0.1:9/m.gguf"], copy_of=copy_of))
    assert (done["transferred"], done["verified"]) == (len(MODEL), "sha256")
    assert (tmp_path / "second/m.gguf").read_bytes() == MODEL
    opened = {int(fd): os.readlink("/proc/%d/fd/%s" % (child, fd)) for fd in os.listdir("/proc/%d/fd" % child)}
    assert [opened.pop(fd) for fd in (0, 1, 2)] == ["/dev/null"] * 3
    assert {name.partition(":")[0] for name in opened.values()} - {str(model)} == {"socket"}
    assert stop(port) is True
    assert os.waitpid(child, 0)[1] == 0
    assert (is_running(port), stop(port)) == (False, False)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)


def test_one_that_an_interrupted_run_has_left_is_replaced(model):
    port = free_port()
    first = start("127.0.0.1", port, [str(model)], ["127.0.0.1"])
    second = start("127.0.0.1", port, [str(model)], ["127.0.0.1"])
    assert os.waitpid(first, 0) == (first, 0)
    stop(port)
    assert os.waitpid(second, 0) == (second, 0)


def test_a_port_in_use_and_an_address_that_is_elsewhere_are_refused(model):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        port = other.getsockname()[1]
        with pytest.raises(Refusal, match=r"^port: %d of 127\.0\.0\.1 is in use, a free port is needed$" % port):
            start("127.0.0.1", port, [str(model)], ["127.0.0.1"])
    with pytest.raises(Refusal, match=r"^address: 192\.0\.2\.1 port \d+: .*, an address of this node is needed$"):
        start("192.0.2.1", free_port(), [str(model)], ["127.0.0.1"])


def test_a_port_that_another_address_shares_is_refused(server, model):
    with pytest.raises(
        Refusal, match=r"^port: %d is shared by another server on this node, a free port is needed$" % server.port
    ):
        Server("127.0.0.2", server.port, names([str(model)]), ["127.0.0.1"])


def test_another_user_cannot_end_it(server, monkeypatch):
    monkeypatch.setattr(share, "_user", lambda connection: os.geteuid() + 1)
    with pytest.raises(
        Refusal,
        match="^port: the name of %d is held by a process of user id %d, one of the same"
        % (server.port, os.geteuid() + 1),
    ):
        stop(server.port)
    assert is_running(server.port)
    monkeypatch.undo()


def test_files_that_cannot_be_served_are_refused(model, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/m.gguf").write_bytes(MODEL)
    with pytest.raises(Refusal, match="have one name, names of their own are needed"):
        names([str(model), str(tmp_path / "other/m.gguf")])
    with pytest.raises(Refusal, match="is no file of this node"):
        names([str(tmp_path / "absent.gguf")])
    assert names([str(model), str(model)]) == {"m.gguf": str(model)}


@pytest.mark.parametrize(
    "plant", [give_away, lambda path: (path.rename(path.parent / "secret"), path.symlink_to("secret"))]
)
def test_what_others_have_put_in_place_of_a_model_is_not_lent(model, server, ask, plant):
    plant(model)
    assert ask()[0] == 404
    with pytest.raises(Refusal, match="a regular file of root's with one name is needed"):
        names([str(model)])


def test_directory_that_others_exchange_for_a_link_lends_nothing(tmp_path):
    home, mine = tmp_path / "home", tmp_path / "mine"
    (home / "models").mkdir(parents=True)
    mine.mkdir()
    for folder in (home / "models", mine):
        (folder / "m.gguf").write_bytes(MODEL)
    give_away(home)
    with serving([str(home / "models/m.gguf")]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        (home / "models").rename(home / "moved")
        (home / "models").symlink_to(mine)
        connection.request("GET", "/m.gguf")
        assert connection.getresponse().status == 404
        connection.close()
    with pytest.raises(Refusal, match="models: no directory, one is needed"):
        names([str(home / "models/m.gguf")])


def test_a_client_that_stalls_holds_no_server_up(model):
    before, begun = set(threading.enumerate()), time.monotonic()
    with serving([model]) as server, socket.create_connection(("127.0.0.1", server.port)) as stalled:
        stalled.sendall(b"GET")
        there = set(threading.enumerate())
        while len(there - before) < 2:
            assert time.monotonic() - begun < 10
            time.sleep(0.01)
            there = set(threading.enumerate())
        (answering,) = [thread for thread in there - before if thread.daemon]
        stop(server.port)
        assert answering.is_alive(), "nobody waits for it"
    assert server.ended == "stopped"
