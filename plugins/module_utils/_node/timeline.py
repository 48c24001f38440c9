# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events of units of this node to the microsecond, from the journal and from systemd. Private to the collection."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .journal import MOST_LETTERS, SERVERS, WATCHDOG, ask, entries, entry_time, matches
from .units import installed_name, number, parse_show, systemctl_show

Event = dict[str, Any]
# Messages of systemd 239 to 257 about a unit.
OF_SYSTEMD = (
    ("exited", re.compile(r": Main process exited, (?P<text>code=.*)$")),
    ("failed", re.compile(r": Failed with result '(?P<text>[\w-]+)'")),
    ("scheduled", re.compile(r": (?P<text>Scheduled restart job, .*)$")),
    ("started", re.compile(r"^(?P<text>Started )")),
    ("stopped", re.compile(r"^(?P<text>Stopped )")),
)
OF_WATCHDOG = (
    ("firewall", re.compile(r"^firewall: (?P<text>.*)$")),
    ("serves", re.compile(r"^(?P<role>head|router) (?P<service>[^:\s]+): (?P<text>serves .*)$")),
    (
        "refused",
        re.compile(r"^(?P<role>head|router|worker) (?P<service>[^:\s]+): (?P<text>.*not repaired again before .*)$"),
    ),
    ("repair", re.compile(r"^(?P<role>head|router|worker) (?P<service>[^:\s]+): (?P<text>.*): restarting it$")),
)
# Events by which the end of a process is noticed.
NOTICES = ("exited", "scheduled", "repair")
KINDS = {"head": "head", "router": "router", "worker": "rpc"}
PROPERTIES = ("Id", "ActiveState", "SubState", "Result", "MainPID", "NRestarts", "ExecMainStartTimestampMonotonic")


def parse_journal(text: str, units: Sequence[str], since: float = 0.0) -> list[Event]:
    """`journalctl -o json` -> events in order: {at (seconds since 1970), unit or None, kind, text}; later than since,
    of these units and the watchdog."""
    events = []
    # JSON has no other end of a line escaped.
    for entry in entries(filter(None, text.split("\n"))):
        at = entry_time(entry)
        message = entry.get("MESSAGE")
        # A message that is not UTF-8 is a list of bytes.
        event = _event(entry, message[:MOST_LETTERS], units) if isinstance(message, str) and at > since else None
        if event:
            events.append(dict(event, at=at))
    return sorted(events, key=lambda event: event["at"])


def _event(entry: Event, message: str, units: Sequence[str]) -> Event | None:
    if entry.get("_SYSTEMD_UNIT") == WATCHDOG:
        for kind, pattern in OF_WATCHDOG:
            found = pattern.match(message)
            if found:
                groups = found.groupdict()
                unit = (
                    installed_name(KINDS[groups.get("role") or "head"], groups["service"])
                    if "service" in groups
                    else None
                )
                return {"unit": unit, "kind": kind, "text": groups["text"]} if unit is None or unit in units else None
        return None
    if entry.get("UNIT") in units and entry.get("_PID") == "1":
        for kind, pattern in OF_SYSTEMD:
            found = pattern.search(message)
            if found:
                return {
                    "unit": entry["UNIT"],
                    "kind": kind,
                    "text": message if kind in ("started", "stopped") else found.group("text"),
                }
        return None
    if entry.get("_SYSTEMD_UNIT") in units and entry.get("_COMM") and entry["_COMM"] not in SERVERS:
        return {"unit": entry["_SYSTEMD_UNIT"], "kind": "says", "text": message}
    return None


def read_journal(wanted: Sequence[str], since: float) -> str:
    """Text of the journal since a time, of the lines that journalctl is to match, the newest if it is too long. Errors:
    Refusal."""
    newest_first = list(ask(["--output=json", "--reverse", "--since=@%d" % since, *wanted]))
    return "".join(reversed(newest_first))


def parse_units(text: str, now: float, monotonic: float) -> dict[str, dict[str, Any]]:
    """`systemctl show` of PROPERTIES -> {unit: {active_state, sub_state, result, main_pid, restarts, started_at}}; the
    last in seconds since 1970.

    systemd prints a process's start in whole seconds, but its monotonic time in microseconds; now and monotonic are
    both clocks at one moment.
    """
    units = {}
    for shown in parse_show(text):
        start = number(shown, "ExecMainStartTimestampMonotonic") / 1e6
        units[shown["Id"]] = {
            "active_state": shown.get("ActiveState"),
            "sub_state": shown.get("SubState"),
            "result": shown.get("Result"),
            "main_pid": number(shown, "MainPID"),
            "restarts": number(shown, "NRestarts"),
            "started_at": round(now - monotonic + start, 6) if start else None,
        }
    return units


def noticed(events: Iterable[Event], fault: Mapping[str, Any], after: float) -> float | None:
    """When a fault was first noticed after a time; None if it was not.

    fault: {kind, says}. How it shows depends on its kind: a killed or hung process (restart) ends, or is repaired; a
    fault that meets a start (start) ends a process that was started after the break, or is named by the line `says`; a
    worker that is away (away) is noticed by its head; a lost rule (firewall) is restored.
    """
    events = [event for event in events if event["at"] > after]
    if fault["kind"] == "firewall":
        wanted = [event for event in events if event["kind"] == "firewall"]
    elif fault.get("says"):
        wanted = [event for event in events if event["kind"] == "says" and fault["says"] in event["text"]]
    elif fault["kind"] == "start":
        starts = [event["at"] for event in events if event["kind"] == "started"]
        wanted = [event for event in events if event["kind"] in NOTICES and starts and event["at"] > starts[0]]
    else:
        wanted = [event for event in events if event["kind"] in NOTICES]
    return wanted[0]["at"] if wanted else None


def timeline(units: Sequence[str], since: float) -> dict[str, Any]:
    """Events of units since a time, and their current state -> {now, events, units}. Errors: Refusal."""
    events = parse_journal(read_journal(matches(units), since), units, since)
    now, monotonic = time.time(), time.clock_gettime(time.CLOCK_MONOTONIC)
    return {"now": now, "events": events, "units": parse_units(systemctl_show(units, PROPERTIES), now, monotonic)}
