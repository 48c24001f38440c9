# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work that may hang, in a child process that can be left behind. Private to the collection.

A call into a share whose server is gone returns when that server does, and until then not even SIGKILL ends its
process. So the caller never makes such a call: a child does, and answers through a pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from typing import Any, Callable, NamedTuple

# Children that hang at a time: one that was left behind, and the one in its place.
LEFT_BEHIND = 1


class Outcome(NamedTuple):
    """value: what the work returned; error: why there is none; late: no answer in time, its child is left behind, or is
    the last one and still awaited."""

    value: Any = None
    error: str = ""
    late: bool = False


class Disposable:
    """One piece of work at a time. deadline: seconds after which its child is killed, and is late."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._pid, self._pipe = 0, -1
        self._until, self._killed, self._read = 0.0, False, b""
        self._left: list[int] = []

    @property
    def busy(self) -> bool:
        return bool(self._pid)

    @property
    def left(self) -> int:
        """How many were left behind and have not ended yet."""
        self._left = [pid for pid in self._left if os.waitpid(pid, os.WNOHANG)[0] != pid]
        return len(self._left)

    def start(self, work: Callable[[], Any], now: float) -> None:
        """Only if it is not busy. work: returns JSON, raises OSError."""
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            _answer(work, writing)
        os.close(writing)
        os.set_blocking(reading, False)
        self._pid, self._pipe, self._until, self._killed, self._read = pid, reading, now + self._deadline, False, b""

    def wait(self, seconds: float) -> None:
        """Until the child answers, at most so long."""
        select.select([self._pipe] if self._pid else [], [], [], max(0.0, seconds))

    def poll(self, now: float) -> Outcome | None:
        """How the work ended, once; None while it is at work or there is none. Never blocks."""
        left = self.left
        if not self._pid:
            return None
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._pipe, 1 << 16):
                self._read += data
            return self._close()
        if now < self._until or self._killed:
            return None
        self._kill(self._pid)
        self._killed = True
        if left < LEFT_BEHIND:
            self._close()
        return Outcome(error=f"no answer for {self._deadline:.0f} s", late=True)

    def end(self) -> None:
        """Does not wait: a child that hangs ends as soon as it can."""
        for pid in self._left + [self._pid] * self.busy:
            self._kill(pid)

    def _close(self) -> Outcome:
        """The child's answer. The child is reaped later: its end may hang too."""
        os.close(self._pipe)
        self._left.append(self._pid)
        self._pid = 0
        try:
            value, error = json.loads(self._read)
        except ValueError:
            value, error = None, "its process ended before it answered"
        return Outcome(value, error)

    @staticmethod
    def _kill(pid: int) -> None:
        # Its number is its own until it is reaped.
        os.kill(pid, signal.SIGKILL)


def _answer(work: Callable[[], Any], pipe: int) -> None:
    """The child's whole life."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        try:
            answer = [work(), ""]
        except OSError as error:
            answer = [None, error.strerror or str(error)]
        with os.fdopen(pipe, "w") as stream:
            json.dump(answer, stream)
    finally:
        os._exit(0)
