# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the watchdog may decide, and how often. Private to the collection."""

# Judgements that may be acted on: so many in a window of so many seconds, then one a window until one has passed without any.
REPAIRS, WINDOW = 3, 600


class Repair(object):
    """The unit is to be restarted. reason: why, in words. fact: whether it is none of judgement, which is not limited."""

    def __init__(self, reason, fact=False):
        self.reason = reason
        self.fact = fact


class Serves(object):
    """The head answers for the first time. seconds: since its process started."""

    def __init__(self, seconds):
        self.seconds = seconds


class Probe(object):
    """The head is to be asked for one token."""


class Limit(object):
    """Keeps a wrong judgement from taking a service down again and again."""

    def __init__(self):
        self._times = []
        self._hit = False

    def wait(self, now):
        """Seconds until a judgement may be acted on, 0 for now."""
        self._times = [moment for moment in self._times if now - moment < 2 * WINDOW]
        recent = [moment for moment in self._times if now - moment < WINDOW]
        self._hit = len(recent) >= REPAIRS or (self._hit and bool(self._times))
        if not self._hit or not recent:
            return 0
        return recent[-1] + WINDOW - now

    def acted(self, now):
        self._times.append(now)

    def count(self, now):
        """Repairs in the last window."""
        return sum(1 for moment in self._times if now - moment < WINDOW)
