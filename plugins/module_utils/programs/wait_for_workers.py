# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""wait_for_workers [--user NAME] [--build bNUMBER] HOST:PORT...: returns when every RPC worker answers the handshake of
this build.

Run before a head starts: a head that finds a worker absent aborts, older builds go on without it. The handshake says
more than an open port: a worker that serves a dead connection, or speaks another build's protocol, is named. Never run
while a head is attached, whose worker would let this wait and lose a place in its queue.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Callable

from .._node.notify import notify, say
from .._text import Refusal

Say = Callable[[str], None]
Sizes = tuple[int, int]
HELLO = 0x0E
# Sizes of the question and of the answer. Protocol 4 (the builds of April 2026) gave both of them transport
# capabilities.
NEW, OLD = (24, 28), (0, 3)
LAST_OLD, FIRST_NEW = 8700, 9000
RULES = ("nft", "list", "table", "inet", "llama_cluster")
# Seconds for a connection, until a wait for the answer is worth a word, for the answer, and between two handshakes. One
# that waits in a worker's queue is answered as soon as the worker is free, while each that gives up would leave a dead
# entry in that queue.
CONNECT, QUIET, PATIENCE, PAUSE = 5, 2, 60, 0.2


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


def handshake(endpoint: str, sizes: Sizes, say: Say, quiet: float = QUIET, patience: float = PATIENCE) -> str:
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
        raise Refusal("the port is closed, see systemctl status 'llama-rpc*' on its node") from None
    except OSError as error:
        raise Refusal("no connection (%s), see whether its node is up" % (error.strerror or error)) from None


def dialects(build: int | None) -> list[Sizes]:
    """The sizes to try: the build's, or both if they are unknown."""
    if build is None or LAST_OLD < build < FIRST_NEW:
        return [NEW, OLD]
    return [NEW] if build >= FIRST_NEW else [OLD]


def ask(endpoint: str, build: int | None, say: Say) -> str:
    """The worker's protocol version. Refusal with the reason of the last dialect tried."""
    for sizes in dialects(build):
        try:
            return handshake(endpoint, sizes, say)
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


def wait_for_rules(
    announce: Say = say,
    sleep: Callable[[float], None] = time.sleep,
    command: Sequence[str] = RULES,
) -> None:
    """Returns when the firewall's table is loaded, without which other users would reach the workers of a head that
    runs."""

    def loaded() -> bool:
        try:
            return not subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except OSError:
            return False

    said = False
    while not loaded():
        if not said:
            announce(
                "waits for the rules of llama-firewall.service: table inet llama_cluster is not loaded, see systemctl "
                "status llama-firewall"
            )
        said = True
        sleep(PAUSE)


def become(user: str) -> None:
    """Goes on as that user, the only one whom the firewall lets through to the workers."""
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def announce(text: str) -> None:
    say(text)
    notify("STATUS=" + text)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="wait_for_workers")
    parser.add_argument("--user")
    parser.add_argument("--build", default="")
    parser.add_argument("endpoints", nargs="+", metavar="HOST:PORT")
    options = parser.parse_args(arguments)
    if options.user:
        wait_for_rules(announce)
        become(options.user)
    number = re.match(r"b?(\d+)", options.build)
    build = int(number.group(1)) if number else None
    versions = wait(options.endpoints, build, announce)
    if len(set(versions.values())) > 1:
        say(
            "the RPC workers are of different llama.cpp builds: %s"
            % ", ".join("%s has protocol %s" % pair for pair in sorted(versions.items()))
        )
    notify("STATUS=")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
