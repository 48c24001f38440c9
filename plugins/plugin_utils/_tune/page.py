# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a tune: its figures, and charts of its rounds. Private to the collection."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._text import Refusal
from .._reports.page import document, line_chart, table
from .race import BASELINE, SCORES, WORDS

Map = Mapping[str, Any]
# Beside what is deployed, as many as there are colors.
SHOWN = 5
COLUMNS = (
    ("rounds", "rounds", "%d"),
    ("tokens_per_second", "tokens/s of one request", "%.1f"),
    ("total_tokens_per_second", "of all requests", "%.1f"),
    ("prompt_tokens_per_second", "of reading", "%.1f"),
    ("first_token_s", "first token, s", "%.3f"),
    ("memory_mib", "memory, MiB", "%.0f"),
    ("ratio", "times as deployed", "%.2f"),
    ("low", "at least", "%.2f"),
    ("high", "at most", "%.2f"),
)


def tune_page(rows: Sequence[Map], measured: Sequence[Map], race: Map, about: Map) -> str:
    """rows: of tune_result(), the best first."""
    chosen = race["best"] if race["best"] != BASELINE else "nothing is better than what is deployed"
    title = f"{about['service']}: {chosen}"
    cells = [
        [row["name"], *[form % row[key] if row.get(key) else "-" for key, _title, form in COLUMNS], row["why"]]
        for row in rows
    ]
    return document(
        title,
        [
            f"<h1>{html.escape(title)}</h1>",
            f"<p>{html.escape(race['words'])}</p>",
            f"<p>{html.escape(_about(about))}</p>",
            "<h2>Candidates</h2>",
            table(["candidate", *[title for _key, title, _form in COLUMNS], "why it left"], cells, range(1, 10)),
            "<h2>Rounds</h2>",
            f"<p>The {WORDS[about['goal']]}, round by round.</p>",
            f'<div class="wide">{_chart(rows, measured, SCORES[about["goal"]])}</div>',
        ],
    )


def _about(about: Map) -> str:
    known = [("measured", "at"), ("goal", "goal"), ("build", "build"), ("measurements", "file")]
    return ", ".join(f"{title} {about[key]}" for title, key in known if about.get(key))


def _chart(rows: Sequence[Map], measured: Sequence[Map], key: str) -> str:
    numbers = sorted({one["round"] for one in measured})
    best = [row["name"] for row in rows if row["rounds"] and row["name"] != BASELINE][:SHOWN]
    seen = {(one["name"], one["round"]): one.get(key) for one in measured if not one.get("error")}
    series = {name: [seen.get((name, number)) for number in numbers] for name in [BASELINE, *best]}
    try:
        return line_chart("Rounds", [f"round {number}" for number in numbers], series)
    except Refusal as refusal:
        # The table still has the figures.
        return f"<p>{html.escape(str(refusal))}</p>"
