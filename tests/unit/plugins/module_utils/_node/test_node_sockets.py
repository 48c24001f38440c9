# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import socket
import subprocess
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import sockets
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake

# Captured from a head with two workers on one machine; addresses as on x86_64.
PROC_NET_TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:C76D 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 90470 1 00000000fc3b1100 100 0 0 10 0
   1: 0100007F:9DD6 0100007F:C76C 01 00000000:00000000 00:00000000 00000000   998        0 90512 1 00000000fc3b1100 20 4 30 10 -1
   2: 0100007F:8136 0100007F:C76D 08 00000000:00000001 00:00000000 00000000   998        0 90513 1 00000000fc3b1100 20 4 30 10 -1
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the text is from a little-endian kernel")
def test_established_connections_of_the_kernel():
    assert sockets.parse_proc_net_tcp(PROC_NET_TCP) == {90512: (("127.0.0.1", 40406), ("127.0.0.1", 51052))}


def test_counters_without_an_answer_are_unknown(monkeypatch, workers):
    monkeypatch.setattr(sockets.sock_diag, "query", lambda *_ends: None)
    found = sockets.connections([workers[0].endpoint])
    assert [one._replace(ends=()) for one in found] == [sockets.Connection(workers[0].endpoint, True, None)]
    assert sockets.traffic(found, found) == [sockets.Worker(workers[0].endpoint, True, None, None)]


def test_traffic_per_worker(workers):
    endpoints = [worker.endpoint for worker in workers]
    before = sockets.connections(endpoints)
    workers[1].work(sent=5000, received=70)
    after = sockets.connections(endpoints)
    assert sockets.traffic(before, after) == [
        sockets.Worker(endpoints[0], True, 0, 0),
        sockets.Worker(endpoints[1], True, 5000, 70),
    ]


def test_a_new_connection_counts_in_full(workers):
    workers[0].work(sent=300, received=20)
    after = sockets.connections([workers[0].endpoint])
    before = [after[0]._replace(counters={})]
    traffic = sockets.traffic(before, after)[0]
    # The kernel counts the SYN of a connection as an acknowledged byte.
    assert (traffic.bytes_sent, traffic.bytes_received) == (301, 20)


def test_half_closed_connection_does_not_count(workers):
    workers[0].die()
    found = sockets.connections([worker.endpoint for worker in workers])
    assert [worker.connected for worker in found] == [False, True]


def test_listener_without_connection_does_not_count():
    worker = fake.FakeWorker()
    assert sockets.connections([worker.endpoint])[0].connected is False
    worker.close()


def test_only_connections_of_the_process_count(workers):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    endpoint = workers[0].endpoint
    assert sockets.connections([endpoint], os.getpid())[0].connected is True
    assert sockets.connections([endpoint], other.pid)[0].connected is False
    other.communicate(b"\n")


