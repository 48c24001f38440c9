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
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .._text import Refusal
from . import sock_diag

End = tuple[str, int]
Ends = tuple[End, End]  # local, remote
Counters = dict[str, int]
ESTABLISHED = "01"
CLOSED_BY_PEER = "08"
LISTEN = "0A"
# Devices by which a process uses RDMA.
VERBS = "/dev/infiniband/uverbs"
ENDPOINT = re.compile(r"^([^\s:]+):(\d{1,5})\Z")


class Entry(NamedTuple):
    """A line of /proc/net/tcp. waiting: connections that a listener has not accepted, or bytes."""

    local: End
    remote: End
    state: str
    waiting: int
    inode: int


class Connection(NamedTuple):
    """Established connections to an endpoint. counters: {ends: counters so far}, None if unknown."""

    endpoint: str
    connected: bool
    counters: dict[Ends, Counters] | None
    ends: tuple[Ends, ...] = ()


class Worker(NamedTuple):
    """Bytes between a head and a worker; None if unknown."""

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
        # Most lines are of other sockets.
        if wanted in line:
            fields = line.split()
            waiting = int(fields[4].split(":")[1], 16)
            found.append(Entry(_end(fields[1]), _end(fields[2]), fields[3], waiting, int(fields[9])))
    return found


def listener(end: End, proc: str = "/proc") -> sock_diag.Listener | None:
    """The listener for an end (address, port) of this node; None without one, or if it cannot be seen."""
    found = sock_diag.listener(end)
    if found:
        return found
    # No answer looks like no listener. A listener at the address comes before one at all addresses.
    with open(os.path.join(proc, "net/tcp"), encoding="ascii") as stream:
        lines = [line.split() for line in stream]
    for address in (end[0], "0.0.0.0"):
        for fields in lines[1:]:
            if fields[3] == LISTEN and _end(fields[1]) == (address, end[1]):
                return sock_diag.Listener(int(fields[7]), int(fields[9]))
    return None


def user_of(pid: int, proc: str = "/proc") -> int | None:
    """The id of the user that a process opens sockets as; None if it has ended."""
    try:
        # A process's name may hold other line ends.
        path = os.path.join(proc, str(pid), "status")
        with open(path, encoding="utf-8", errors="replace", newline="\n") as stream:
            (users,) = [line.split() for line in stream if line.startswith("Uid:")]
    except (OSError, ValueError):
        return None
    return int(users[4])


def is_of(found: sock_diag.Listener, pid: int, proc: str = "/proc") -> bool:
    """Whether a process listens: by its descriptors, or only by its user if those are not readable."""
    if found.user != user_of(pid, proc):
        return False
    try:
        return found.inode in socket_inodes([pid], proc)
    except Refusal:
        return True


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


def _descriptors(pids: Iterable[int], proc: str) -> Iterator[str]:
    """Targets of the descriptors of these processes. Errors: Refusal if they are not readable."""
    for pid in pids:
        folder = os.path.join(proc, str(pid), "fd")
        try:
            for name in os.listdir(folder):
                # Descriptors close meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    yield os.readlink(os.path.join(folder, name))
        except PermissionError:
            raise Refusal("%s is not readable for user id %d: run with become" % (folder, os.geteuid())) from None
        except OSError:
            continue  # the process has gone meanwhile


def socket_inodes(pids: Iterable[int], proc: str = "/proc") -> set[int]:
    """Inodes of the sockets that these processes hold open. Errors: Refusal if they are not readable."""
    found = [re.match(r"^socket:\[(\d+)\]\Z", target) for target in _descriptors(pids, proc)]
    return {int(match.group(1)) for match in found if match}


def _has_rdma(pids: Iterable[int], proc: str) -> bool:
    return any(target.startswith(VERBS) for target in _descriptors(pids, proc))


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


def counters_of(ends: Ends) -> Counters | None:
    """{bytes_acked, bytes_received, lastsnd, lastrcv} of a connection, the last two in ms; None if unknown."""
    seen = sock_diag.query(*ends)
    if seen is None or seen.received is None:
        return None
    values = (seen.acked, seen.received, seen.idle_sent, seen.idle_received)
    return dict(zip(("bytes_acked", "bytes_received", "lastsnd", "lastrcv"), (value or 0 for value in values)))


def connections(endpoints: Sequence[str], pid: int | None = None, proc: str = "/proc") -> list[Connection]:
    """Established connections to each endpoint, and their counters so far.

    endpoints: list of 'host:port'. pid: count only connections of this process and its descendants.
    Returns a list in the order of endpoints. A process with an RDMA device has no counters: its data may leave TCP,
    whose connection stays.
    Errors: Refusal.
    """
    remotes = [resolve(endpoint) for endpoint in endpoints]
    established = _established(pid, proc)
    by_rdma = _has_rdma(process_tree(pid, proc), proc) if pid else False
    result = []
    for endpoint, remote in zip(endpoints, remotes):
        ends = tuple(sorted(pair for pair in established if pair[1] in remote))
        counters = {pair: counters_of(pair) for pair in ends}
        known = {pair: found for pair, found in counters.items() if found is not None}
        counted = len(known) == len(ends) and not by_rdma
        result.append(Connection(endpoint, bool(ends), known if counted else None, ends))
    return result


def strays(endpoints: Sequence[str], pid: int, proc: str = "/proc") -> list[str]:
    """Connections of a process at its workers' ports but other addresses -> ['address:port']: it was started with
    those addresses. Errors: Refusal."""
    remotes = {end for endpoint in endpoints for end in resolve(endpoint)}
    ports = {port for _address, port in remotes}
    return sorted(
        {"%s:%d" % pair[1] for pair in _established(pid, proc) if pair[1][1] in ports and pair[1] not in remotes}
    )


def _established(pid: int | None, proc: str) -> list[Ends]:
    """Established connections of a process and its descendants; without pid, of the node. Errors: Refusal."""
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
    """Endpoints that were sent data after they last answered: a head without progress waits for them."""
    return [
        worker.endpoint
        for worker in workers
        if any(seen["lastsnd"] < seen["lastrcv"] for seen in (worker.counters or {}).values())
    ]
