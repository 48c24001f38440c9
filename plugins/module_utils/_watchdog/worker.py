# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides from samples when an RPC worker is restarted; no sample connects to it. Private to the
collection."""

from __future__ import annotations

from typing import Any

from .actions import Repair

# Seconds that a process may be stopped, and that it may wait for a disk or a driver.
STOPPED, BLOCKED = 3, 60
# Seconds that a client may wait while no other is served.
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
        """The repair that is due, in a list.

        sample: {now; process: identifies the running process, None when it is not to be touched; state: its letter
        in /proc;
        waiting: connections not accepted; serving: connections it holds; head: whether a process listens at its head's
        address, None if unknown}
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
            ("a head has waited for it for %.0f s while it served no other", False, waiting and not serving, WAITING),
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
        """The process was ended: its samples do not count any more."""
        self._since = {}
