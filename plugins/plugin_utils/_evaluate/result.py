# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of an evaluation: its table, its page, suggested routes, and what is kept. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._reports.evaluation import KIND
from .._reports.results import FORMAT, files_of
from .._reports.table import table
from .page import page
from .rates import HEADS, cells, rates
from .suggest import routes_result, suggest

Map = Mapping[str, Any]
FOLDER = "evaluations"


def evaluate_result(
    tasks: Sequence[Map], answers: Sequence[Map], verdicts: Sequence[Map], about: Map, text: str = ""
) -> dict[str, Any]:
    """-> {lines: what an operator reads, files: {path below the reports: content}, text: of routes.yml, diff: its
    lines, changed: whether a route would change, refused: why it cannot be written}

    about: {at: ISO 8601, judge: in words, temperature, samples, routes: llama_routes, models: of models_of()}; text: of
    routes.yml as it is, empty without one.
    """
    rows = rates(answers, verdicts, tasks)
    shared = {of["name"] for of in about["models"] if of["name"] != of["asks"]}
    suggestions = suggest(rows, about.get("routes") or {}, shared)
    route = routes_result(suggestions, about.get("routes") or {}, text)
    lines = table(HEADS, [cells(row) for row in rows])
    lines += [
        f"{one['kind']}: {'route to ' + one['model'] + ', which ' if one['model'] else ''}{one['reason']}"
        for one in suggestions
    ]
    judged = {one["answer"]: one for one in verdicts}
    kept: dict[str, str] = {}
    for of in about["models"]:
        own = [one for one in answers if one["model"] == of["name"] and one["key"] in judged]
        if own:
            kept.update(files_of(FOLDER, _kept(of, own, judged, tasks, rows, about)))
    shown = page(rows, tasks, answers, verdicts, {**about, "suggestions": suggestions})
    return {"lines": lines, "files": {"evaluation.html": shown, **kept}, **route}


def _kept(
    of: Map, answers: Sequence[Map], judged: Map, tasks: Sequence[Map], rows: Sequence[Map], about: Map
) -> dict[str, Any]:
    """The result of one name, as _reports/evaluation reads it."""
    of_task = {one["name"]: one for one in tasks}
    return {
        "format": FORMAT,
        "kind": KIND,
        "measured_at": about["at"],
        "label": of["name"],
        **{key: of[key] for key in ("service", "model", "quant", "build", "sha256")},
        **{key: about.get(key) for key in ("judge", "temperature", "samples")},
        "figures": [row for row in rows if row["model"] == of["name"]],
        "answers": [
            {
                "task": one["task"],
                "kind": of_task[one["task"]]["kind"],
                "sample": one["sample"],
                "digest": of_task[one["task"]]["digest"],
                **{key: judged[one["key"]][key] for key in ("passes", "compiles")},
            }
            for one in answers
            if one["task"] in of_task
        ],
    }
