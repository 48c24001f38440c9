# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of an evaluation: figures, a chart with intervals, and each answer that fails. Private to the
collection."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._text import printable
from .._reports.page import Raw, document, table
from .rates import HEADS, cells

Map = Mapping[str, Any]
REPORTED = (
    "As reported, in the notes of January 2026 (001 line 73, 003 line 435): compile rates of Rust of 94.3 %, 70 to "
    "90 %, and 80 to 85 %, without tasks, number of answers or method."
)
# The most failed answers, and the most letters of each and of its reason.
FAILED, LETTERS, REASON = 500, 2000, 300
# The chart, in pixels: the left edge of the bars, their length for 100 %, the height of a row.
LEFT, LENGTH, HEIGHT, COLORS = 290, 430, 18, 6


def page(rows: Sequence[Map], tasks: Sequence[Map], answers: Sequence[Map], verdicts: Sequence[Map], meta: Map) -> str:
    """rows: of rates(); meta: {at, judge: rustc and its sandbox in words, temperature, samples, suggestions: of
    suggest()}. Untrusted text is escaped."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    title = f"{len(models)} models by {len(tasks)} tasks"
    codes = sorted({code for row in rows for code in row["errors"]})
    by_code = [[row["model"], row["kind"], *(row["errors"].get(code, "-") for code in codes)] for row in rows]
    suggestions = [[one["kind"], one["model"] or "-", one["reason"]] for one in meta.get("suggestions") or ()]
    known = [
        ("measured", "at"),
        ("judged by", "judge"),
        ("temperature", "temperature"),
        ("samples of a task", "samples"),
    ]
    about = ", ".join(f"{words} {meta[key]}" for words, key in known if meta.get(key) not in (None, ""))
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(about)}</p>",
        "<p>Intervals have 95 % confidence. Answers in prose are judged by words that they must have, which is weaker "
        "than tests.</p>",
        "<h2>Answers that pass, with intervals</h2>",
        f'<div class="wide">{_chart(rows, models)}</div>',
        "<h2>Figures</h2>",
        table(HEADS, [cells(row) for row in rows], range(2, len(HEADS))),
        f"<p>{html.escape(REPORTED)}</p>",
        "<h2>Routes</h2>",
        table(["kind of task", "suggested model", "reason"], suggestions),
    ]
    if codes:
        parts += ["<h2>Errors of the compiler</h2>", table(["model", "kind of task", *codes], by_code)]
    return document(title, [*parts, *_failed(answers, verdicts)])


def _failed(answers: Sequence[Map], verdicts: Sequence[Map]) -> list[str]:
    reasons = {one["answer"]: one["reason"] for one in verdicts if not one["passes"]}
    found = [one for one in answers if one["key"] in reasons]
    found.sort(key=lambda one: (one["model"], one["task"], one["sample"]))
    shown = [
        [
            one["model"],
            one["task"],
            one["sample"],
            printable(reasons[one["key"]], REASON),
            Raw(f"<details><summary>answer</summary><pre>{html.escape(_shown(one['content']))}</pre></details>"),
        ]
        for one in found[:FAILED]
    ]
    more = f"<p>{len(found) - FAILED} more are not shown.</p>" if len(found) > FAILED else ""
    heads = ["model", "task", "sample", "reason", "answer"]
    return ["<h2>Answers that do not pass</h2>", table(heads, shown) if shown else "<p>None.</p>", more]


def _shown(content: str) -> str:
    text = "\n".join(printable(line, None) for line in content[:LETTERS].splitlines())
    return text + ("\n..." if len(content) > LETTERS else "")


def _chart(rows: Sequence[Map], models: Sequence[str]) -> str:
    """A bar for each model and kind of task, with a whisker for its interval."""
    colors = {model: number % COLORS for number, model in enumerate(models)}
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    ordered = sorted(rows, key=lambda row: (kinds.index(row["kind"]), colors[row["model"]]))
    bottom = 10 + HEIGHT * len(ordered) + 8 * len(kinds)
    lines = [
        f'<svg role="img" aria-label="Answers that pass" viewBox="0 0 {LEFT + LENGTH + 60} {bottom + 24}">',
    ]
    for share in range(0, 101, 20):
        x = LEFT + LENGTH * share / 100
        lines.append(f'<line class="guide" x1="{x:.0f}" x2="{x:.0f}" y1="6" y2="{bottom}"/>')
        lines.append(f'<text x="{x:.0f}" y="{bottom + 16}" text-anchor="middle">{share} %</text>')
    for number, row in enumerate(ordered):
        y = 10 + HEIGHT * number + 8 * kinds.index(row["kind"])
        share, low, high = (LENGTH * value for value in row["pass_rate"])
        label = html.escape(printable(f"{row['kind']}: {row['model']}", 40))
        middle = y + HEIGHT / 2 - 1
        lines.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{label}</text>')
        lines.append(
            f'<g class="color-{colors[row["model"]]}"><rect fill="currentColor" fill-opacity=".45" x="{LEFT}" y="{y}" '
            f'width="{share:.1f}" height="{HEIGHT - 2}"/>'
            f'<line stroke="currentColor" x1="{LEFT + low:.1f}" x2="{LEFT + high:.1f}" y1="{middle}" '
            f'y2="{middle}"/></g>'
        )
        # Without it the interval of a share of 0 looks like a bar.
        lines.append(f'<text x="{LEFT + high + 6:.1f}" y="{y + 13}">{100 * row["pass_rate"][0]:.0f} %</text>')
    return "\n".join([*lines, "</svg>"])
