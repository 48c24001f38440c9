# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real sockets on the loopback: what a listener sees of a probe, which is nothing."""

import os
import select
import socket
import struct

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import port_probe
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a raw socket needs root")
OWN, END = ("127.0.0.1", 40000), ("127.0.0.1", 50052)


@pytest.fixture(name="listener")
def fixture_listener():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        yield listener


@needs_root
def test_open_port_accepts_no_connection(listener):
    endpoint = "127.0.0.1:%d" % listener.getsockname()[1]
    for _again in range(3):
        assert port_probe.probe([endpoint]) == {endpoint: "open"}
    assert select.select([listener], [], [], 0.2)[0] == [], "nothing waits to be accepted"
    with socket.create_connection(listener.getsockname()) as client, listener.accept()[0] as accepted:
        client.sendall(b"still one client")
        assert accepted.recv(100) == b"still one client", "the first to be accepted is the first to connect"


@needs_root
def test_a_closed_port_refuses(listener):
    port = listener.getsockname()[1]
    listener.close()
    assert port_probe.probe(["127.0.0.1:%d" % port]) == {"127.0.0.1:%d" % port: "refused"}


@needs_root
def test_who_never_answers_is_silent(monkeypatch):
    monkeypatch.setattr(port_probe, "TRIES", 2)
    # Nothing that anybody would answer is sent.
    monkeypatch.setattr(port_probe, "segment", lambda own, end, number: b"")
    assert port_probe.probe(["127.0.0.1:9"], patience=0.05) == {"127.0.0.1:9": "silent"}


def test_without_the_privilege_the_cause_is_named(monkeypatch):
    def refuse(family, kind=0, protocol=0):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(port_probe.socket, "socket", refuse)
    with pytest.raises(Refusal, match=r"a raw socket is not allowed for user id \d+: run with become"):
        port_probe.probe(["127.0.0.1:9"])


def packet(flags, source=END, target=OWN):
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 64, 6, 0, *(socket.inet_aton(one[0]) for one in (source, target))
    )
    return ip + port_probe.HEADER.pack(source[1], target[1], 0, 1, 5 << 4, flags, 1024, 0, 0)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (packet(port_probe.SYN | port_probe.ACK), "open"),
        (packet(port_probe.RST | port_probe.ACK), "refused"),
        (packet(port_probe.ACK), ""),
        (packet(port_probe.SYN | port_probe.ACK, source=("127.0.0.1", 50053)), ""),
        (packet(port_probe.SYN | port_probe.ACK, source=("127.0.0.2", 50052)), ""),
        (packet(port_probe.SYN | port_probe.ACK, target=("127.0.0.1", 40001)), ""),
        (packet(port_probe.SYN | port_probe.ACK)[:30], ""),
        (b"", ""),
        (b"\x41" + bytes(39), ""),
    ],
)
def test_only_an_answer_to_what_was_sent_counts(seen, said):
    assert port_probe.read_segment(seen, OWN, END) == said


def test_the_checksum_is_that_of_rfc_1071():
    assert port_probe.checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2
