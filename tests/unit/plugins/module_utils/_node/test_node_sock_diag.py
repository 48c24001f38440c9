# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests and answers of the kernel, byte for byte as in linux/inet_diag.h and linux/tcp.h."""

import struct

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import sock_diag

ERROR, BY_FAMILY = 2, 20


def message(*attributes, kind=BY_FAMILY, state=1, waiting=3, cut=0):
    """An answer about one socket: struct nlmsghdr, struct inet_diag_msg, attributes of (number, bytes)."""
    body = struct.pack("=BBBB", 2, state, 0, 0) + bytes(48) + struct.pack("=5I", 7, waiting, 8, 9, 10)
    for number, data in attributes:
        body += struct.pack("=HH", len(data) + 4, number) + data + bytes(-len(data) % 4)
    length = 16 + len(body) - cut
    return struct.pack("=IHHII", length, kind, 0, 1, 0) + body


def tcp_info(received=5_000_000_000, sent=77, size=160, acked=6_000_000_000):
    idle = bytes(44) + struct.pack("=3I", 5, 6, 7) + bytes(64)
    return (idle + struct.pack("=QQ", acked, received) + bytes(20) + struct.pack("=I", sent) + bytes(64))[:size]


COUNTED = sock_diag.Socket(1, 3, 5_000_000_000, 77, 6_000_000_000, 5, 7)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (message(), sock_diag.Socket(1, 3)),
        (message(state=10, waiting=0), sock_diag.Socket(10, 0)),
        (message((2, tcp_info())), COUNTED),
        (message((2, tcp_info(size=224))), COUNTED),
        # An older kernel's has fewer fields.
        (message((2, tcp_info(size=159))), sock_diag.Socket(1, 3)),
        (message((3, tcp_info())), sock_diag.Socket(1, 3)),
        # Attributes begin at multiples of four.
        *((message((8, bytes(size)), (2, tcp_info())), COUNTED) for size in range(6)),
        # Nothing is read behind the end.
        (message((2, tcp_info()), cut=164), sock_diag.Socket(1, 3)),
        (message(kind=ERROR), None),
        (message(cut=1), None),
    ],
)
def test_answer_of_the_kernel(data, found):
    assert sock_diag.parse(data) == found


def test_an_attribute_without_a_size_ends_the_answer():
    data = message((8, b"")).replace(struct.pack("=HH", 4, 8), struct.pack("=HH", 3, 8))
    assert sock_diag.parse(data) == sock_diag.Socket(1, 3)


class Kernel:
    """A netlink socket."""

    def __init__(self, answer):
        self.answer, self.sent = answer, []

    def __call__(self, *kind):
        self.kind = kind
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.closed = True

    def settimeout(self, seconds):
        self.patience = seconds

    def sendto(self, data, where):
        self.sent.append((data, where))

    def recv(self, most):
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer[:most]


def test_request_to_the_kernel(monkeypatch):
    kernel = Kernel(message((2, tcp_info())))
    monkeypatch.setattr(sock_diag.socket, "socket", kernel)
    assert sock_diag.query(("10.0.0.1", 50052), ("10.0.0.2", 1)) == COUNTED
    assert kernel.kind == (16, 3, 4)  # AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG
    ((data, where),) = kernel.sent
    assert where == (0, 0) and kernel.closed and kernel.patience == 1.0
    assert struct.unpack_from("=IHHII", data) == (72, 20, 1, 1, 0)
    # AF_INET, TCP, INET_DIAG_INFO, sockets in any state
    assert struct.unpack_from("=BBBxI", data, 16) == (2, 6, 2, 0xFFFFFFFF)
    assert struct.unpack_from("!HH4s12s4s12s", data, 24) == (50052, 1, b"\n\0\0\1", bytes(12), b"\n\0\0\2", bytes(12))
    # Any interface, no cookie
    assert (struct.unpack_from("=III", data, 60), len(data)) == ((0, 0xFFFFFFFF, 0xFFFFFFFF), 72)


def test_kernel_without_an_answer(monkeypatch):
    monkeypatch.setattr(sock_diag.socket, "socket", Kernel(OSError("timed out")))
    assert sock_diag.query(("10.0.0.1", 50052)) is None


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (message(state=10), sock_diag.Listener(9, 10)),
        (message(state=1), None),
        (message(kind=ERROR), None),
        (OSError("timed out"), None),
    ],
)
def test_listener(monkeypatch, answer, found):
    kernel = Kernel(answer)
    monkeypatch.setattr(sock_diag.socket, "socket", kernel)
    assert sock_diag.listener(("10.0.0.1", 8000)) == found
    assert struct.unpack_from("!HH4s12s4s", kernel.sent[0][0], 24) == (8000, 0, b"\n\0\0\1", bytes(12), bytes(4))
