# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work that may hang, in a process that can be left behind. Private to the collection.

A call into a share whose server is gone returns when that server does, and until then not even SIGKILL ends its
process. So the caller never makes such a call: a child does, and answers through a pipe.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import struct
from typing import Callable, NamedTuple

HEADER = struct.Struct(">cQ")
GOOD, BAD = b"+", b"-"
# Children that hang at a time: one that was left behind, and the one in its place.
LEFT_BEHIND = 1


class Outcome(NamedTuple):
    """value: what the work returned; error: why there is none. late: whether it has not answered in time; its child is
    left behind, or is the last one and still awaited."""

    value: bytes | None = None
    error: str = ""
    late: bool = False


class Disposable:
    """Does one piece of work at a time. deadline: seconds after which its child is killed, and is late."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._pid = 0
        self._pipe = -1
        self._until = 0.0
        self._killed = False
        self._read = b""
        self._left: list[int] = []

    @property
    def busy(self) -> bool:
        return bool(self._pid)

    @property
    def left(self) -> int:
        """How many were left behind and have not ended yet."""
        self._reap()
        return len(self._left)

    def start(self, work: Callable[[], bytes], now: float) -> None:
        """Only where it is not busy. work must not need anything that another thread could hold."""
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            _answer(work, writing)
        os.close(writing)
        os.set_blocking(reading, False)
        self._pid, self._pipe, self._until, self._killed, self._read = pid, reading, now + self._deadline, False, b""

    def wait(self, seconds: float) -> None:
        """Until the child says something, at most so long."""
        select.select([self._pipe] if self._pid else [], [], [], max(0.0, seconds))

    def poll(self, now: float) -> Outcome | None:
        """How the work ended, once; None while it is at work or there is none. Never blocks."""
        self._reap()
        if not self._pid:
            return None
        if self._ended():
            return self._close()
        if now < self._until or self._killed:
            return None
        self._kill(self._pid)
        self._killed = True
        if len(self._left) < LEFT_BEHIND:
            self._close()
        return Outcome(error="no answer for %d s" % self._deadline, late=True)

    def end(self) -> None:
        """Waits for nobody: whoever hangs ends as soon as it can."""
        for pid in self._left + ([self._pid] if self._pid else []):
            self._kill(pid)
        self._reap()

    def _ended(self) -> bool:
        while True:
            try:
                data = os.read(self._pipe, 1 << 16)
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    return False
                raise
            if not data:
                return True
            self._read += data

    def _close(self) -> Outcome:
        """What the child has said. It is reaped later: its end may hang too."""
        os.close(self._pipe)
        self._left.append(self._pid)
        self._pid, self._pipe = 0, -1
        self._reap()
        if len(self._read) >= HEADER.size:
            kind, length = HEADER.unpack(self._read[: HEADER.size])
            value = self._read[HEADER.size :]
            if len(value) == length:
                return Outcome(value) if kind == GOOD else Outcome(error=value.decode("utf-8", "replace"))
        return Outcome(error="its process ended before it answered")

    def _reap(self) -> None:
        self._left = [pid for pid in self._left if not _gone(pid)]

    @staticmethod
    def _kill(pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _gone(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _answer(work: Callable[[], bytes], pipe: int) -> None:
    """The child's whole life."""
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        try:
            kind, value = GOOD, work()
        except OSError as error:
            kind, value = BAD, (error.strerror or str(error)).encode("utf-8")
        with os.fdopen(pipe, "wb") as stream:
            stream.write(HEADER.pack(kind, len(value)) + value)
        code = 0
    finally:
        os._exit(code)
