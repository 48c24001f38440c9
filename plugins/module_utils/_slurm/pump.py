# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server's output: its last lines are kept, all lines go to a file on a share. Private to the collection.

The server never waits for the share or its disk: a child process of the task writes the file, lines that it does not
take in time are lost, and counted.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import os
import signal
import threading
import time
from typing import Callable

from .._files import owners
from .._text import human, printable
from .process import end_with

Say = Callable[[str], None]
# Lines that are kept, and bytes of a line: a pipe takes up to 4096 bytes whole or not at all.
KEPT, MOST_LINE, WHOLE = 50, 3000, 4096
# Bytes that wait for a child that hangs; Linux gives them to every user.
WAITING = 1 << 20
F_SETPIPE_SZ = 1031
# Bytes of a log: clients may have a server write without an end.
MOST_LOG = 256 << 20
# Seconds for the child to write the rest, and between two tries to open a file.
END, PAUSE = 2.0, 1.0
# Begins a line that is the name of an empty file to make; a server's lines begin with their time.
MARK = b"\0"


def stamp(now: float) -> str:
    """2026-11-27T21:20:03.123Z"""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + ".%03dZ" % (now % 1 * 1000)


class LogFile:
    """A file in a folder that may not exist yet. To be made before the process has threads."""

    def __init__(self, folder: str, name: str, say: Say) -> None:
        self._lock = threading.Lock()
        self.lost = 0
        self._unsaid = 0  # lines that were lost since the last one that was taken
        reading, self._writing = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._writing, F_SETPIPE_SZ, WAITING)
        os.set_blocking(self._writing, False)
        parent = os.getpid()
        self._child = os.fork()
        if not self._child:
            try:
                end_with(parent, signal.SIGKILL)
                os.close(self._writing)
                # It ends with its pipe, after the task's last words.
                signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
                _Writer(folder, name, say).run(reading)
            finally:
                os._exit(0)
        os.close(reading)

    def write(self, text: str) -> None:
        with self._lock:
            now = stamp(time.time())
            lost = f"{now} {self._unsaid} lines before this one are lost\n" if self._unsaid else ""
            if self._put(f"{lost}{now} {text}"):
                self._unsaid = 0
            else:
                self._unsaid += 1
                self.lost += 1

    def mark(self, name: str) -> bool:
        """Has an empty file of that name beside the log, some time -> whether its writer will make it."""
        return self._put(MARK.decode() + name)

    def _put(self, text: str) -> bool:
        try:
            os.write(self._writing, text.encode("utf-8", "replace")[: WHOLE - 1] + b"\n")
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Waits a little for the rest to be written."""
        os.close(self._writing)
        until = time.monotonic() + END
        while os.waitpid(self._child, os.WNOHANG)[0] != self._child:
            if time.monotonic() > until:
                os.kill(self._child, signal.SIGKILL)
                return
            time.sleep(0.02)


class _Writer:
    """The child's part."""

    def __init__(self, folder: str, name: str, say: Say) -> None:
        self._folder, self._name, self._say = folder, name, say
        self._file: int | None = None
        self._size, self._full = 0, False
        self._lost = 0
        self._again = 0.0  # no try before

    def run(self, pipe: int) -> None:
        with open(pipe, "rb") as stream:
            for line in stream:
                self._take(line)
        if self._lost:
            self._say(f"log {self._folder}/{self._name}: {self._lost} lines are lost")

    def _take(self, line: bytes) -> None:
        if time.monotonic() < self._again:
            self._lost += 1
            return
        try:
            if line.startswith(MARK):
                self._open(line[1:].decode().strip(), close=True)
                return
            if self._full:
                return
            if self._file is None:
                self._file = self._open(self._name)
                self._size = os.fstat(self._file).st_size
            if self._size + len(line) > MOST_LOG:
                self._full = True
                self._say(
                    f"log {self._folder}/{self._name}: it is full ({human(MOST_LOG)}), lines are lost from here on"
                )
                self._write(f"{stamp(time.time())} the log is full, lines are lost from here on\n".encode())
                return
            if self._lost:
                self._write(f"{stamp(time.time())} {self._lost} lines before this one are lost\n".encode())
            self._write(line)
        except OSError as error:
            if not self._lost:
                self._say(f"log {self._folder}/{self._name}: {error.strerror}: lines are lost until it can be written")
            self._lost += 1
            self._again = time.monotonic() + PAUSE
            if self._file is not None:
                with contextlib.suppress(OSError):
                    os.close(self._file)
                self._file = None
            return
        if self._lost:
            self._say(f"log {self._folder}/{self._name}: is written again, {self._lost} lines are lost")
            self._lost = 0

    def _open(self, name: str, close: bool = False) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._folder, 0o750)
        folder = os.open(self._folder, os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            # Another user may have made it first, in a directory that all may write.
            if os.fstat(folder).st_uid not in owners():
                raise OSError(errno.EPERM, "its directory belongs to another user")
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            # A server may log a part of a request.
            opened = os.open(name, flags, 0o640, dir_fd=folder)
        finally:
            os.close(folder)
        if close:
            os.close(opened)
        return opened

    def _write(self, data: bytes) -> None:
        self._size += len(data)
        while data and self._file is not None:
            data = data[os.write(self._file, data) :]


class Pump(threading.Thread):
    """Takes the output of a server from its pipe."""

    def __init__(self, pipe: int, log: LogFile) -> None:
        super().__init__(daemon=True)
        self._pipe, self._log = pipe, log
        self._last: collections.deque[str] = collections.deque(maxlen=KEPT)

    def last(self, count: int) -> list[str]:
        """The last lines that say anything."""
        return list(self._last)[-count:]

    def run(self) -> None:
        rest = b""
        while True:
            data = os.read(self._pipe, 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > MOST_LINE or not data and rest:
                lines, rest = [*lines, rest], b""
            for line in lines:
                text = printable(line[:MOST_LINE].decode("utf-8", "replace").replace("\t", " ").rstrip("\r"), None)
                self._log.write(text)
                if text.strip():
                    self._last.append(printable(text))
            if not data:
                return
