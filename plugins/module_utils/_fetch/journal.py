# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which bytes of a half-fetched file can be trusted after the process, or the machine, has died.

The journal is a text file beside the data: line 1 is JSON {"identity": ..., "boot_id": ...}; then ``w OFFSET LENGTH``
after each write and ``d COUNT`` after a flush of the data to disk that covers the first COUNT records. While the
machine stays up, the page cache keeps every write of a killed process, so all records count; after a reboot only
flushed ones do. A last line without its newline is dropped, as is everything after a line that cannot be read.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .._files import read_trusted, write_atomically

CLOSED = -1  # in place of a descriptor
_MOST = 64 << 20  # bytes of a journal; that of a terabyte has less
_LINE = re.compile(rb"(?:w (\d{1,18}) (\d{1,18})|d (\d{1,18}))\Z")


def boot_id() -> str:
    """A text that changes with every boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Ranges:
    """A set of byte positions, kept as sorted, disjoint, non-touching [start, end) intervals."""

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in intervals:
            self.add(start, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._ends))

    def total(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def add(self, start: int, end: int) -> None:
        if start >= end:
            return
        low = bisect.bisect_left(self._ends, start)
        high = bisect.bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def remove(self, start: int, end: int) -> None:
        parts = [part for first, last in self for part in ((first, min(last, start)), (max(first, end), last))]
        kept = [part for part in parts if part[0] < part[1]]
        self._starts, self._ends = [first for first, _last in kept], [last for _first, last in kept]

    def frontier(self, start: int) -> int:
        """The end of the unbroken run of bytes that begins at ``start``; ``start`` itself if that byte is missing."""
        index = bisect.bisect_right(self._starts, start) - 1
        return max(start, self._ends[index]) if index >= 0 else start

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """[(start, end)] missing within [start, end)."""
        missing = Ranges([(start, end)])
        for first, last in self:
            missing.remove(first, last)
        return list(missing)


class Journal:
    """The record of one data file. Not locked: the caller serialises add() and durable()."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0
        self.flushed = Ranges()  # what load() found to be on disk
        self._fd = CLOSED

    def load(self, identity: Any) -> Ranges:
        """Ranges recorded for ``identity`` (JSON-able) that can be trusted; empty if there is no such record."""
        try:
            lines = read_trusted(self.path, _MOST).split(b"\n")[:-1]
            header = json.loads(lines[0].decode("utf-8"))
            if header["identity"] != json.loads(json.dumps(identity)):
                return Ranges()
            same_boot = header["boot_id"] == boot_id()
        except (OSError, LookupError, TypeError, ValueError, RecursionError):
            return Ranges()
        records: list[tuple[int, int]] = []
        flushed = 0
        for line in lines[1:]:
            match = _LINE.match(line)
            if not match:
                break
            if match.group(3):
                flushed = int(match.group(3))
            else:
                records.append((int(match.group(1)), int(match.group(1)) + int(match.group(2))))
        self.flushed = Ranges(records[:flushed])
        return Ranges(records) if same_boot else self.flushed

    def start(self, identity: Any, ranges: Ranges) -> None:
        """Begin a fresh record that says ``ranges`` are there and on disk (the caller has flushed them)."""
        self.close()
        lines = [json.dumps({"identity": identity, "boot_id": boot_id()}, sort_keys=True)]
        lines += [f"w {first} {last - first}" for first, last in ranges]
        self.count = len(lines) - 1
        write_atomically(self.path, "\n".join([*lines, f"d {self.count}", ""]).encode("utf-8"), 0o644, anywhere=True)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND)

    def add(self, start: int, end: int) -> None:
        self._append(b"w %d %d\n" % (start, end - start))
        self.count += 1

    def durable(self, count: int) -> None:
        """Record that the data of the first ``count`` records is on disk."""
        self._append(b"d %d\n" % count)
        os.fdatasync(self._fd)

    def _append(self, line: bytes) -> None:
        if os.write(self._fd, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def close(self) -> None:
        if self._fd != CLOSED:
            os.close(self._fd)
            self._fd = CLOSED

    def delete(self) -> None:
        self.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
