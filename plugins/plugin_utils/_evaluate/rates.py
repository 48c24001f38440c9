# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of an evaluation per model and kind of task. Private to the collection."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .._reports.evaluation import percent, wilson

Map = Mapping[str, Any]
ALL = "all"
# Columns of numbers, in a run's output and on the page: (key of a row, heading, form).
NUMBERS = (
    ("clippy_per_1000_lines", "clippy in 1,000 lines", "%.1f"),
    ("tokens_per_second", "tokens/s", "%.1f"),
    ("first_token_s", "first token, s", "%.2f"),
    ("tokens_per_answer", "tokens an answer", "%.0f"),
    ("seconds_per_solved", "seconds a solved task", "%.1f"),
)
HEADS = ("model", "kind of task", "n", "compiles", "passes", *(heading for _key, heading, _form in NUMBERS))


def rates(answers: Sequence[Map], verdicts: Sequence[Map], tasks: Sequence[Map]) -> list[dict[str, Any]]:
    """A row for each model and kind of task, ALL of them first: {model, kind, n: judged answers, compiled, passed,
    compile_rate: [share, low, high], None where no Rust was asked for, pass_rate: the same, clippy_per_1000_lines,
    tokens_per_second and first_token_s: medians, tokens_per_answer: mean, seconds_per_solved: seconds of all answers
    by those that pass, errors: {code of rustc: how often}}. Intervals: Wilson's, 95 %.

    Answers without a verdict, or to other tasks, are not counted.
    """
    kinds = {one["name"]: one["kind"] for one in tasks}
    judged = {one["answer"]: one for one in verdicts}
    found: dict[tuple[str, str], list[tuple[Map, Map]]] = {}
    for one in {one["key"]: one for one in answers}.values():
        if one["key"] in judged and one["task"] in kinds:
            for kind in (ALL, kinds[one["task"]]):
                found.setdefault((one["model"], kind), []).append((one, judged[one["key"]]))
    order = [ALL, *dict.fromkeys(kinds.values())]
    return [
        _row(model, kind, found[(model, kind)])
        for model, kind in sorted(found, key=lambda key: (key[0], order.index(key[1])))
    ]


def cells(row: Map) -> list[Any]:
    """A row of rates() below HEADS."""
    numbers = ["-" if row[key] is None else form % row[key] for key, _heading, form in NUMBERS]
    return [row["model"], row["kind"], row["n"], percent(row["compile_rate"]), percent(row["pass_rate"]), *numbers]


def _row(model: str, kind: str, pairs: Sequence[tuple[Map, Map]]) -> dict[str, Any]:
    answers, verdicts = [one for one, _verdict in pairs], [verdict for _one, verdict in pairs]
    rust = [one for one in verdicts if one["compiles"] is not None]
    compiled, passed = sum(one["compiles"] for one in rust), sum(one["passes"] for one in verdicts)
    linted = [one for one in verdicts if one["clippy_warnings"] is not None]
    lines = sum(one["lines"] for one in linted)
    errors: Counter[str] = Counter()
    for one in verdicts:
        errors.update(one["errors"])
    return {
        "model": model,
        "kind": kind,
        "n": len(pairs),
        "compiled": compiled,
        "passed": passed,
        "compile_rate": wilson(compiled, len(rust)) if rust else None,
        "pass_rate": wilson(passed, len(pairs)),
        "clippy_per_1000_lines": 1000 * sum(one["clippy_warnings"] for one in linted) / lines if lines else None,
        "tokens_per_second": _median(answers, "tokens_per_second"),
        "first_token_s": _median(answers, "first_token_s"),
        "tokens_per_answer": statistics.fmean(one["completion_tokens"] for one in answers),
        "seconds_per_solved": sum(one["seconds"] for one in answers) / passed if passed else None,
        "errors": dict(errors.most_common()),
    }


def _median(answers: Sequence[Map], key: str) -> float | None:
    values = [one[key] for one in answers if one[key] is not None]
    return statistics.median(values) if values else None