def test_a_child_counts_as_its_parent():
    worker = fake.FakeWorker()
    host, port = worker.endpoint.split(":")
    # A shell that waits for its child, which holds the connection; its name has what /proc/PID/stat is hard to read
    # with.
    child = (
        "import socket; s = socket.create_connection(('%s', %s)); open('/proc/self/comm', 'w').write('a) b (c'); "
        "print('up', flush=True); input()"
        % (
            host,
            port,
        )
    )
    parent = subprocess.Popen(
        ["/bin/sh", "-c", '"$0" -c "$1"; true', sys.executable, child], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout.readline() == b"up\n"
    assert len(sockets.process_tree(parent.pid)) == 2
    assert sockets.connections([worker.endpoint], parent.pid)[0].connected is True
    parent.communicate(b"\n")
    worker.close()


def test_ended_process_has_no_connections(workers):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert sockets.connections([workers[0].endpoint], gone.pid)[0].connected is False


def test_sockets_of_others_need_root(monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(sockets.os, "listdir", refuse)
    with pytest.raises(sockets.Refusal, match=r"^/proc/7/fd is not readable for user id \d+: run with become$"):
        sockets.socket_inodes([7])


def test_name_is_resolved():
    assert ("127.0.0.1", 50052) in sockets.resolve("localhost:50052")


@pytest.mark.parametrize("endpoint", ["node2", "node2:", ":50052", "node2:port", "node 2:50052", "[::1]:50052"])
def test_text_without_port_is_refused(endpoint):
    with pytest.raises(sockets.Refusal, match="is not an endpoint: HOST:PORT is needed"):
        sockets.resolve(endpoint)


def test_unknown_name_is_refused():
    with pytest.raises(sockets.Refusal, match="rpc_endpoints: unknown.invalid:50052 cannot be resolved"):
        sockets.resolve("unknown.invalid:50052")


def test_head_waits_for_the_worker_asked_last():
    workers = [
        sockets.Connection("answered:1", True, {"pair": {"lastsnd": 7240, "lastrcv": 7196}}),
        sockets.Connection("asked:1", True, {"pair": {"lastsnd": 7176, "lastrcv": 7240}}),
        sockets.Connection("unknown:1", True, None),
    ]
    assert sockets.awaited(workers) == ["asked:1"]


def test_closed_descriptor_hides_no_other(tmp_path, monkeypatch):
    folder = tmp_path / "7/fd"
    folder.mkdir(parents=True)
    (folder / "3").symlink_to("socket:[103]")
    monkeypatch.setattr(sockets.os, "listdir", lambda path: ["2", "3"])
    assert sockets.socket_inodes([7], str(tmp_path)) == {103}


def test_rdma_leaves_nothing_to_count(tmp_path, monkeypatch):
    """b11434 moves its data off TCP once both ends have RDMA, and keeps the connection."""
    remote = next(ends for ends in sockets.parse_proc_net_tcp(PROC_NET_TCP).values())[1]
    inode = next(iter(sockets.parse_proc_net_tcp(PROC_NET_TCP)))
    for name in ("net", "fd"):
        (tmp_path / "7" / name).mkdir(parents=True)
    (tmp_path / "7/net/tcp").write_text(PROC_NET_TCP)
    (tmp_path / "7/fd/3").symlink_to("socket:[%d]" % inode)
    monkeypatch.setattr(sockets, "counters_of", lambda _ends: {"bytes_acked": 1, "bytes_received": 1})

    def seen():
        return sockets.connections(["%s:%d" % remote], 7, str(tmp_path))[0]

    assert seen().connected and list(seen().counters.values()) == [{"bytes_acked": 1, "bytes_received": 1}]
    (tmp_path / "7/fd/4").symlink_to("/dev/infiniband/uverbs0")
    assert seen().connected and seen().counters is None
    assert sockets.traffic([seen()], [seen()])[0].bytes_received is None


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_listener_of_kernel_and_table(monkeypatch, address):
    with socket.create_server((address, 0)) as one:
        end = ("127.0.0.1", one.getsockname()[1])
        found = sockets.listener(end)
        assert found == (os.geteuid(), os.fstat(one.fileno()).st_ino)
        # Without sock_diag.
        monkeypatch.setattr(sockets.sock_diag, "listener", lambda _end: None)
        assert sockets.listener(end) == found
    assert sockets.listener(end) is None


@pytest.mark.skipif(sys.byteorder != "little", reason="the text is from a little-endian kernel")
def test_listener_at_the_address_comes_first(monkeypatch, tmp_path):
    monkeypatch.setattr(sockets.sock_diag, "listener", lambda _end: None)
    (tmp_path / "net").mkdir()
    line = "   0: 00000000:C76D 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 7 1 0 100 0 0 10 0\n"
    first, _newline, rest = PROC_NET_TCP.partition("\n")
    (tmp_path / "net/tcp").write_text(first + "\n" + line + rest)
    assert sockets.listener(("127.0.0.1", 0xC76D), str(tmp_path)) == (0, 90470)
    assert sockets.listener(("10.0.0.1", 0xC76D), str(tmp_path)) == (1001, 7)
    # A connection is no listener.
    assert sockets.listener(("127.0.0.1", 0x9DD6), str(tmp_path)) is None


def test_the_user_of_a_process():
    assert sockets.user_of(os.getpid()) == os.geteuid()
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert sockets.user_of(process.pid) is None


def test_listener_belongs_to_process_or_user(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as one:
        found = sockets.listener(one.getsockname())
        assert sockets.is_of(found, os.getpid())
        assert not sockets.is_of(found._replace(inode=1), os.getpid())
        assert not sockets.is_of(found._replace(user=os.geteuid() + 1), os.getpid())

    def denied(_pids, _proc):
        raise Refusal("not readable")

    # As for a sampler, which may not look into processes.
    monkeypatch.setattr(sockets, "socket_inodes", denied)
    assert sockets.is_of(found, os.getpid())
    assert not sockets.is_of(found._replace(user=os.geteuid() + 1), os.getpid())
