# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Xid errors of NVIDIA GPUs, from the kernel's log. Private to the collection."""

from __future__ import annotations

import re
from typing import Any

from . import kernel_log

Xid = dict[str, Any]
# NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, name=..., text; the instance stands there on a MIG device.
XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})[^)]*\): (\d+)(?:, *(.*))?$", re.IGNORECASE
)
# A driver that loads after that logs no Xid. The kernel writes \x0a for the ends of lines within one record.
FALLEN = re.compile(
    r"NVRM: The NVIDIA GPU ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-7]\b.*(fallen off the bus)", re.IGNORECASE
)
FALLEN_XID = 79


def read_xids(path: str = kernel_log.PATH) -> tuple[list[Xid] | None, str | None]:
    """(xids, None), or (None, what is needed to read the log).

    xids: one {pci_slot, xid, count, seconds_ago, message} for each card and number, oldest first; seconds_ago and
    message of the latest. As far back as the ring buffer of the kernel goes.
    """
    records, reason = kernel_log.read(path)
    return (None if records is None else xids_in(records)), reason


def xids_in(records: list[kernel_log.Record]) -> list[Xid]:
    """Records of the kernel's log -> the list of read_xids."""
    found: dict[tuple[str, int], Xid] = {}
    for record in records:
        match, fallen = XID.match(record.text), FALLEN.match(record.text)
        if match:
            slot, number, message = match.group(1).lower(), int(match.group(2)), match.group(3)
        elif fallen:
            slot, number, message = fallen.group(1).lower(), FALLEN_XID, fallen.group(2)
        else:
            continue
        entry = found.setdefault((slot, number), {"pci_slot": slot, "xid": number, "count": 0})
        entry["count"] += 1
        entry["seconds_ago"] = record.seconds_ago
        entry["message"] = message or None
    return list(found.values())
