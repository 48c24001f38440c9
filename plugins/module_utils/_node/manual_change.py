# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last manual change of this node: a managed file that changed, or a start that was not systemd's own restart.
Private to the collection.

Files have a ctime, which cannot be set, and systemd logs each start. A playbook that changes nothing leaves no trace.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from . import paths
from .journal import ask, entry_time
from .timeline import Event, parse_journal, read_journal
from .units import parse_show, systemctl_show

# Seconds of the journal: an hour more than is counted, so that a restart is read with its announcement.
WINDOW = 25 * 3600


class Change(NamedTuple):
    """Seconds since 1970, and a description."""

    at: float
    what: str


def last_manual_change(units: Sequence[str]) -> dict[str, Any]:
    """-> {now, at, what: of the last change, None if none is known; recovered: {at, unit} of the last start that was
    systemd's own, None without one; restart: {unit: its Restart=}}. Errors: Refusal.

    units: units of services. The begin of a short journal counts as a change.
    """
    now = time.time()
    events = starts_of(units, now - WINDOW) if units else []
    changes = files_changed() + [Change(one["at"], f"{one['unit']} was started") for one in started(events, False)]
    begins = journal_begins() if units else None
    if begins is not None and begins > now - WINDOW:
        changes.append(Change(begins, "the journal begins"))
    own = started(events, True)
    last = max(changes) if changes else None
    return {
        "now": now,
        "at": last.at if last else None,
        "what": last.what if last else None,
        "recovered": {"at": own[-1]["at"], "unit": own[-1]["unit"]} if own else None,
        "restart": restarts(units) if units else {},
    }


def started(events: Sequence[Event], by_itself: bool) -> list[Event]:
    """The starts that systemd scheduled after an exit, or all others."""
    found = []
    scheduled: dict[str, bool] = {}
    for event in events:
        if event["kind"] == "scheduled":
            scheduled[event["unit"]] = True
        elif event["kind"] == "started" and scheduled.pop(event["unit"], False) == by_itself:
            found.append(event)
    return found


def starts_of(units: Sequence[str], since: float) -> list[Event]:
    """Events that systemd itself logged: the units' own lines may be gigabytes. Errors: Refusal."""
    wanted = ["_PID=1"] + ["UNIT=" + unit for unit in units]
    return parse_journal(read_journal(wanted, since), units, since)


def journal_begins() -> float | None:
    """The time of the oldest line, None of an empty journal. Errors: Refusal."""
    for line in ask(["--output=json"]):
        return entry_time(json.loads(line))
    return None


def restarts(units: Sequence[str]) -> dict[str, str]:
    """{unit: when systemd restarts it}. Errors: Refusal."""
    return {one["Id"]: one.get("Restart", "no") for one in parse_show(systemctl_show(units, ("Id", "Restart")))}


def files_changed(root: str = "/") -> list[Change]:
    """The managed file or directory that changed last: units, configuration, programs, the link to the build."""
    seen = []
    for path in _managed(root):
        # A file that is being exchanged has another name.
        with contextlib.suppress(FileNotFoundError):
            seen.append(Change(changed_at(path), path))
    newest = max(seen) if seen else None
    return [Change(newest.at, f"/{os.path.relpath(newest.what, root)} changed")] if newest else []


def changed_at(path: str) -> float:
    """When a file, or a link itself, changed."""
    return os.lstat(path).st_ctime


def _managed(root: str) -> Iterator[str]:
    def below(path: str) -> str:
        return os.path.join(root, path.lstrip("/"))

    yield from glob.glob(below(paths.UNIT_FILES))
    yield os.path.join(below(paths.BUILDS), "current")
    # Removing a file changes its directory.
    for folder, _folders, names in os.walk(below(paths.CONFIGURATION)):
        yield folder
        yield from (os.path.join(folder, name) for name in names)
    # Python itself writes compiled programs.
    for folder, folders, names in os.walk(below(paths.PROGRAMS)):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (os.path.join(folder, name) for name in names)
