# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a job ended, as a code and a sentence. Private to the collection."""

from __future__ import annotations

import pwd
import signal
from collections.abc import Iterable
from typing import Callable, NamedTuple

from .._text import duration
from .ask import Ended, size
from .hostlist import nodes

PREEMPTED, CANCELLED, WALLTIME, NODE_FAILURE = "preempted", "cancelled", "walltime", "node_failure"
OUT_OF_MEMORY, LOST_WORKER, CRASHED = "out_of_memory", "lost_worker", "crashed"
REPLACED, DRAINED, REQUEUED, UNKNOWN = "replaced", "drained", "requeued", "unknown"
# sysexits.h, EX_TEMPFAIL: a task of the job lost a worker or a node, another start may succeed.
AGAIN = 75
# Seconds before the end of its time at which a job drains, and for that a later end still counts.
EARLY, LATE = 120, 30
# Seconds between the end of a preempted job and the start of the job that took its cards.
TAKEN = 60
# The part of the requested memory from which a SIGKILL is taken for one of the memory limit.
FULL = 0.9
LAST_LINES = 5
# Signals of a crash. No program of a job has such an exit code by itself.
FATAL = frozenset(
    (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGSEGV),
)


class Why(NamedTuple):
    """by: who cancelled the job, if SLURM knows."""

    code: str
    words: str
    by: str = ""


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "user id %d" % uid


def preempting(ended: Ended, others: Iterable[Ended]) -> Ended | None:
    """The job that took the nodes of a preempted or requeued one, by sacct: it was submitted before that one ended, and
    started there right after. None if it is not seen."""
    if ended.end is None or ended.state not in ("PREEMPTED", "REQUEUED"):
        return None
    taken = set(nodes(ended.nodes))
    found = [
        one
        for one in others
        if one.job_id != ended.job_id
        and one.start is not None
        and ended.end - 2 <= one.start <= ended.end + TAKEN
        and (one.submitted or one.start) <= ended.end
        and taken.intersection(nodes(one.nodes))
    ]
    return min(found, key=lambda one: (one.start or 0, one.job_id), default=None)


def why(
    ended: Ended,
    taker: Ended | None = None,
    asked: Why | None = None,
    name: Callable[[int], str] = user_name,
) -> Why:
    """Why a run of a job ended. taker: the job that took its nodes; asked: why the keeper ended it. Every client may
    read the words: no line of a log is in them."""
    if ended.state == "PREEMPTED" or (ended.state == "REQUEUED" and ended.step_code != AGAIN and taker):
        return Why(PREEMPTED, "preempted" + (f" by job {taker.job_id} of {_owner(taker)}" if taker else ""))
    if AGAIN in (ended.step_code, ended.exit_code):
        return Why(LOST_WORKER, "a worker was lost or did not come up")
    if ended.state == "REQUEUED":
        return Why(REQUEUED, "requeued, and SLURM shows no job that took its nodes")
    if ended.state in ("NODE_FAIL", "BOOT_FAIL"):
        return Why(NODE_FAILURE, f"a node failed ({ended.nodes or 'none named'})")
    if ended.state == "OUT_OF_MEMORY" or _killed(ended) and _full(ended):
        return Why(OUT_OF_MEMORY, f"out of memory: {_memory(ended)}")
    if asked:
        return asked
    if ended.state == "FAILED" and not ended.nodes and ended.reason:
        return Why(CRASHED, f"SLURM could not run it ({ended.reason})")
    if ended.state == "CANCELLED":
        by = name(ended.by_uid) if ended.by_uid is not None else ""
        return Why(CANCELLED, "cancelled" + (f" by {by}" if by else ""), by)
    if ended.state in ("TIMEOUT", "DEADLINE") or (ended.state == "COMPLETED" and _at_limit(ended)):
        return Why(WALLTIME, "its time was over" + (f" ({duration(ended.limit)})" if ended.limit else ""))
    if ended.state == "COMPLETED":
        return Why(DRAINED, "ended after a drain")
    return Why(CRASHED, _crash(ended))


def _owner(one: Ended) -> str:
    return one.qos or one.partition or one.user or "another user"


def _killed(ended: Ended) -> bool:
    return signal.SIGKILL in (ended.signal, ended.step_signal, ended.exit_code - 128)


def _full(ended: Ended) -> bool:
    """ReqMem is that of all nodes, MaxRSS that of one task."""
    requested = size(ended.req_mem) / max(1, len(nodes(ended.nodes)))
    return requested > 0 and size(ended.max_rss) >= FULL * requested


def _memory(ended: Ended) -> str:
    count = len(nodes(ended.nodes))
    where = f" on {count} nodes" if count > 1 else ""
    # With control groups MaxRSS is 0.
    used = f"{ended.max_rss} used by a task" if size(ended.max_rss) else "more used"
    return f"{used}, {ended.req_mem or 'an unknown amount'} requested{where}"


def _at_limit(ended: Ended) -> bool:
    if not ended.limit or ended.start is None or ended.end is None:
        return False
    return ended.end >= ended.start + ended.limit - EARLY - LATE


def _crash(ended: Ended) -> str:
    code = ended.exit_code or ended.step_code
    number = ended.signal or max(0, code - 128) or (0 if ended.exit_code else ended.step_signal)
    # sacct has 139 as 11.
    number = number or (code if code in FATAL else 0)
    how = f"signal {number}" if number else f"exit code {code}"
    return f"crashed ({how})"
