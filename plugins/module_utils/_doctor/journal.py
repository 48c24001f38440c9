# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the journal of the managed units once. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .._node.journal import SERVERS, WATCHDOG, ask, entries
from .._node.timeline import KINDS
from .._node.units import installed_name

Line = dict[str, Any]
# The newest lines of systemd, the watchdog and the kernel, and of the servers: a verbose server displaces only its own.
EVENTS_MOST, SERVERS_MOST = 20000, 40000
# Characters of a line, and lines, that are kept.
TEXT_MOST, KEPT_MOST = 400, 1500
FIELDS = "MESSAGE,_SYSTEMD_UNIT,UNIT,_PID,_COMM,_TRANSPORT,_SOURCE_REALTIME_TIMESTAMP,SYSLOG_IDENTIFIER"
OF_WATCHDOG = re.compile(r"^(head|router|worker) ([^:\s]+): ")
KILLED = re.compile(r": Main process exited, code=(killed|dumped|exited), status=\d+/")
# The kernel cuts names after fifteen characters.
KILLED_NAMES = ("llama-server", "ggml-rpc-serve", "rpc-server", "stdbuf")
# Reasons of an end, by lines logged shortly before or with it; the first match counts: (name, source, pattern).
ENDINGS = (
    ("watchdog", "watchdog", re.compile(r": restarting it$")),
    (
        "memory",
        "",
        re.compile(rf"OOM killer|'oom-kill'|[Oo]ut of memory: Killed process \d+ \(({'|'.join(KILLED_NAMES)})"),
    ),
    ("stop", "systemd", re.compile(r": Stopping |^Stopping |State 'stop-\w+' timed out|: Killing process ")),
    (
        "worker",
        "server",
        re.compile(r"Remote RPC server crashed|Failed to connect to \S+:\d+|RPC server .*(gone|lost)"),
    ),
    (
        "card",
        "server",
        re.compile(r"^(?!.*got exception: ).*(CUDA error|cudaMalloc failed|DeviceLost|ErrorOutOfDeviceMemory)"),
    ),
    ("card", "kernel", re.compile(r"^(amdgpu|xe|i915) \S+ .*(ring \S+ timeout|Timedout job|GPU HANG|reset)")),
    ("model", "server", re.compile(r"exiting due to model loading error|corrupted or incomplete|failed to load model")),
    ("port", "server", re.compile(r"couldn't bind|Failed to create server socket")),
    ("arguments", "server", re.compile(r"^error: (invalid argument|unknown argument|while handling)")),
)
# Seconds between the reason and the end, and after it: the kernel's lines come late.
BEFORE, AFTER = 6.0, 2.0
# Seconds that a stop may take: lines logged meanwhile are no failure.
STOP = 30.0


def read(units: Sequence[str], since: float, deadline: float, wanted: Iterable[str]) -> list[Line]:
    """Lines by and about the units, of the kernel and of its audit since a time, in order: {at, unit, by, text}; by:
    systemd, watchdog, kernel, server, or the program's name. Errors: Refusal."""
    options = ["--output=json", "--reverse", "--output-fields=" + FIELDS, "--since=@%d" % since]
    events: list[str] = []
    for unit in units:
        events += ["+"] * bool(events) + ["_PID=1", "UNIT=" + unit]
    events += ["+"] * bool(events) + ["_SYSTEMD_UNIT=" + WATCHDOG, "+", "_TRANSPORT=kernel", "+", "_TRANSPORT=audit"]
    servers = ["_SYSTEMD_UNIT=" + unit for unit in units if unit != WATCHDOG]
    patterns = re.compile("|".join(f"(?:{one})" for one in wanted) or r"(?!)")
    found: list[Line] = []
    for most, wants in ((EVENTS_MOST, events), (SERVERS_MOST, servers)):
        newest_first = (
            parse(ask(options + ["--lines=%d" % most] + wants, seconds=deadline), units) if wants else iter(())
        )
        # For servers and the kernel only lines that match a rule or the reason of an end.
        kept = [
            line
            for line in newest_first
            if line["by"] in ("systemd", "watchdog")
            or patterns.search(line["text"])
            or any(ending.search(line["text"]) for _name, _by, ending in ENDINGS)
        ]
        found += reversed(kept)
    return explained(sorted(found, key=lambda line: line["at"])[-KEPT_MOST:])


def parse(lines: Iterable[str], units: Sequence[str]) -> Iterator[Line]:
    """Lines of `journalctl -o json`; invalid entries are skipped."""
    for entry in entries(lines):
        made = _line(entry, units)
        if made:
            yield made


def _line(entry: Mapping[str, Any], units: Sequence[str]) -> Line | None:
    message, own = entry.get("MESSAGE"), entry.get("_SYSTEMD_UNIT")
    if not isinstance(message, str):
        return None
    try:
        at = int(entry.get("_SOURCE_REALTIME_TIMESTAMP") or entry["__REALTIME_TIMESTAMP"]) / 1e6
    except (KeyError, TypeError, ValueError):
        return None
    unit: str | None = None
    # The sender as journald saw it: a process can forge other fields.
    if entry.get("_TRANSPORT") in ("kernel", "audit"):
        # The kernel's clock stops while a machine sleeps.
        by, at = "kernel", int(entry.get("__REALTIME_TIMESTAMP") or at * 1e6) / 1e6
    elif entry.get("_PID") == "1" and entry.get("UNIT") in units:
        by, unit = "systemd", str(entry["UNIT"])
    elif own == WATCHDOG:
        by = "watchdog"
        found = OF_WATCHDOG.match(message)
        unit = installed_name(KINDS[found.group(1)], found.group(2)) if found else None
        message = message[found.end() :] if found else message
    elif own in units:
        by, unit = ("server" if entry.get("_COMM") in SERVERS else str(entry.get("_COMM"))), str(own)
    else:
        return None
    return {"at": at, "unit": unit, "by": by, "text": message[:TEXT_MOST]}


def explained(lines: list[Line]) -> list[Line]:
    """Adds `because` to ends of processes: a name of ENDINGS, or unknown; and to all lines whether their unit was being
    stopped."""
    stops: dict[str | None, float] = {}
    for place, line in enumerate(lines):
        if line["by"] == "systemd" and line["text"].startswith("Stopping "):
            stops[line["unit"]] = line["at"]
        line["stopping"] = line["at"] - stops.get(line["unit"], 0.0) <= STOP
        if line["by"] != "systemd" or not KILLED.search(line["text"]):
            continue
        near = [
            other
            for other in lines[max(0, place - 400) : place + 60]
            if line["at"] - BEFORE <= other["at"] <= line["at"] + AFTER
            and (other["unit"] == line["unit"] or other["by"] == "kernel")
        ]
        line["because"] = next(
            (
                name
                for name, by, pattern in ENDINGS
                if any((not by or other["by"] == by) and pattern.search(other["text"]) for other in near)
            ),
            "unknown",
        )
    return lines
