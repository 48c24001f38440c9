# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One TCP socket of this node, asked for by its ends (netlink sock_diag). Private to the collection.

/proc/net/tcp walks the kernel's whole table, milliseconds on a large machine; this finds one socket in microseconds.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

End = tuple[str, int]
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLMSG_ERROR = 20, 1, 2
TCP_INFO = 2  # attribute INET_DIAG_INFO
LISTEN = 10
HEADER = struct.Struct("=IHHII")
# family, protocol, extensions, padding, states; ports; addresses of 16 bytes; interface, and a cookie that matches any.
REQUEST = struct.Struct("=BBBxI2s2s16s16sIII")
# family, state, timer, retransmits; ports, addresses, interface, cookie; expires, rqueue, wqueue, uid, inode
ANSWER = struct.Struct("=BBBB2s2s16s16sIIIIIIII")
# In tcp_info: tcpi_last_data_sent, tcpi_last_data_recv, tcpi_bytes_acked, tcpi_bytes_received, tcpi_data_segs_out; in
# every kernel since 4.6.
LAST_SENT, LAST_RECEIVED, BYTES_ACKED, BYTES_RECEIVED, SEGMENTS_OUT = 44, 52, 120, 128, 156


class Socket(NamedTuple):
    """state: as in TCP_ESTABLISHED (1), TCP_CLOSE_WAIT (8), TCP_LISTEN (10). waiting: connections that a listener has
    not accepted.

    received: bytes so far. sent: segments with data so far. acked: bytes that the other end has confirmed. idle_sent,
    idle_received: milliseconds since data was last sent and received. None if the kernel reports no counters.
    """

    state: int
    waiting: int
    received: int | None = None
    sent: int | None = None
    acked: int | None = None
    idle_sent: int | None = None
    idle_received: int | None = None


class Listener(NamedTuple):
    """user: id of the listening user; inode: identity of the listener."""

    user: int
    inode: int


def query(local: End, remote: End = ("0.0.0.0", 0), patience: float = 1.0) -> Socket | None:
    """The socket between two ends (address, port), or the listener at local; None without one or without an answer."""
    return parse(_ask(local, remote, patience))


def listener(end: End) -> Listener | None:
    """The listener for an end (address, port) of this node; None as for query()."""
    data = _ask(end, ("0.0.0.0", 0), 1.0)
    found = parse(data)
    return Listener(*ANSWER.unpack_from(data, HEADER.size)[14:16]) if found and found.state == LISTEN else None


def _ask(local: End, remote: End, patience: float) -> bytes:
    """The kernel's answer, empty without one."""
    ends = [struct.pack("!H", end[1]) for end in (local, remote)] + [
        socket.inet_aton(end[0]) for end in (local, remote)
    ]
    body = REQUEST.pack(
        socket.AF_INET, socket.IPPROTO_TCP, 1 << (TCP_INFO - 1), 0xFFFFFFFF, *(ends + [0, 0xFFFFFFFF, 0xFFFFFFFF])
    )
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as stream:
            stream.settimeout(patience)
            stream.sendto(HEADER.pack(HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + body, (0, 0))
            return stream.recv(8192)
    except OSError:
        return b""


def parse(data: bytes) -> Socket | None:
    """A netlink answer -> as query()."""
    if len(data) < HEADER.size:
        return None
    length, kind = HEADER.unpack_from(data)[:2]
    if kind == NLMSG_ERROR or length < HEADER.size + ANSWER.size:
        return None
    fields = ANSWER.unpack_from(data, HEADER.size)
    found = Socket(fields[1], fields[12])
    at = HEADER.size + ANSWER.size
    while at + 4 <= length:
        size, name = struct.unpack_from("=HH", data, at)
        if name == TCP_INFO and size >= 4 + SEGMENTS_OUT + 4:
            acked, received = struct.unpack_from("=QQ", data, at + 4 + BYTES_ACKED)
            sent, idle_sent, idle_received = (
                struct.unpack_from("=I", data, at + 4 + place)[0] for place in (SEGMENTS_OUT, LAST_SENT, LAST_RECEIVED)
            )
            found = Socket(found.state, found.waiting, received, sent, acked, idle_sent, idle_received)
        if size < 4:
            break
        at += (size + 3) & ~3
    return found
