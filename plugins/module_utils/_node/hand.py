# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a hand was last on this node: a file of ours that changed, or a start that was not systemd's own restart.
Private to the collection.

Nothing has to be noted for it: the kernel keeps when a file changed last (its ctime, which nobody sets), and systemd
writes each start to the journal. So a run of a playbook that changed nothing leaves no trace here, and an editor does.
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
from .timeline import Event, parse_journal
from .units import parse_show, systemctl_show

# What is asked of the journal: an hour more than is counted, so that a restart is seen with what announced it.
WINDOW = 25 * 3600


class Hand(NamedTuple):
    """Seconds since 1970, and what happened, in words."""

    at: float
    what: str


def last_hand(units: Sequence[str]) -> dict[str, Any]:
    """-> {now, at, what: of the last hand, None where none is known; recovered: {at, unit} of the last start that was
    systemd's own, None without one; restart: {unit: its Restart=}}. Errors: Refusal.

    units: those of services. A journal that does not reach back far enough counts as a hand: what was before is not
    known.
    """
    now = time.time()
    events = parse_journal(read_starts(units, now - WINDOW), units, now - WINDOW) if units else []
    hands = files_changed() + [Hand(one["at"], f"{one['unit']} was started") for one in started(events, False)]
    begins = journal_begins() if units else None
    if begins is not None and begins > now - WINDOW:
        hands.append(Hand(begins, "the journal begins"))
    own = started(events, True)
    last = max(hands) if hands else None
    return {
        "now": now,
        "at": last.at if last else None,
        "what": last.what if last else None,
        "recovered": {"at": own[-1]["at"], "unit": own[-1]["unit"]} if own else None,
        "restart": restarts(units) if units else {},
    }


def started(events: Sequence[Event], by_itself: bool) -> list[Event]:
    """The starts that systemd had scheduled because a process had ended, or all others."""
    found = []
    scheduled: dict[str, bool] = {}
    for event in events:
        if event["kind"] == "scheduled":
            scheduled[event["unit"]] = True
        elif event["kind"] == "started" and scheduled.pop(event["unit"], False) == by_itself:
            found.append(event)
    return found


def read_starts(units: Sequence[str], since: float) -> str:
    """What systemd itself has said of units: what they say may be gigabytes. Errors: Refusal."""
    wanted = ["_PID=1"] + ["UNIT=" + unit for unit in units]
    newest_first = list(ask(["--output=json", "--reverse", "--since=@%d" % since] + wanted))
    return "".join(reversed(newest_first))


def journal_begins() -> float | None:
    """The time of the oldest line, None of an empty journal. Errors: Refusal."""
    for line in ask(["--output=json"]):
        return entry_time(json.loads(line))
    return None


def restarts(units: Sequence[str]) -> dict[str, str]:
    """{unit: when systemd restarts it}. Errors: Refusal."""
    return {one["Id"]: one.get("Restart", "no") for one in parse_show(systemctl_show(units, ("Id", "Restart")))}


def files_changed(root: str = "/") -> list[Hand]:
    """The file or directory of ours that changed last: units, configuration, programs, and which build is current."""
    seen = []
    for path in _ours(root):
        # A file that is being exchanged has another name.
        with contextlib.suppress(FileNotFoundError):
            seen.append(Hand(changed_at(path), path))
    newest = max(seen) if seen else None
    return [Hand(newest.at, f"/{os.path.relpath(newest.what, root)} changed")] if newest else []


def changed_at(path: str) -> float:
    """Of a link its own."""
    return os.lstat(path).st_ctime


def _ours(root: str) -> Iterator[str]:
    def below(path: str) -> str:
        return os.path.join(root, path.lstrip("/"))

    yield from glob.glob(below(paths.UNIT_FILES))
    yield os.path.join(below(paths.BUILDS), "current")
    # A file that was removed changed its directory.
    for folder, _folders, names in os.walk(below(paths.CONFIGURATION)):
        yield folder
        yield from (os.path.join(folder, name) for name in names)
    # What Python makes of programs is nobody's hand.
    for folder, folders, names in os.walk(below(paths.PROGRAMS)):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (os.path.join(folder, name) for name in names)
