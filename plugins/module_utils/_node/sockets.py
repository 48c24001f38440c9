# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Established TCP connections of a process and what went over them, from the kernel. Never opens a connection. Private
to the collection."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import subprocess
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .._text import Refusal
from . import sock_diag

End = tuple[str, int]
Ends = tuple[End, End]  # local, remote
Counters = dict[str, int]
ESTABLISHED = "01"
CLOSED_BY_PEER = "08"
LISTEN = "0A"
ENDPOINT = re.compile(r"^([^\s:]+):(\d{1,5})\Z")
COUNTER = re.compile(r"\b(bytes_acked|bytes_received|lastsnd|lastrcv):(\d+)")


class Entry(NamedTuple):
    """A line of /proc/net/tcp. waiting: connections of a listener that nobody has accepted, or bytes."""

    local: End
    remote: End
    state: str
    waiting: int
    inode: int


class Connection(NamedTuple):
    """Whether there is an established connection to an endpoint. counters: of each one so far, None where they are not
    known. ends: of each one."""

    endpoint: str
    connected: bool
    counters: dict[Ends, Counters] | None
    ends: tuple[Ends, ...] = ()


class Worker(NamedTuple):
    """What went between a head and a worker; None when unknown."""

    endpoint: str
    connected: bool
    bytes_sent: int | None = None
    bytes_received: int | None = None


def parse_proc_net_tcp(text: str) -> dict[int, Ends]:
    """/proc/net/tcp -> {inode: (local, remote)} of established connections, each end as (address, port)."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == ESTABLISHED:
            found[int(fields[9])] = (_end(fields[1]), _end(fields[2]))
    return found


def parse_listeners(text: str) -> dict[int, str]:
    """/proc/net/tcp or tcp6 -> {inode: where it listens, as address:port}."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == LISTEN:
            address, port = fields[1].split(":")
            # The kernel prints an address as host-order integers of four bytes.
            parts = struct.pack(
                "=%dI" % (len(address) // 8), *(int(address[at : at + 8], 16) for at in range(0, len(address), 8))
            )
            family = socket.AF_INET if len(parts) == 4 else socket.AF_INET6
            shown = socket.inet_ntop(family, parts)
            found[int(fields[9])] = ("%s:%d" if len(parts) == 4 else "[%s]:%d") % (shown, int(port, 16))
    return found


def _end(text: str) -> End:
    address, port = text.split(":")
    # The kernel prints the address as a host-order integer.
    return socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)


def entries(text: str, end: End) -> list[Entry]:
    """Lines of /proc/net/tcp with an end (address, port) -> the entries."""
    address, port = end
    wanted = "%08X:%04X" % (*struct.unpack("=I", socket.inet_aton(address)), port)
    found = []
    for line in text.splitlines():
        # Most lines are other people's.
        if wanted in line:
            fields = line.split()
            waiting = int(fields[4].split(":")[1], 16)
            found.append(Entry(_end(fields[1]), _end(fields[2]), fields[3], waiting, int(fields[9])))
    return found


def listener(end: End, proc: str = "/proc") -> sock_diag.Listener | None:
    """Who gets a connection to an end (address, port) of this node; None where nobody does, or nobody can be seen."""
    found = sock_diag.listener(end)
    if found:
        return found
    # A kernel that does not answer says the same as one without a listener. Of two the one at the address gets it.
    with open(os.path.join(proc, "net/tcp"), encoding="ascii") as stream:
        lines = [line.split() for line in stream]
    for address in (end[0], "0.0.0.0"):
        for fields in lines[1:]:
            if fields[3] == LISTEN and _end(fields[1]) == (address, end[1]):
                return sock_diag.Listener(int(fields[7]), int(fields[9]))
    return None


def user_of(pid: int, proc: str = "/proc") -> int | None:
    """The id of the user that a process opens sockets as; None where it has ended."""
    try:
        # A process chooses its name, which may hold what else ends a line.
        path = os.path.join(proc, str(pid), "status")
        with open(path, encoding="utf-8", errors="replace", newline="\n") as stream:
            (users,) = [line.split() for line in stream if line.startswith("Uid:")]
    except (OSError, ValueError):
        return None
    return int(users[4])


def is_of(found: sock_diag.Listener, pid: int, proc: str = "/proc") -> bool:
    """Whether a process listens: by its descriptors, or by its user alone where those may not be looked at."""
    if found.user != user_of(pid, proc):
        return False
    try:
        return found.inode in socket_inodes([pid], proc)
    except Refusal:
        return True


def parse_ss(text: str) -> dict[Ends, Counters]:
    """`ss -tinH state established` -> {(local, remote): {bytes_acked, bytes_received, lastsnd, lastrcv}}; the last two
    in ms, IPv4 only."""
    found: dict[Ends, Counters] = {}
    ends: Ends | None = None
    for line in text.splitlines():
        if not line[:1].isspace():
            fields = line.split()
            local, remote = (_ss_end(field) for field in fields[-2:]) if len(fields) >= 4 else (None, None)
            ends = (local, remote) if local and remote else None
        if ends:
            counters = {name: int(value) for name, value in COUNTER.findall(line)}
            # A counter that is still zero is not printed.
            found.setdefault(ends, {"bytes_acked": 0, "bytes_received": 0, "lastsnd": 0, "lastrcv": 0}).update(counters)
    return found


