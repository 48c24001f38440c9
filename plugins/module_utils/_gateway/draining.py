# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Endpoints that get no new requests from the gateway, and what its engine says of them. Private to the collection."""

from __future__ import annotations

import http.client
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
# Its node, or one that it needs, is held: for new requests it is down, for hours maybe.
MAINTENANCE = "maintenance"
# Seconds in which an engine answers that runs; while it restarts its socket holds who asks.
PATIENCE = 3.0
POLL = 0.1

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

    @property
    def label(self) -> str:
        return label(self.endpoint)


def label(endpoint: Endpoint) -> str:
    return "%s on %s" % endpoint


def entries_of(text: str | None) -> list[Entry]:
    """What a file says; what nobody can read says nothing, and is written anew."""
    try:
        told = json.loads(text or "")["endpoints"]
        return [
            Entry(
                str(one["service"]),
                str(one["node"]),
                float(one["since"]),
                str(one["reason"]),
                str(one.get("held", "")),
            )
            for one in told
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def told_of(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """As the file and the module tell them."""
    return [
        {key: value for key, value in entry._asdict().items() if key != "held" or value} for entry in sorted(entries)
    ]


def text_of(entries: Iterable[Entry]) -> str:
    """The file."""
    return json.dumps({"endpoints": told_of(entries)}, indent=2, sort_keys=True) + "\n"


def drained(entries: Sequence[Entry], endpoints: Iterable[Endpoint], reason: str, held: str, now: float) -> list[Entry]:
    """With these endpoints among them. One that is there stays as it is, and under maintenance through a change."""
    known = {entry.endpoint: entry for entry in entries}
    for endpoint in endpoints:
        before = known.get(endpoint)
        if before is None or reason == MAINTENANCE and (before.reason, before.held) != (reason, held):
            known[endpoint] = Entry(endpoint[0], endpoint[1], before.since if before else now, reason, held)
    return sorted(known.values())


def readied(entries: Iterable[Entry], endpoints: Iterable[Endpoint] | None, held: Iterable[str] = ()) -> list[Entry]:
    """Without these endpoints, None for all. What waits for the return of a node of `held` stays."""
    named, still = None if endpoints is None else set(endpoints), set(held)
    return sorted(
        entry
        for entry in entries
        if named is not None and entry.endpoint not in named or entry.reason == MAINTENANCE and entry.held in still
    )


class _Connection(http.client.HTTPConnection):
    """HTTP over the engine's socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def engine_status(path: str = paths.GATEWAY_SOCKET, timeout: float = PATIENCE) -> dict[str, Any]:
    """What the engine says of its endpoints. Errors: OSError, ValueError, http.client.HTTPException."""
    connection = _Connection(path, timeout)
    try:
        connection.request("GET", "/status.json")
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise ValueError("it answers %d" % answer.status)
        told: dict[str, Any] = json.loads(text.decode())
        if not isinstance(told.get("services"), dict):
            raise ValueError("it names no services")
        return told
    finally:
        connection.close()


def unsettled(status: Status, endpoints: Iterable[Endpoint], draining: bool) -> list[str]:
    """Why endpoints are not yet as wanted, one sentence for each. An endpoint that the engine does not know gets no
    requests, and one of a stopped service gets none either."""
    said = {
        (service, one["node"]): one for service, told in status["services"].items() for one in told.get("endpoints", ())
    }
    reasons = []
    for endpoint in endpoints:
        one = said.get(endpoint)
        if one is None or one["state"] == "stopped" and not one["in_flight"]:
            continue
        if not draining and one["state"] != "ready" or draining and one["state"] not in ("draining", "stopped"):
            reasons.append(f"{label(endpoint)} is still {one['state']}")
        elif draining and one["in_flight"]:
            reasons.append("%s has %d running" % (label(endpoint), one["in_flight"]))
    return reasons


class Outcome(NamedTuple):
    """What the engine said last. reason: why it said nothing; waiting: as unsettled() returns it."""

    waiting: list[str]
    reason: str
    seconds: float


def wait(
    endpoints: Sequence[Endpoint],
    draining: bool,
    timeout: float,
    ask: Callable[[], Status] = engine_status,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Waits until the engine has these endpoints as wanted, timeout seconds at most; for one that does not answer
    PATIENCE seconds at most."""
    began = clock()
    silent: float | None = None
    while True:
        try:
            waiting, reason = unsettled(ask(), endpoints, draining), ""
            silent = None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException) as error:
            waiting, reason = [], str(error) or type(error).__name__
            silent = clock() if silent is None else silent
        now = clock()
        over = now - began >= timeout or silent is not None and now - silent >= PATIENCE
        if over or not waiting and not reason:
            return Outcome(waiting, reason, round(now - began, 1))
        sleep(POLL)


class Draining:
    """The file of a gateway's host."""

    def __init__(self, path: str = paths.GATEWAY_DRAINING, configuration: str = paths.GATEWAY_CONFIG) -> None:
        self.path = path
        self.configuration = configuration

    @property
    def deployed(self) -> bool:
        """Whether there is a gateway that could send anything."""
        return os.path.exists(self.configuration)

    def text(self) -> str:
        return _files.text_of(self.path) or ""

    def write(self, entries: Iterable[Entry]) -> None:
        """Errors: Refusal, OSError."""
        _files.write_atomically(self.path, text_of(entries).encode(), 0o644)


def apply(
    parameters: Mapping[str, Any],
    now: float,
    check: bool = False,
    here: Draining | None = None,
    ask: Callable[[], Status] = engine_status,
) -> dict[str, Any]:
    """What module gateway_endpoints does and tells, see there. Errors: Refusal, OSError."""
    here = here or Draining()
    drains, held, named = parameters["state"] == "draining", parameters["held"], parameters["endpoints"]
    endpoints = None if named is None else [(one["service"], one["node"]) for one in named]
    before_text = here.text()
    before = entries_of(before_text)
    if drains:
        after = drained(before, endpoints or (), parameters["reason"], held[0] if held else "", now)
    else:
        after = readied(before, endpoints, held)
    # An engine may be there before, and after, what a file says: without one nobody reads it.
    changed = after != before and here.deployed
    if changed and not check:
        here.write(after)
    result: dict[str, Any] = {"changed": changed, "waiting": [], "reason": "", "seconds": 0.0}
    result["endpoints"] = told_of(after if changed else before)
    if changed:
        result["diff"] = {
            "before_header": here.path,
            "after_header": here.path,
            "before": before_text,
            "after": text_of(after),
        }
    gone = [entry.endpoint for entry in before if entry not in after]
    kept = {entry.endpoint for entry in after}
    asked = list(endpoints or ()) if drains else [one for one in endpoints or gone if one not in kept]
    if asked and here.deployed and not check:
        waiting, reason, seconds = wait(asked, drains, parameters["timeout"], ask)
        result.update(waiting=waiting, reason=reason, seconds=seconds)
    return result
