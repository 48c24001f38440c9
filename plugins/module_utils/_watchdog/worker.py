# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When an RPC worker has to be restarted: decided from samples alone, none of which connects to it. Private to the
collection."""

from __future__ import annotations

from typing import Any

from .actions import Repair

# Seconds that a process may be stopped, and that it may wait for a disk or a driver.
STOPPED, BLOCKED = 3, 60
# Seconds that somebody may wait to be served while nobody is.
WAITING = 5
# As for heads.
GAP = 5


class WorkerJudge:
    """One worker."""

    def __init__(self) -> None:
        self._process: tuple[int, int] | None = None
        self._seen_at = 0.0
        self._since: dict[str, float] = {}

    def decide(self, sample: dict[str, Any]) -> list[Repair]:
        """What to do now, a list of at most one Repair.

        sample: {now; process: what identifies the running process, None when it is not to be touched; state: its letter
        in /proc;
        waiting: connections nobody has accepted; serving: connections it holds; head: whether something listens where
        its head does, None when that was not asked}
        """
        now = sample["now"]
        if sample["process"] is None:
            self._process = None
            return []
        if sample["process"] != self._process or now - self._seen_at > GAP:
            self._process = sample["process"]
            self._since = {}
        self._seen_at = now
        waiting, serving = sample["waiting"], sample["serving"]
        due: list[Repair] = []
        for words, fact, holds, most in (
            ("its process has been stopped for %.0f s", True, sample["state"] in ("T", "t"), STOPPED),
            ("its process has waited for a disk or a driver for %.0f s", False, sample["state"] == "D", BLOCKED),
            ("a head has waited for it for %.0f s while it served nobody", False, waiting and not serving, WAITING),
            (
                "its connection is to a head that is gone, and a new one has waited for %.0f s",
                False,
                waiting and serving and sample["head"] is False,
                WAITING,
            ),
        ):
            if not holds:
                self._since.pop(words, None)
                continue
            lasted = now - self._since.setdefault(words, now)
            if lasted >= most:
                due.append(Repair(words % lasted, fact))
        return due[:1]

    def repaired(self) -> None:
        """The process was told to end: what was seen of it is done with."""
        self._since = {}
