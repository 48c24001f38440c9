# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers in prose, judged by the facts that they name. Private to the collection.

This file is also a program, which extract.py runs: an operator's expression may need hours for an answer, and only the
end of a process stops Python's matching.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any

# Comments of Rust and quotations of Markdown begin their lines with these.
LINE_MARKS = re.compile(r"^[ \t]*(?://[/!]?|>)[ \t]?", re.MULTILINE)
# Bytes of the process.
MEMORY = 1 << 30


def judge(checklist: Sequence[Mapping[str, Any]], text: str) -> list[str]:
    """The facts that a text does not name, in the checklist's order; empty if the text passes.

    checklist: [{fact: one line, any: [regular expression]}]; one match of one expression names a fact, in any case of
    letters. The text is matched as one line: without marks of comments, emphasis and code, and with single spaces.
    """
    line = " ".join(re.sub(r"[*`]", "", LINE_MARKS.sub("", text)).split())
    return [
        one["fact"] for one in checklist if not any(re.search(wanted, line, re.IGNORECASE) for wanted in one["any"])
    ]


def main() -> None:
    """Reads [(checklist, text)] from stdin, and writes what judge() returns for each, a line each; null where it takes
    more than MEMORY. Ends by SIGXCPU where one takes more seconds of CPU than the argument says."""
    given = json.load(sys.stdin.buffer)
    most = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for checklist, text in given:
        used = resource.getrusage(resource.RUSAGE_SELF)
        # The kernel counts whole seconds. Only root may raise a hard limit again, so that one stays.
        end = int(used.ru_utime + used.ru_stime) + 1 + int(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_CPU, (end if most == resource.RLIM_INFINITY else min(end, most), most))
        try:
            missing: list[str] | None = judge(checklist, text)
        except MemoryError:
            missing = None
        sys.stdout.write(json.dumps(missing) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
