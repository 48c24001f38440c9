# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long jobs ran, and how long the jobs that took their cards waited, from SLURM's accounting. Private to the
collection."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .._text import Refusal
from .ask import Ended
from .reasons import PREEMPTED, preempting, why

SINCE = re.compile(r"^([1-9][0-9]{0,4})([mhd])\Z")
SECONDS = {"m": 60, "h": 3600, "d": 86400}
LONGEST = 366 * 86400
MOST_LINES = 500


class Wait(NamedTuple):
    """A job that took the nodes of a preempted one. seconds: between its submission, or the time from which it could
    run, and its start."""

    at: int
    job_id: int
    owner: str
    seconds: int


class Row(NamedTuple):
    """seconds: for which its jobs ran."""

    service: str
    seconds: float
    runs: int
    preemptions: int
    waits: list[Wait]


def seconds_of(text: str) -> int:
    """'7d', '12h', '30m' -> seconds. Errors: Refusal."""
    found = SINCE.match(text)
    seconds = int(found.group(1)) * SECONDS[found.group(2)] if found else 0
    if not 0 < seconds <= LONGEST:
        raise Refusal(f"--since: {text!r} seen, a time up to a year is needed: write 7d, 12h or 30m")
    return seconds


def rows(
    own: Iterable[Ended], others: Iterable[Ended], names: Mapping[str, str], since: float, now: float
) -> list[Row]:
    """A row for each service. own: runs of the user's jobs; others: runs of all jobs on their nodes; names: {name of a
    job: its service}."""
    found = {service: Row(service, 0.0, 0, 0, []) for service in names.values()}
    takers = list(others)
    for run in own:
        if run.name not in names or run.start is None:
            continue
        service = names[run.name]
        row = found[service]
        end = now if run.end is None else run.end
        ran = max(0.0, min(end, now) - max(run.start, since))
        waits, preempted = row.waits, 0
        if run.end is not None and run.end >= since:
            taker = preempting(run, takers)
            preempted = int(why(run, taker).code == PREEMPTED)
            if preempted and taker and taker.start is not None:
                ready = max(taker.eligible or 0, taker.submitted or 0) or taker.start
                owner = taker.qos or taker.partition
                waits = [*waits, Wait(taker.start, taker.job_id, owner, max(0, taker.start - ready))]
        found[service] = Row(service, row.seconds + ran, row.runs + 1, row.preemptions + preempted, waits)
    return [found[service] for service in sorted(found)]


def lines(found: Iterable[Row], since: float) -> list[str]:
    """The report, for a terminal."""
    shown = [f"since {_time(since)}:"]
    for row in found:
        longest = max((wait.seconds for wait in row.waits), default=0)
        shown.append(
            f"{row.service}: ran {row.seconds / 3600:.2f} h ({row.seconds:.0f} s) in {row.runs} runs, "
            f"{row.preemptions} preemptions" + (f", longest wait {longest} s" if row.waits else "")
        )
        shown += [f"  {_time(one.at)} job {one.job_id} of {one.owner} waited {one.seconds} s" for one in row.waits]
    return shown[:MOST_LINES] + ["(more were left out)"] * (len(shown) > MOST_LINES)


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
