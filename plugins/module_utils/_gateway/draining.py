# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Endpoints that get no new requests from the gateway. Private to the collection."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from .. import _files
from .._node import paths

# A playbook is about to restart it: requests wait for it.
CHANGE = "change"
# Its node, or a node that it needs, is held: for new requests it is down, maybe for hours.
MAINTENANCE = "maintenance"
# Seconds for a running engine to respond; while it restarts, its socket holds the connection.
PATIENCE = 3.0
POLL = 0.1
# Bytes of an answer.
MOST = 8 << 20

Endpoint = tuple[str, str]
Status = Mapping[str, Any]


class Entry(NamedTuple):
    """An endpoint that is draining. since: seconds of the epoch; held: the node whose return ends a maintenance."""

    service: str
    node: str
    since: float
    reason: str
    held: str = ""

    @property
    def endpoint(self) -> Endpoint:
        return self.service, self.node


def entries_of(text: str | None) -> list[Entry]:
    """The entries of the file. A malformed file has none and is replaced."""
    try:
        return [
            Entry(one["service"], one["node"], float(one["since"]), one["reason"], one.get("held", ""))
            for one in json.loads(text or "")["endpoints"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def as_dicts(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """The entries as in the file and in the result of the module."""
    return [
        {key: value for key, value in entry._asdict().items() if key != "held" or value} for entry in sorted(entries)
    ]


def text_of(entries: Iterable[Entry]) -> str:
    """The file."""
    return json.dumps({"endpoints": as_dicts(entries)}, indent=2, sort_keys=True) + "\n"


def drained(entries: Sequence[Entry], endpoints: Iterable[Endpoint], reason: str, held: str, now: float) -> list[Entry]:
    """The entries with these endpoints. Known entries stay; a change does not end a maintenance."""
    known = {entry.endpoint: entry for entry in entries}
    for endpoint in endpoints:
        before = known.get(endpoint)
        if before is None or reason == MAINTENANCE and (before.reason, before.held) != (reason, held):
            known[endpoint] = Entry(*endpoint, before.since if before else now, reason, held)
    return sorted(known.values())


def readied(entries: Iterable[Entry], endpoints: Iterable[Endpoint] | None, held: Iterable[str] = ()) -> list[Entry]:
    """The entries without these endpoints, None for all. Endpoints that wait for a node of `held` stay."""
    named, still = None if endpoints is None else set(endpoints), set(held)
    return sorted(
        entry
        for entry in entries
        if named is not None and entry.endpoint not in named or entry.reason == MAINTENANCE and entry.held in still
    )


def ask(page: str, at: str = paths.GATEWAY_SOCKET, seconds: float = PATIENCE) -> bytes:
    """A page of the engine, over its socket. Errors: OSError, ValueError for another status than 200."""
    until, answer = time.monotonic() + seconds, b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        connection.connect(at)
        connection.sendall(f"GET {page} HTTP/1.1\r\nHost: gateway\r\n\r\n".encode())
        while data := connection.recv(1 << 16):
            answer += data
            if len(answer) > MOST or time.monotonic() > until:
                raise ValueError("its answer does not end")
    head, _end, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ValueError("it answers " + head[9:12].decode("latin-1"))
    return body


def engine_status() -> dict[str, Any]:
    """status.json. Errors: OSError, ValueError."""
    status: dict[str, Any] = json.loads(ask("/status.json"))
    return status


def unsettled(status: Status, endpoints: Iterable[Endpoint], draining: bool) -> list[str]:
    """Why endpoints are not yet as wanted, one sentence for each. An endpoint that the engine does not know gets no
    requests, and an endpoint of a stopped service gets none either."""
    seen = {
        (service, one["node"]): one for service, pool in status["services"].items() for one in pool.get("endpoints", ())
    }
    reasons = []
    for endpoint in endpoints:
        one, name = seen.get(endpoint), "%s on %s" % endpoint
        if one is None or one["state"] == "stopped" and not one["in_flight"]:
            continue
        if one["state"] not in (("draining", "stopped") if draining else ("ready",)):
            reasons.append(f"{name} is still {one['state']}")
        elif draining and one["in_flight"]:
            reasons.append(f"{name} has {one['in_flight']} running")
    return reasons


def wait(
    endpoints: Sequence[Endpoint],
    draining: bool,
    timeout: float,
    asked: Callable[[], Status] = engine_status,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Waits until the engine has these endpoints as wanted, at most timeout seconds, or PATIENCE seconds if the engine
    does not respond. -> {waiting: as unsettled(), reason: why the engine did not respond, seconds}"""
    began = responded = clock()
    while True:
        try:
            waiting, reason = unsettled(asked(), endpoints, draining), ""
            responded = clock()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            waiting, reason = [], str(error) or type(error).__name__
        now = clock()
        if now - began >= timeout or now - responded >= PATIENCE or not waiting and not reason:
            return {"waiting": waiting, "reason": reason, "seconds": round(now - began, 1)}
        sleep(POLL)


def apply(
    parameters: Mapping[str, Any],
    now: float,
    check: bool = False,
    path: str = paths.GATEWAY_DRAINING,
    configuration: str = paths.GATEWAY_CONFIG,
    asked: Callable[[], Status] = engine_status,
) -> dict[str, Any]:
    """Result of module gateway_endpoints. configuration: a host without this file has no gateway. Errors: Refusal,
    OSError."""
    deployed = os.path.exists(configuration)
    drains, held, named = parameters["state"] == "draining", parameters["held"], parameters["endpoints"]
    endpoints = None if named is None else [(one["service"], one["node"]) for one in named]
    text = _files.text_of(path) or ""
    before = entries_of(text)
    if drains:
        after = drained(before, endpoints or (), parameters["reason"], held[0] if held else "", now)
    else:
        after = readied(before, endpoints, held)
    # Without a gateway no engine reads the file.
    changed = after != before and deployed
    result: dict[str, Any] = {"changed": changed, "waiting": [], "reason": "", "seconds": 0.0}
    result["endpoints"] = as_dicts(after if changed else before)
    if changed:
        headers = {"before_header": path, "after_header": path}
        result["diff"] = {**headers, "before": text, "after": text_of(after)}
        if not check:
            _files.write_atomically(path, text_of(after).encode(), 0o644)
    gone, kept = [entry.endpoint for entry in before if entry not in after], {entry.endpoint for entry in after}
    awaited = list(endpoints or ()) if drains else [one for one in endpoints or gone if one not in kept]
    if awaited and deployed and not check:
        result.update(wait(awaited, drains, parameters["timeout"], asked))
    return result
