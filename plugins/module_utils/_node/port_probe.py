# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probes of TCP ports without a connection. Private to the collection.

An RPC server that serves a head must never see another client, so nothing here connects: one SYN is sent from a raw
socket, and the kernel resets the connection (RST) when it is answered. The server never sees a client. Needs root.
"""

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence

from .._text import Refusal
from .sockets import End, resolve

SYN, RST, ACK = 2, 4, 16
# Ports, sequence number, acknowledgment, length of the header and flags, window, checksum, urgent pointer.
HEADER = struct.Struct("!HHIIBBHHH")
# Attempts: a segment may be lost.
TRIES = 3
OPEN, REFUSED, SILENT = "open", "refused", "silent"


def probe(endpoints: Sequence[str], patience: float = 1.0) -> dict[str, str]:
    """Probes each 'host:port' -> {endpoint: open, refused or silent}.

    patience: seconds for each try. silent: nothing came back, as behind a firewall that drops. Errors: Refusal without
    the right to send such a segment.
    """
    return {endpoint: _most(_one(end, patience) for end in sorted(resolve(endpoint))) for endpoint in endpoints}


def _most(answers: Iterator[str]) -> str:
    """The best result of all addresses of a name."""
    found = list(answers)
    return OPEN if OPEN in found else REFUSED if REFUSED in found else SILENT


def _one(end: End, patience: float) -> str:
    with contextlib.ExitStack() as opened:
        try:
            raw = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP))
        except PermissionError:
            words = "a raw socket is not allowed for user id %d: run with become, where NET_RAW is not taken away"
            raise Refusal(words % os.geteuid()) from None
        # A port of our own, at the address that the way to there begins with: a socket that is bound and never
        # connected takes no answer, so the kernel refuses the connection that was offered.
        way = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        held = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        try:
            way.connect(end)
            held.bind((way.getsockname()[0], 0))
            own = held.getsockname()
            for number in range(TRIES):
                raw.sendto(segment(own, end, number), (end[0], 0))
                answer = _answer(raw, own, end, patience)
                if answer != SILENT:
                    return answer
        except PermissionError:
            return REFUSED  # by the firewall of this machine
        except OSError:
            return SILENT  # no way to there
    return SILENT


def segment(own: End, end: End, sequence: int) -> bytes:
    """A TCP header that asks for a connection (RFC 9293, section 3.1)."""
    parts: list[int] = [own[1], end[1], sequence, 0, 5 << 4, SYN, 1024, 0, 0]
    around = socket.inet_aton(own[0]) + socket.inet_aton(end[0]) + struct.pack("!BBH", 0, socket.IPPROTO_TCP, 20)
    parts[7] = checksum(around + HEADER.pack(*parts))
    return HEADER.pack(*parts)


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071) of an even number of bytes."""
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _answer(raw: socket.socket, own: End, end: End, patience: float) -> str:
    """The other end's answer within patience; a raw socket receives the segments of all sockets."""
    until = time.monotonic() + patience
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([raw], [], [], left)[0]:
            return SILENT
        seen = read_segment(raw.recv(4096), own, end)
        if seen:
            return seen


def read_segment(packet: bytes, own: End, end: End) -> str:
    """An IPv4 packet -> open or refused where it answers what we sent, else nothing."""
    length = (packet[0] & 15) * 4 if packet else 0
    if len(packet) < length + HEADER.size or length < 20:
        return ""
    fields = HEADER.unpack_from(packet, length)
    if (socket.inet_ntoa(packet[12:16]), fields[0]) != end or fields[1] != own[1]:
        return ""
    if fields[5] & RST:
        return REFUSED
    return OPEN if fields[5] & (SYN | ACK) == SYN | ACK else ""
