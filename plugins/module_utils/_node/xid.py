# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Xid errors of NVIDIA GPUs, from the kernel's log. Private to the collection."""

from __future__ import annotations

import os
import re
import time
from typing import Any

Xid = dict[str, Any]
# A record of /dev/kmsg: priority, sequence number, microseconds since boot, flags; then the text.
RECORD = re.compile(r"^\d+,\d+,(\d+),[^;]*;(.*)$", re.MULTILINE)
# NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, name=..., text; the instance stands there on a MIG device.
XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})[^)]*\): (\d+)(?:, *(.*))?$", re.IGNORECASE
)


def read_xids(path: str = "/dev/kmsg") -> tuple[list[Xid] | None, str | None]:
    """(xids, None), or (None, what is needed to read the log).

    xids: one {pci_slot, xid, count, seconds_ago, message} for each card and number, oldest first; seconds_ago and
    message of the latest. As far back as the ring buffer of the kernel goes.
    """
    try:
        records = _read(path)
    except PermissionError:
        return None, "%s is not readable for user id %d: run with become" % (path, os.geteuid())
    except OSError as error:
        return None, "%s cannot be read (%s): a container has none, see the log of its host" % (
            path,
            os.strerror(error.errno or 0),
        )
    return parse_xids(records, time.monotonic()), None


def _read(path: str) -> str:
    """All records that are there now."""
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


def parse_xids(records: str, now: float) -> list[Xid]:
    """Text of /dev/kmsg -> what read_xids returns; now: seconds since boot."""
    found: dict[tuple[str, int], Xid] = {}
    for microseconds, text in RECORD.findall(records):
        match = XID.match(text)
        if match:
            slot, number = match.group(1).lower(), int(match.group(2))
            entry = found.setdefault((slot, number), {"pci_slot": slot, "xid": number, "count": 0})
            entry["count"] += 1
            entry["seconds_ago"] = max(0, int(now - int(microseconds) / 1000000))
            entry["message"] = match.group(3) or None
    return list(found.values())
