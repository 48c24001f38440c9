# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""backoff start UNIT [SECONDS]: restarts at once after a crash, later and later after loads that fail.

systemd 239 knows one RestartSec for both. So the unit's is short, and this program, run before each of its runs, waits
the rest. There is no wait after a run that served; such a run left a file of the unit's name in paths.SERVED (see
watchdog), or lasted that many seconds, by default an hour.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Callable

from .._files import write_atomically
from .._node import paths
from .._node.backoff import delay
from .._node.notify import notify, say
from .._node.units import number, parse_show, systemctl_show
from .._text import Refusal, duration

State = dict[str, Any]
# A run that lasted this long counts as one that served: the watchdog may be off.
LONG = 3600


def read(unit: str, folder: str = paths.BACKOFF) -> State:
    """{failures: runs in a row that never served, started: monotonic time of the last start or None}."""
    try:
        with open(os.path.join(folder, unit)) as stream:
            state = json.load(stream)
        return {"failures": int(state["failures"]), "started": state["started"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {"failures": 0, "started": None}


def write(unit: str, state: State, folder: str = paths.BACKOFF) -> None:
    os.makedirs(folder, mode=0o755, exist_ok=True)
    write_atomically(os.path.join(folder, unit), (json.dumps(state) + "\n").encode("ascii"))


def start(
    unit: str,
    restarts: int,
    long: float = LONG,
    folder: str = paths.BACKOFF,
    served: str = paths.SERVED,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Before a run: counts the one before it, and waits as long as is due. restarts: systemd's count of automatic ones,
    0 after a manual start."""
    state = read(unit, folder)
    mark = os.path.join(served, unit)
    good = os.path.exists(mark) or (state["started"] is not None and clock() - state["started"] >= long)
    # A wait that was cut short was no run.
    failures = 0 if not restarts or good else state["failures"] + (state["started"] is not None)
    if os.path.exists(mark):
        os.unlink(mark)
    write(unit, {"failures": failures, "started": None}, folder)
    seconds = delay(failures)
    if seconds:
        text = "waits %s: %d runs in a row ended before they served" % (duration(seconds), failures)
        say(f"{text}; 'systemctl restart {unit}' starts it now, and the lines above say why they ended")
        notify("STATUS=" + text)
        sleep(seconds)
        notify("STATUS=")
    write(unit, {"failures": failures, "started": clock()}, folder)


def restarts_of(unit: str) -> int:
    """systemd's count; 0 where it cannot be had: better too early than never."""
    try:
        shown = parse_show(systemctl_show([unit], ("Id", "NRestarts")))
    except Refusal:
        return 0
    return number(shown[0], "NRestarts") if shown else 0


def main(arguments: list[str]) -> int | str:
    if len(arguments) not in (2, 3) or arguments[0] != "start":
        return "usage: backoff start UNIT [SECONDS]"
    start(arguments[1], restarts_of(arguments[1]), int(arguments[2]) if arguments[2:] else LONG)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
