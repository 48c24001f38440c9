# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of an answer that is judged: its last block of code. Private to the collection."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._judge.judge import RUST, Verdict, lines_of
from ...module_utils._text import Refusal
from . import checklist
from .tasks import CHECKLIST

Map = Mapping[str, Any]
# Characters of an answer that are judged.
MOST = 256 << 10
# Seconds of CPU for a checklist.
SECONDS = 4
FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})[ \t]*([^\s`,{]*)")
LANGUAGES = ("", "rust", "rs")


class Source(NamedTuple):
    """A program; without one the text is None, and the reason says why."""

    text: str | None
    reason: str


def extract(content: str, finish_reason: str = "stop") -> Source:
    """The last block of code of an answer that names Rust or no language; a last block without an end ends with the
    answer, if that was not cut off."""
    found: str | None = None
    lines: list[str] = []
    end, wanted = "", False
    for line in content.replace("\r\n", "\n").split("\n"):
        fence = FENCE.match(line)
        if end and fence and fence.group(1).startswith(end) and not line[fence.end(1) :].strip():
            found, end = "\n".join([*lines, ""]) if wanted else found, ""
        elif end:
            lines.append(line)
        elif fence:
            lines, end, wanted = [], fence.group(1), fence.group(2).lower() in LANGUAGES
    if finish_reason == "length" and (end or found is None):
        return Source(None, "cut off at max_tokens")
    if end and wanted:
        found = "\n".join([*lines, ""])
    return Source(found, "" if found is not None else "no code block")


def prepared(tasks: Sequence[Map], answers: Sequence[Map]) -> dict[str, list[dict[str, Any]]]:
    """-> {verdicts: of the answers that need no sandbox, tasks and answers: arguments of llama_judge for the others}

    An answer without a program does not pass; a checklist is judged here.
    """
    named = {task["name"]: task for task in tasks}
    verdicts, programs, prose = [], [], []
    for answer in answers:
        task, content = named[answer["task"]], answer["content"]
        rust = task["judge"] == RUST
        source = extract(content, answer["finish_reason"]) if rust else Source(content, "")
        reason = source.reason
        if len(content) > MOST:
            reason = "more than %d KiB" % (MOST >> 10)
        elif task["judge"] == CHECKLIST:
            prose.append(answer)
            continue
        if reason:
            verdicts.append(_verdict(answer, rust, reason))
        else:
            programs.append({"answer": answer["key"], "task": task["name"], "source": source.text})
    reasons = _judge_checklists([(named[one["task"]]["checklist"], one["content"]) for one in prose])
    verdicts += [_verdict(one, False, reason) for one, reason in zip(prose, reasons, strict=True)]
    used = {one["task"] for one in programs}
    keys = ("name", "judge", "tests", "refused", "dir")
    return {
        "verdicts": verdicts,
        "tasks": [{key: named[name][key] for key in keys} for name in sorted(used)],
        "answers": programs,
    }


def _verdict(answer: Map, rust: bool, reason: str) -> dict[str, Any]:
    """As module llama_judge returns it. rust: whether there should have been a program."""
    lines = lines_of(answer["content"])
    return Verdict(answer["key"], not reason, False if rust else None, reason, {}, lines, None).as_dict()


def _judge_checklists(given: Sequence[tuple[Sequence[Map], str]]) -> list[str]:
    """For each (checklist, text) why it does not pass, empty if it does. Errors: Refusal."""
    found: list[str] = []
    while len(found) < len(given):
        left = json.dumps(given[len(found) :]).encode()
        # It prints a line for each, until one takes too long.
        ended = subprocess.run(
            [sys.executable, "-I", checklist.__file__, str(SECONDS)], input=left, stdout=subprocess.PIPE, check=False
        )
        found += [_reason(json.loads(line)) for line in ended.stdout.splitlines()]
        if len(found) < len(given):
            if ended.returncode != -signal.SIGXCPU:
                raise Refusal(
                    f"checklists: status {ended.returncode} of the process that matches them seen, 0 is needed: see "
                    "its message above, then run evaluate.yml again, which judges what is missing"
                )
            found.append(f"its checklist takes more than {SECONDS} s")
    return found


def _reason(missing: Sequence[str] | None) -> str:
    if missing is None:
        return f"its checklist takes more than {checklist.MEMORY >> 20} MiB"
    return f"does not name: {'; '.join(missing)}" if missing else ""
