# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers in prose, judged by the facts that they name. Private to the collection.

This file is also a program: an operator's expression may need hours for an answer, and only the end of a process stops
Python's matching.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

# Comments of Rust and quotations of Markdown begin their lines with these.
LINE_MARKS = re.compile(r"^[ \t]*(?://[/!]?|>)[ \t]?", re.MULTILINE)
# Seconds of CPU for an answer.
SECONDS = 4


def judge(checklist: Sequence[Mapping[str, Any]], text: str) -> list[str]:
    """The facts that a text does not name, in the checklist's order; empty if the text passes.

    checklist: [{fact: one line, any: [regular expression]}]; one match of one expression names a fact, in any case of
    letters. The text is matched as one line: without marks of comments, emphasis and code, and with single spaces.
    """
    line = " ".join(re.sub(r"[*`]", "", LINE_MARKS.sub("", text)).split())
    return [
        one["fact"] for one in checklist if not any(re.search(wanted, line, re.IGNORECASE) for wanted in one["any"])
    ]


def judge_each(given: Sequence[tuple[Sequence[Mapping[str, Any]], str]], seconds: int = SECONDS) -> list[str]:
    """For each (checklist, text) why it does not pass, empty if it does. seconds: of CPU for each one."""
    found: list[str] = []
    while len(found) < len(given):
        left = json.dumps(given[len(found) :]).encode()
        # It prints a line for each, until one takes too long.
        ended = subprocess.run(
            [sys.executable, "-I", __file__, str(seconds)], input=left, stdout=subprocess.PIPE, check=False
        )
        missing = [json.loads(line) for line in ended.stdout.splitlines()]
        found += [f"does not name: {'; '.join(facts)}" if facts else "" for facts in missing]
        if len(found) < len(given):
            found.append(f"its checklist takes more than {seconds} s")
    return found


def main() -> None:
    """Reads what judge_each() gets from stdin, and writes what judge() returns for each."""
    given = json.load(sys.stdin.buffer)
    for checklist, text in given:
        used = resource.getrusage(resource.RUSAGE_SELF)
        # The kernel counts whole seconds, and ends the process.
        end = int(used.ru_utime + used.ru_stime) + 1 + int(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_CPU, (end, end))
        sys.stdout.write(json.dumps(judge(checklist, text)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
