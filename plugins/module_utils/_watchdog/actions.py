# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decisions of the watchdog, and their limits. Private to the collection."""

from typing import Union

# Judgements that may be acted on: so many in a window of so many seconds, then one a window until one has passed
# without any.
REPAIRS, WINDOW = 3, 600


class Repair:
    """Restart the unit. reason: in words. fact: certain, so not limited."""

    def __init__(self, reason: str, fact: bool = False) -> None:
        self.reason = reason
        self.fact = fact


class Serves:
    """The head answers for the first time. seconds: since its process started."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Probe:
    """The head is to be asked for one token."""


Action = Union[Serves, Probe, Repair]


class Limit:
    """Keeps a wrong judgement from taking a service down again and again."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._hit = False

    def wait(self, now: float) -> float:
        """Seconds until a judgement may be acted on, 0 for now."""
        self._times = [moment for moment in self._times if now - moment < 2 * WINDOW]
        recent = [moment for moment in self._times if now - moment < WINDOW]
        self._hit = len(recent) >= REPAIRS or (self._hit and bool(self._times))
        if not self._hit or not recent:
            return 0
        return recent[-1] + WINDOW - now

    def acted(self, now: float) -> None:
        self._times.append(now)

    def count(self, now: float) -> int:
        """Repairs in the last window."""
        return sum(1 for moment in self._times if now - moment < WINDOW)
