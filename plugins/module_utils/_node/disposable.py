# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work that may hang, in a child process that can be left behind. Private to the collection.

A call into a share whose server is gone does not return before the server is back, and until then not even SIGKILL ends
its process. So a child makes such calls and returns the result through a pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import Any, Callable, NamedTuple

# Children that hang at a time; with more of them no other is started.
LEFT_BEHIND = 2


class Outcome(NamedTuple):
    """value: what the work returned; error: why there is no value."""

    value: Any = None
    error: str = ""


class Disposable:
    """Runs one piece of work at a time. deadline: seconds after which its child is killed and left behind."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._children: list[int] = []

    def run(self, work: Callable[[], Any]) -> Outcome:
        """Waits for the work until the deadline. work: returns JSON, raises OSError."""
        # The last child is reaped here: its end may hang too.
        self._children = [pid for pid in self._children if os.waitpid(pid, os.WNOHANG)[0] != pid]
        late = Outcome(error=f"no answer for {self.deadline:.0f} s")
        if len(self._children) >= LEFT_BEHIND:
            return late
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            _answer(work, writing)
        os.close(writing)
        self._children.append(pid)
        until, pieces = time.monotonic() + self.deadline, []
        with open(reading, "rb", buffering=0) as stream:
            # Not while it lasts: one who writes all the time has no right to more of it.
            while (left := until - time.monotonic()) > 0 and select.select([stream], [], [], left)[0]:
                piece = stream.read(1 << 16)
                if not piece:
                    break
                pieces.append(piece)
            else:
                os.kill(pid, signal.SIGKILL)
                return late
        try:
            return Outcome(*json.loads(b"".join(pieces)))
        except ValueError:
            return Outcome(error="its process ended before it answered")


def _answer(work: Callable[[], Any], pipe: int) -> None:
    """Runs the work in the child and ends the child."""
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            # A child that hangs must not keep the output open: Ansible waits for its end.
            os.dup2(nowhere, number)
        _close_others(pipe)
        try:
            answer = [work(), ""]
        except OSError as error:
            answer = [None, error.strerror or str(error)]
        with open(pipe, "w") as stream:
            json.dump(answer, stream)
    finally:
        os._exit(0)


def _close_others(pipe: int) -> None:
    """Closes what the child inherited: one that hangs would keep locks, and a socket on which its program listens."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != pipe:
            # The directory was open while it was listed.
            with contextlib.suppress(OSError):
                os.close(int(name))
