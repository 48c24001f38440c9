# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of the kernel's log. Private to the collection."""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

PATH = "/dev/kmsg"
# Priority, sequence number, microseconds since boot, flags; then the text. Records of user space have a priority of 8
# and more.
RECORD = re.compile(r"^[0-7],\d+,(\d+),[^;]*;(.*)$", re.MULTILINE)


class Record(NamedTuple):
    seconds_ago: int
    text: str


def read(path: str = PATH) -> tuple[list[Record] | None, str | None]:
    """(the records that are there now, None), or (None, what is needed to read the log)."""
    try:
        text = _read(path)
    except PermissionError:
        return None, "%s is not readable for user id %d: run with become" % (path, os.geteuid())
    except OSError as error:
        return None, "%s cannot be read (%s): a container has none, see the log of its host" % (
            path,
            os.strerror(error.errno or 0),
        )
    return parse(text, time.monotonic()), None


def parse(text: str, now: float) -> list[Record]:
    """Text of /dev/kmsg -> its records. now: seconds since boot."""
    return [Record(max(0, int(now - int(microseconds) / 1000000)), line) for microseconds, line in RECORD.findall(text)]


def _read(path: str) -> str:
    pieces = []
    # Without O_NONBLOCK the read after the last record waits for the next one.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                piece = os.read(descriptor, 65536)
            except BrokenPipeError:
                continue  # overwritten meanwhile: the next read is of the oldest that is left
            except BlockingIOError:
                break
            if not piece:
                break
            pieces.append(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces).decode("utf-8", "replace")