def _ss_end(text: str) -> End | None:
    match = re.match(r"^(\d+\.\d+\.\d+\.\d+)(?:%[^:]+)?:(\d+)\Z", text)
    return (match.group(1), int(match.group(2))) if match else None


def process_tree(pid: int, proc: str = "/proc") -> set[int]:
    """pid and all its descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                with open(os.path.join(proc, name, "stat"), encoding="utf-8", errors="replace") as stream:
                    # The command name may hold spaces and parentheses: the parent is the second field after the last
                    # one.
                    parent = int(stream.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    tree: set[int] = set()
    todo = [pid]
    while todo:
        current = todo.pop()
        tree.add(current)
        todo.extend(children.get(current, []))
    return tree


def socket_inodes(pids: Iterable[int], proc: str = "/proc") -> set[int]:
    """Inodes of the sockets that these processes hold open. Errors: Refusal when they may not be looked at."""
    inodes = set()
    for pid in pids:
        folder = os.path.join(proc, str(pid), "fd")
        try:
            for name in os.listdir(folder):
                # A server closes descriptors while it is looked at: the others count all the same.
                with contextlib.suppress(FileNotFoundError):
                    match = re.match(r"^socket:\[(\d+)\]\Z", os.readlink(os.path.join(folder, name)))
                    if match:
                        inodes.add(int(match.group(1)))
        except PermissionError:
            raise Refusal("%s is not readable for user id %d: run with become" % (folder, os.geteuid())) from None
        except OSError:
            continue  # the process has gone meanwhile
    return inodes


def resolve(endpoint: str) -> set[End]:
    """'host:port' -> set of (IPv4 address, port), as llama.cpp's RPC client resolves it. Errors: Refusal."""
    match = ENDPOINT.match(endpoint)
    if not match:
        raise Refusal(f"rpc_endpoints: {endpoint!r} is not an endpoint: HOST:PORT is needed")
    try:
        return {(address, int(match.group(2))) for address in socket.gethostbyname_ex(match.group(1))[2]}
    except OSError as error:
        raise Refusal(
            "rpc_endpoints: %s cannot be resolved (%s): give an address or a name this node knows"
            % (endpoint, error.strerror)
        ) from None


def read_counters() -> dict[Ends, Counters] | None:
    """Counters of all established connections of this node as parse_ss gives them; None where ss is missing or too
    old."""
    try:
        output = subprocess.check_output(
            ["ss", "-tinH", "state", "established"], stderr=subprocess.DEVNULL, timeout=10, universal_newlines=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_ss(output)


def connections(endpoints: Sequence[str], pid: int | None = None, proc: str = "/proc") -> list[Connection]:
    """Established connections to each endpoint, and their counters so far.

    endpoints: list of 'host:port'. pid: count only connections of this process and its descendants.
    Returns a list in the order of endpoints.
    Errors: Refusal.
    """
    remotes = [resolve(endpoint) for endpoint in endpoints]
    established = _established(pid, proc)
    counters = read_counters()
    result = []
    for endpoint, remote in zip(endpoints, remotes):
        ends = tuple(sorted(pair for pair in established if pair[1] in remote))
        known = (
            {pair: counters[pair] for pair in ends} if counters is not None and counters.keys() >= set(ends) else None
        )
        result.append(Connection(endpoint, bool(ends), known, ends))
    return result


def strays(endpoints: Sequence[str], pid: int, proc: str = "/proc") -> list[str]:
    """Where a process holds connections at the ports of its workers, and no worker of its is -> ['address:port']: it
    was started with other addresses. Errors: Refusal."""
    remotes = {end for endpoint in endpoints for end in resolve(endpoint)}
    ports = {port for _address, port in remotes}
    return sorted(
        {"%s:%d" % pair[1] for pair in _established(pid, proc) if pair[1][1] in ports and pair[1] not in remotes}
    )


def _established(pid: int | None, proc: str) -> list[Ends]:
    """The established connections of a process and its descendants, without one of everybody. Errors: Refusal."""
    # A process in a network namespace of its own sees its connections under its own /proc/PID/net.
    try:
        with open(os.path.join(proc, str(pid) if pid else "self", "net", "tcp"), encoding="ascii") as stream:
            established = parse_proc_net_tcp(stream.read())
    except OSError:
        return []  # the process has gone
    own = socket_inodes(process_tree(pid, proc), proc) if pid else established.keys()
    return [ends for inode, ends in established.items() if inode in own]


def traffic(before: Iterable[Connection], after: Iterable[Connection]) -> list[Worker]:
    """Bytes between two connections() results. A connection that is new in `after` counts in full."""
    result = []
    for first, last in zip(before, after):
        moved: list[int | None] = [None, None]
        if first.counters is not None and last.counters is not None:
            known = first.counters
            for place, name in enumerate(("bytes_acked", "bytes_received")):
                moved[place] = sum(now[name] - known.get(ends, {}).get(name, 0) for ends, now in last.counters.items())
        result.append(Worker(last.endpoint, last.connected, *moved))
    return result


def awaited(workers: Iterable[Connection]) -> list[str]:
    """Endpoints that were sent something after they last answered: where a head that makes no progress waits."""
    return [
        worker.endpoint
        for worker in workers
        if any(seen["lastsnd"] < seen["lastrcv"] for seen in (worker.counters or {}).values())
    ]
