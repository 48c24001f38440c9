# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers that a playbook is given with -e, where Jinja makes 0 of any other text. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._intent.values import shown


class Number(NamedTuple):
    """pattern: of the text; least: the smallest number; above: whether that itself is too small; words: of what is
    needed."""

    pattern: re.Pattern[str]
    least: int
    above: bool
    words: str


_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_WHOLES = re.compile(r"[0-9]{1,9}(,[0-9]{1,9}){0,31}", re.ASCII)
_REAL = re.compile(r"[0-9]{1,9}([.][0-9]{1,9})?", re.ASCII)
_COUNT = Number(_WHOLE, 1, False, "a whole number of 1 or more is")
_AMOUNT = Number(_REAL, 0, False, "a number of 0 or more is")
NUMBERS = {
    "concurrency": Number(_WHOLES, 1, False, "whole numbers of 1 or more with commas are"),
    "depths": Number(_WHOLES, 0, False, "whole numbers of 0 or more with commas are"),
    "first_token": _AMOUNT,
    "loss": _AMOUNT,
    "max_tokens": _COUNT,
    "minutes": Number(_REAL, 0, True, "a number above 0 is"),
    "requests": _COUNT,
}


def numbers_refused(given: Mapping[str, Any], playbook: str) -> list[str]:
    """Sentences about what is no number as NUMBERS has it. given: {name: value}."""
    return [
        f"{playbook}: {name} {shown(value)} seen, {NUMBERS[name].words} needed: correct -e {name}="
        for name, value in given.items()
        if not _is_number(str(value), NUMBERS[name])
    ]


def _is_number(text: str, wanted: Number) -> bool:
    if not wanted.pattern.fullmatch(text):
        return False
    return all(float(one) > wanted.least or float(one) == wanted.least and not wanted.above for one in text.split(","))
