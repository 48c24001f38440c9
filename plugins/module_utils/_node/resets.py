# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hangs and resets of cards of AMD and Intel, from the kernel's log. Private to the collection."""

from __future__ import annotations

import re
from typing import Any

from . import kernel_log

Reset = dict[str, Any]
# A line of a driver: "amdgpu 0000:03:00.0: amdgpu: ...", "xe 0000:03:00.0: [drm] Tile0: GT0: ...", and of older kernels
# "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ...", without the card.
LINE = re.compile(
    r"(?:(?P<driver>amdgpu|xe|i915) (?P<slot>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?:amdgpu: )?)?"
    r"(?:\[drm(?::\w+ \[(?P<module>amdgpu|xe|i915)\])?\] )?(?:\*ERROR\* )?(?:Tile\d+: )?(?:GT\d+: )?(?P<text>.+)"
)
# By driver: what happened, and the words of the driver's source.
WORDS = {
    "amdgpu": (
        ("hang", re.compile(r"ring \S+ timeout")),
        ("reset", re.compile(r"GPU reset begin!|Starting \S+ ring reset")),
        ("failed", re.compile(r"GPU reset\(\d+\) failed|GPU Recovery Failed|device lost from bus!")),
    ),
    "xe": (
        ("hang", re.compile(r"Timedout job: seqno=")),
        ("reset", re.compile(r"Engine reset: engine_class=|reset started")),
        ("failed", re.compile(r"CRITICAL: Xe has declared device \S+ as wedged")),
    ),
    "i915": (
        ("hang", re.compile(r"GPU HANG: ecode ")),
        ("reset", re.compile(r"Resetting \S+ for ")),
        ("failed", re.compile(r"Failed to reset chip|\S timed out, cancelling all in-flight rendering")),
    ),
}
TEXT_MOST = 200


def read_resets(path: str = kernel_log.PATH) -> tuple[list[Reset] | None, str | None]:
    """(resets, None), or (None, what is needed to read the log).

    resets: one {slot, driver, kind: hang, reset or failed, count, seconds_ago, message} for each card and kind, oldest
    first; slot None if the line names no card; seconds_ago and message of the latest. As far back as the ring buffer of
    the kernel goes.
    """
    records, reason = kernel_log.read(path)
    return (None if records is None else found_in(records)), reason


def found_in(records: list[kernel_log.Record]) -> list[Reset]:
    """Records of the kernel's log -> the list of read_resets."""
    found: dict[tuple[str | None, str, str], Reset] = {}
    for record in records:
        line = LINE.match(record.text)
        driver = line and (line.group("driver") or line.group("module"))
        if not line or not driver:
            continue
        kind = next((kind for kind, words in WORDS[driver] if words.match(line.group("text"))), None)
        if kind:
            slot = line.group("slot")
            entry = found.setdefault((slot, driver, kind), {"slot": slot, "driver": driver, "kind": kind, "count": 0})
            entry["count"] += 1
            entry["seconds_ago"] = record.seconds_ago
            entry["message"] = line.group("text")[:TEXT_MOST]
    return list(found.values())
