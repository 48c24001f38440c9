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
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import give_away

MODEL = gguf_files.model(12)


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setattr(share.paths, "SHARE_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(share.Server, "timeout", 0.02)


@contextlib.contextmanager
def serving(path, peers=("127.0.0.1",)):
    """-> ask(path, method, headers) -> (status, headers, body), all over one connection; its attribute `server`."""
    server = share.Server("127.0.0.1", 0, share.names([str(path)]), peers, 600.0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    source = (peers[0], 0) if peers else None
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], 10, source_address=source)

    def ask(path="/m.gguf", method="GET", **headers):
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, response.headers, response.read()

    ask.server, ask.thread, ask.connection = server, thread, connection
    try:
        yield ask
    finally:
        connection.close()
        server.idle = -1
        thread.join()


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(MODEL)
    return path


@pytest.fixture
def ask(model):
    with serving(model) as ask:
        yield ask


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_file_and_ranges_over_one_connection(ask):
    status, headers, body = ask()
    assert (status, body == MODEL) == (200, True)
    size = len(MODEL)
    for asked, first, end in (("1000-1999", 1000, 2000), ("%d-%d" % (size - 5, size + 9), size - 5, size)):
        status, headers, body = ask(Range="bytes=" + asked)
        shown = "bytes %d-%d/%d" % (first, end - 1, size)
        assert (status, body, headers["Content-Range"]) == (206, MODEL[first:end], shown)
    for asked in ("%d-%d" % (size, size), "20-10"):
        status, headers, body = ask(Range="bytes=" + asked)
        assert (status, headers["Content-Range"], body) == (416, "bytes */%d" % size, b"")
    assert [ask(Range="bytes=" + asked)[0] for asked in ("-10", "10-", "0-1,5-6")] == [200] * 3
    assert [ask(method=method)[0] for method in ("PUT", "HEAD")] == [501] * 2


def test_replaced_file_is_sent_whole(ask, model):
    etag = ask(Range="bytes=0-9")[1]["ETag"]
    assert ask(Range="bytes=0-9", If_Range=etag)[0] == 206
    other = model.parent / "other"
    other.write_bytes(MODEL[::-1])
    os.rename(str(other), str(model))
    status, headers, body = ask(Range="bytes=0-9", If_Range=etag)
    assert (status, body == MODEL[::-1], headers["ETag"] != etag) == (200, True, True)


@pytest.mark.parametrize("path", ["/", "/n.gguf", "/../m.gguf", "/%2e%2e/m.gguf", "/m.gguf/", "/etc/passwd"])
def test_other_path_is_404(ask, path):
    assert ask(path)[0] == 404


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        give_away,
        lambda path: path.chmod(0o666),
        lambda path: (path.rename(path.parent / "secret"), path.symlink_to("secret")),
        lambda path: path.parent.chmod(0o777),
    ],
)
def test_file_others_may_change_is_not_served(model, ask, spoil):
    spoil(model)
    assert ask()[0] == 404
    with pytest.raises(Refusal):
        share.names([str(model)])


def test_only_peers_are_answered(model):
    with serving(model, peers=["127.0.0.2"]) as ask:
        assert ask(Range="bytes=0-9")[2] == MODEL[:10]
        with socket.create_connection(("127.0.0.1", ask.server.server_address[1]), 10) as other:
            assert other.recv(1) == b""  # closed, although nothing was sent


def test_connections_of_peers_are_limited(model, monkeypatch):
    monkeypatch.setattr(share, "_MOST", 1)
    with serving(model) as ask:
        assert ask()[0] == 200
        with socket.create_connection(("127.0.0.1", ask.server.server_address[1]), 10) as other:
            assert other.recv(1) == b""
        assert ask()[0] == 200
        ask.connection.close()
        deadline = time.monotonic() + 10
        while ask.server.free["127.0.0.1"]._value < 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert ask()[0] == 200


def test_idle_server_ends(model, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(share.time, "monotonic", lambda: now[0])
    with serving(model) as ask:
        for seconds in (599, 599):
            now[0] += seconds
            assert ask(Range="bytes=0-9")[0] == 206
        assert ask.thread.is_alive()
        for _tick in range(2):
            now[0] += 601
            ask.thread.join(5)
        assert not ask.thread.is_alive()


def test_process_shares_model_until_stopped(model, tmp_path):
    port = free_port()
    digest = hashlib.sha256(MODEL).hexdigest()
    original = acquire(Request(str(tmp_path / "m.gguf"), urls=["file://%s" % model], sha256=[digest]))
    child = share.start("127.0.0.1", port, [str(model)], ["127.0.0.1"])
    assert share.is_running(port)
    (tmp_path / "second").mkdir()
    copy_of = {"url": share.base_url("127.0.0.1", port), "files": original["files"], "commit": None}
    done = acquire(Request(str(tmp_path / "second/m.gguf"), urls=["http://127.0.0.1:9/m.gguf"], copy_of=copy_of))
    assert (done["transferred"], done["verified"]) == (len(MODEL), "sha256")
    opened = {int(fd): os.readlink("/proc/%d/fd/%s" % (child, fd)) for fd in os.listdir("/proc/%d/fd" % child)}
    assert [opened.pop(fd) for fd in (0, 1, 2)] == ["/dev/null"] * 3
    assert {name.partition(":")[0] for name in opened.values()} - {str(model)} <= {
        "socket",
        f"{share.paths.SHARE_LOCK}-{port}",
    }
    # A server that an interrupted run has left is replaced.
    second = share.start("127.0.0.1", port, [str(model)], ["127.0.0.1"])
    assert os.waitpid(child, 0)[0] == child
    assert share.stop(port) is True
    assert os.waitpid(second, 0)[0] == second
    assert (share.is_running(port), share.stop(port)) == (False, False)


def test_port_in_use_and_foreign_address_are_refused(model):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        for address, port in (("127.0.0.1", other.getsockname()[1]), ("192.0.2.1", free_port())):
            with pytest.raises(Refusal, match=r"^address: %s port %d: .*: give an address" % (address, port)):
                share.start(address, port, [str(model)], ["127.0.0.1"])
