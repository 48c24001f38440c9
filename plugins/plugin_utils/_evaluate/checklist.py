# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers in prose, judged by the facts that they name. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# Comments of Rust and quotations of Markdown begin their lines with these.
LINE_MARKS = re.compile(r"^[ \t]*(?://[/!]?|>)[ \t]?", re.MULTILINE)


def judge(checklist: Sequence[Mapping[str, Any]], text: str) -> list[str]:
    """The facts that a text does not name, in the checklist's order; empty if the text passes.

    checklist: [{fact: one line, any: [regular expression]}]; one match of one expression names a fact, in any case of
    letters. The text is matched as one line: without marks of comments, emphasis and code, and with single spaces.
    """
    line = " ".join(re.sub(r"[*`]", "", LINE_MARKS.sub("", text)).split())
    return [
        one["fact"] for one in checklist if not any(re.search(wanted, line, re.IGNORECASE) for wanted in one["any"])
    ]
