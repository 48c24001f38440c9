# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The handshake of llama.cpp's RPC workers, in the dialect of each build. Private to the collection.

It says more than an open port: a worker that serves a dead connection, or speaks another build's protocol, is named.
Never started while a head is attached, whose worker would let it wait and lose a place in its queue.
"""

from __future__ import annotations

import re
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Callable

from .._node.notify import say
from .._text import Refusal

Say = Callable[[str], None]
Sizes = tuple[int, int]
HELLO = 0x0E
# Sizes of the question and of the answer. Protocol 4 (the builds of April 2026) gave both of them transport
# capabilities.
NEW, OLD = (24, 28), (0, 3)
LAST_OLD, FIRST_NEW = 8700, 9000
# Seconds for a connection, until a wait for the answer is worth a word, for the answer, and between two handshakes. One
# that waits in a worker's queue is answered as soon as the worker is free, while each that gives up would leave a dead
# entry in that queue.
CONNECT, QUIET, PATIENCE, PAUSE = 5, 2, 60, 0.2
# Where to look for the reason of a closed port.
UNIT = "systemctl status 'llama-rpc*' on its node"


class OtherBuild(Refusal):
    """It answers, in another protocol."""


def receive(stream: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = stream.recv(count - len(data))
        if not piece:
            raise OtherBuild("it is another llama.cpp build: it ended the connection at the handshake")
        data += piece
    return data


def handshake(
    endpoint: str,
    sizes: Sizes,
    say: Say,
    quiet: float = QUIET,
    patience: float = PATIENCE,
    look_at: str = UNIT,
) -> str:
    """The protocol version 'A.B.C' of the worker at 'host:port'; say(reason) is called when it lets the question wait.
    Refusal otherwise."""
    question, answer = sizes
    host, _colon, port = endpoint.rpartition(":")
    late = "it lets the handshake wait: it serves another head or a dead connection, or it hangs"
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT) as stream:
            stream.sendall(struct.pack("<BQ", HELLO, question) + b"\0" * question)
            stream.settimeout(patience)
            if not select.select([stream], [], [], quiet)[0]:
                say(late)
            try:
                (size,) = struct.unpack("<Q", receive(stream, 8))
                if size != answer:
                    raise OtherBuild(
                        "it is another llama.cpp build: its handshake has %d bytes, %d are needed" % (size, answer)
                    )
                return "%d.%d.%d" % struct.unpack("BBB", receive(stream, answer)[:3])
            except socket.timeout:
                raise Refusal(late) from None
    except ConnectionResetError:
        raise OtherBuild(
            "it is another llama.cpp build, or has just ended: it reset the connection at the handshake"
        ) from None
    except ConnectionRefusedError:
        raise Refusal(f"the port is closed, see {look_at}") from None
    except OSError as error:
        raise Refusal("no connection (%s), see whether its node is up" % (error.strerror or error)) from None


def number_of(release: str) -> int | None:
    """The build's number in the name of a release, None for another name."""
    number = re.match(r"b?(\d{1,9})", release)
    return int(number.group(1)) if number else None


def dialects(build: int | None) -> list[Sizes]:
    """The sizes to try: the build's, or both if they are unknown."""
    if build is None or LAST_OLD < build < FIRST_NEW:
        return [NEW, OLD]
    return [NEW] if build >= FIRST_NEW else [OLD]


def ask(endpoint: str, build: int | None, say: Say, patience: float = PATIENCE, look_at: str = UNIT) -> str:
    """The worker's protocol version. Refusal with the reason of the last dialect tried."""
    for sizes in dialects(build):
        try:
            return handshake(endpoint, sizes, say, patience=patience, look_at=look_at)
        except OtherBuild as error:
            reason = error
    raise reason


def wait(
    endpoints: Sequence[str],
    build: int | None = None,
    announce: Say = say,
    sleep: Callable[[float], None] = time.sleep,
    asking: Callable[[str, int | None, Say], str] = ask,
) -> dict[str, str]:
    """Returns {endpoint: protocol version} when all have answered; announces each reason for which it waits once."""
    versions: dict[str, str] = {}
    said: dict[str, str] = {}
    for endpoint in endpoints:

        def say(reason: str, endpoint: str = endpoint) -> None:
            if said.get(endpoint) != reason:
                said[endpoint] = reason
                announce(f"waits for RPC worker {endpoint}: {reason}")

        while endpoint not in versions:
            try:
                versions[endpoint] = asking(endpoint, build, say)
            except Refusal as error:
                say(str(error))
                sleep(PAUSE)
        if endpoint in said:
            announce(f"RPC worker {endpoint} answers")
    return versions
