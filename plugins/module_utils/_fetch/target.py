# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file that is being fetched: its pieces, the bytes that have arrived, its disk space, its final name. Private to the
collection."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
from collections.abc import Sequence
from typing import Any, ContextManager, NamedTuple

from .._text import Refusal, human
from .errors import DiskTooSmall
from .journal import CLOSED, Journal, Ranges
from .sources import Source

BLOCK = 1 << 20  # bytes per write; what a kill can lose per connection, besides the socket's buffer
MARGIN = 64 << 20  # bytes of disk left to others


class Piece(NamedTuple):
    """``size`` bytes of a resolved source that belong at ``offset`` of the target."""

    source: Source
    offset: int
    size: int


class Span(NamedTuple):
    """Bytes [start, end) of the target that are hashed together."""

    start: int
    end: int
    sha256: str | None  # the needed hex digest
    name: str  # for errors


class Target:
    """One file to make. identity: JSON-able; a half-fetched file is resumed only under the same identity."""

    def __init__(self, path: str, pieces: list[Piece], spans: Sequence[Span], identity: Any) -> None:
        self.path, self.pieces, self.spans, self.identity = path, pieces, spans, identity
        self.size = pieces[-1].offset + pieces[-1].size
        self.partial = path + ".partial"
        self.journal = Journal(self.partial + ".journal")
        self.ranges = Ranges()
        self.flushed = Ranges()  # of these, what is on disk for certain
        self.lost = False  # a flush has failed: this run records nothing more
        self.digests: list[str | None] = [None] * len(spans)  # hex, once hashed
        self.fd = CLOSED

    def load(self) -> None:
        """Learn from an earlier run's journal which bytes are there."""
        there = os.path.getsize(self.partial) if os.path.isfile(self.partial) else 0
        self.ranges = self.journal.load(self.identity)
        self.flushed = Ranges(self.journal.flushed)
        for ranges in (self.ranges, self.flushed):
            ranges.remove(there, max(there, self.size))

    def open(self) -> None:
        """Open the partial file, flush its bytes, begin a journal over it. Bytes without a record are not kept."""
        if not self.ranges.total():
            self.discard()
        self.fd = os.open(self.partial, os.O_RDWR | os.O_CREAT, 0o600)
        # Unverified bytes are private to root.
        os.fchmod(self.fd, 0o600)
        self.flush()
        self.journal.start(self.identity, self.ranges)

    def write(self, view: memoryview, position: int) -> None:
        """Write all of ``view`` at ``position``. Raises Refusal."""
        done = 0
        try:
            while done < len(view):
                done += os.pwrite(self.fd, view[done:], position + done)
        except OSError as error:
            raise disk_failure(self.partial, error) from None

    def flush(self, lock: ContextManager[Any] | None = None) -> int:
        """Flush written bytes to the disk; lock: guards ranges and journal. -> records of the journal that this covers;
        raises Refusal.

        The kernel reports a loss once, a second call would report success: after a failure all bytes since the last
        flush are forgotten.
        """
        lock = lock or threading.Lock()
        with lock:
            ranges, count = Ranges(self.ranges), self.journal.count
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            with lock:
                self.lost, self.ranges = True, self.flushed
                self.journal.delete()
                with contextlib.suppress(OSError):
                    self.journal.start(self.identity, self.ranges)
            raise disk_failure(self.partial, error) from None
        self.flushed = ranges
        return count

    def allocate(self) -> None:
        """Reserve the disk space of the whole file, before the first byte comes."""
        try:
            _allocate(self.fd, self.size)
        except OSError as error:
            raise disk_failure(self.partial, error) from None

    def publish(self) -> None:
        """Rename the partial file to the target's name, readable as a new file is."""
        umask = os.umask(0o077)
        os.umask(umask)
        os.fchmod(self.fd, 0o644 & ~umask)
        os.rename(self.partial, self.path)

    def close(self) -> None:
        self.journal.close()
        if self.fd != CLOSED:
            os.close(self.fd)
            self.fd = CLOSED

    def discard(self) -> None:
        """Remove the files of an earlier run."""
        self.close()
        self.journal.delete()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.partial)

    def missing_disk(self) -> int:
        """Bytes of disk that this target still takes; blocks of a partial file are used or given back."""
        there = os.stat(self.partial).st_blocks * 512 if os.path.exists(self.partial) else 0
        return max(0, self.size - there)


def _allocate(fd: int, size: int) -> None:
    """Reserve the blocks of ``size`` bytes; if the file system cannot (NFS before 4.2), only set the length.

    Not os.posix_fallocate: without support of the file system the C library writes to every block instead.
    """
    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    if call(fd, 0, 0, size):
        number = ctypes.get_errno()
        if number not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(number, os.strerror(number))
        os.ftruncate(fd, size)


def free_disk(folder: str) -> int:
    """Bytes an ordinary process may still take in the file system of ``folder``."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def check_disk(folder: str, name: str, size: int, missing: int) -> None:
    """Raise DiskTooSmall if ``missing`` bytes of a model of ``size`` bytes do not fit. A folder that does not exist
    counts as its parent."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    free = free_disk(folder)
    if missing + MARGIN > free:
        needs = human(size) if missing == size else f"{human(missing)} more of its {human(size)}"
        message = f"{folder} has {human(free)} free, {name} needs {needs} and {human(MARGIN)} to spare"
        raise DiskTooSmall(f"{message}: free space or set dest elsewhere", folder, free, missing + MARGIN)


def disk_failure(path: str, error: OSError) -> Refusal:
    """An OSError from writing to ``path`` as the sentence for the operator."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = human(free_disk(os.path.dirname(path)))
        return Refusal(f"{path}: the disk is full ({free} free): free space and run again, what was fetched is kept")
    return Refusal(f"{path}: cannot be written: {error.strerror}")
