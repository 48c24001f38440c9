# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes a node out of SLURM for maintenance, and returns it. Private to the collection.

Only a node whose reason has MARK is returned: one that an operator, or SLURM itself, has drained stays so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import Any, Callable, NamedTuple

from .._text import Refusal, printable
from . import ask

REASON = "llama_cluster: maintenance"
MARK = "llama_cluster:"
STATE = re.compile(r"(?:^|\s)State=(\S+)")
# SLURM adds who set it, and when.
WHY = re.compile(r"(?:^|\s)Reason=(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?(?= [A-Za-z]+=|\s*\Z)")
POLL = 1.0
RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED")


class Node(NamedTuple):
    """drained: whether it gets no new job until it is resumed. One that is down may come back by itself."""

    drained: bool
    reason: str

    @property
    def by_us(self) -> bool:
        return self.drained and self.reason.startswith(MARK)


def parse(text: str) -> Node:
    """A line of `scontrol -o show node`."""
    state, why = STATE.search(text), WHY.search(text)
    words = set(re.split(r"[+*~#!%$@^-]+", state.group(1))) if state else set()
    return Node(bool(words & {"DRAIN", "DRAINED", "DRAINING"}), printable(why.group(1)) if why else "")


def look(node: str) -> Node:
    """Errors: Refusal."""
    return parse(ask.run(["scontrol", "-o", "show", "node", node]))


def drain(
    node: str,
    user: str,
    services: Sequence[str],
    seconds: float,
    check: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Lets no new job start there, has the jobs of these services end, and waits for it.

    -> {changed, reason: of the drain, others: a sentence for each job of another user there, left: for each own one
    that has not ended}. Errors: Refusal.
    """
    before = look(node)
    own = [one for one in _running(user) if one.service in services]
    result = {
        "changed": not before.drained or bool(own),
        "reason": before.reason if before.drained else REASON,
        "others": [],
        "left": [],
    }
    if check:
        return result
    if not before.drained:
        ask.run(["scontrol", "update", f"nodename={node}", "state=drain", f"reason={REASON}"])
    for one in own:
        # A name with a line feed could be the row of another user's job, and this is root.
        ask.drain(one.job_id, user)
    end, ids = time.monotonic() + seconds, {one.job_id for one in own}
    while ids and time.monotonic() < end:
        sleep(POLL)
        ids &= {one.job_id for one in _running(user)}
    result["left"] = [f"job {number} of {user} has not ended in {seconds:.0f} s" for number in sorted(ids)]
    result["others"] = _others(node, user)
    return result


def resume(node: str, check: bool = False) -> dict[str, Any]:
    """Returns a node that drain() has drained. -> {changed, reason: why it stays drained, or empty}. Errors:
    Refusal."""
    before = look(node)
    if before.by_us and not check:
        ask.run(["scontrol", "update", f"nodename={node}", "state=resume"])
    return {"changed": before.by_us, "reason": before.reason if before.drained and not before.by_us else ""}


def _running(user: str) -> list[ask.Queued]:
    return [one for one in ask.jobs(user) if one.state in RUNNING]


def _others(node: str, user: str) -> list[str]:
    """Jobs of other users end by themselves: SLURM's drain waits for them too."""
    text = ask.run(["squeue", "-h", "--states=all", f"--nodelist={node}", "-o", "%A %T %u"])
    rows: Iterable[list[str]] = (line.split(" ", 2) for line in text.split("\n"))
    return [
        f"job {row[0]} of {printable(row[2], 60)} runs on {node}"
        for row in rows
        if len(row) == 3 and row[1] in RUNNING and row[2] != user and row[0].isdigit()
    ]


def apply(parameters: dict[str, Any], check: bool) -> dict[str, Any]:
    """Result of module slurm_node. Errors: Refusal."""
    if parameters["state"] == "resumed":
        return resume(parameters["node"], check)
    if not parameters["user"]:
        raise Refusal(f"{parameters['node']}: no user of jobs given, slurm_user is needed: set it in the inventory")
    return drain(parameters["node"], parameters["user"], parameters["services"], parameters["timeout"], check)
