# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The timeline of a failure, from the journals of its nodes. Private to the collection."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._node import timeline
from .._node.units import SERVICES, unit_info, unit_kind, unit_name
from .._text import Refusal, duration, printable

KINDS = ("head", "router", "rpc")
# Seconds without an event that end a timeline.
PAUSE = 120.0
FAILURES = ("exited", "failed", "repair", "refused", "firewall")
TABLE = re.compile(r"\s|table |\}|$")
WORDS = {
    "exited": "its process ended: %s",
    "failed": "its run counts as failed: %s",
    "scheduled": "systemd starts it again: %s",
    "started": "it is started",
    "stopped": "it is stopped",
    "repair": "the watchdog restarts it: %s",
    "refused": "the watchdog waits: %s",
    "serves": "it %s",
    "firewall": "firewall: %s",
    "says": "it says: %s",
}


def events_of(unit: str, since: float, node: str) -> list[dict[str, Any]]:
    """The events of a service's head and worker on this node. unit: the name of either, or of the service. Errors:
    Refusal."""
    name = unit if unit.endswith(".service") else unit + ".service"
    kind, service = unit_kind(name)
    wanted = name[: -len(".service")] if kind is None else service
    # On every node one service has the short names.
    short = [unit_name(one, "", primary=True) for one in KINDS]
    units = unit_info(SERVICES)
    there = [one.name for one in units if (one.name in short if wanted is None else one.service == wanted)]
    found = timeline.timeline(there, since)["events"] if there else []
    # Each start logs the firewall's table.
    return [dict(event, node=node) for event in found if event["kind"] != "says" or not TABLE.match(event["text"])]


def timeline_of(unit: str, events: Iterable[Mapping[str, Any]], since: float) -> list[str]:
    """The lines of the last failure's timeline. events: {at, node, unit, kind, text} of all nodes."""
    ordered = sorted(events, key=lambda event: event["at"])
    last: list[Mapping[str, Any]] = []
    for episode in _episodes(ordered):
        # A timeline begins with a failure, not with a start or stop before it.
        starts = [place for place, event in enumerate(episode) if event["kind"] in FAILURES]
        last = episode[starts[0] :] if starts else last
    if not last:
        return [f"{unit}: no failure since {_moment(since)}"]
    began = last[0]["at"]
    lines = [f"{unit}: what happened from {_moment(began)} on, {duration(last[-1]['at'] - began)}:"]
    for event in last:
        words = WORDS[event["kind"]]
        words = words % printable(event["text"]) if "%s" in words else words
        where = f"{event['node']} {(event['unit'] or 'llama-firewall')[:60]}"
        lines.append(f"  {_moment(event['at'])[11:19]} +{event['at'] - began:7.3f} s  {where}: {words}")
    return lines


def _episodes(events: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    found: list[list[Mapping[str, Any]]] = []
    for event in events:
        if not found or event["at"] - found[-1][-1]["at"] > PAUSE:
            found.append([])
        found[-1].append(event)
    return found


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def since_of(text: str, now: float) -> float:
    """'90s', '10m', '6h', '2d' or seconds since 1970 -> seconds since 1970. Errors: Refusal."""
    found = re.match(r"^(\d+(?:\.\d+)?)([smhd]?)\Z", text)
    if not found:
        raise Refusal(f"since: {printable(text, 40)} seen, a time such as 10m, 6h or 2d is needed: correct it")
    number = float(found.group(1))
    # A number without a unit is a time, as in journalctl --since=@N.
    return now - number * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found.group(2)] if found.group(2) else number
