# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words for the operator: the one exception that is shown, byte counts and durations, and what others wrote.

Private to the collection. Byte counts have decimal units, as disks and model hubs state them.
"""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """One sentence for the operator: the entry, the value seen, the value needed, the next step.

    Modules and filters fail with it as it is. Its code names it for tests and callers: the entry, if none is given.
    """

    def __init__(self, sentence: str, code: str = "") -> None:
        super().__init__(sentence)
        self.code = code or sentence.partition(": ")[0]


def human(count: float) -> str:
    """77263859712 -> '77.3 GB'; below 1000 bytes the exact count."""
    if count < 1000:
        return "%d bytes" % count
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000.0
        if value < 999.95 or unit == "TB":
            break
    return f"{value:.1f} {unit}"


def exact(count: int) -> str:
    """98362432 -> '98,362,432 bytes'."""
    return f"{count:,} bytes"


def counted(number: int, what: str) -> str:
    """'1 node', '2 nodes'."""
    return "%d %s%s" % (number, what, "" if number == 1 else "s")


def duration(seconds: float) -> str:
    """0.4 -> '0.4 s', 4 -> '4 s', 200 -> '3 min 20 s', 3900 -> '1 h 05 min'."""
    if seconds < 10:
        return f"{round(seconds, 1)} s"
    if seconds < 60:
        return "%d s" % seconds
    if seconds < 3600:
        return "%d min %02d s" % divmod(int(seconds), 60)
    return "%d h %02d min" % (seconds // 3600, seconds % 3600 // 60)


def printable(text: Any, most: int | None = 200) -> str:
    """One line of a report: what a terminal would act on, and a line feed, is a question mark. most: characters that
    are shown, None for all."""
    text = str(text)
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:most])
    return shown + "..." if len(text) > len(shown) else shown
