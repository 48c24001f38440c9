# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a tune: its table, and the file of measured settings with what won. Private to the collection."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.common.yaml import yaml_dump

from ...module_utils._settings import OWN, value
from ...module_utils._text import Refusal
from .._intent.tuned import MEASURED, alike
from .._intent.variables import yaml_of
from .._reports.results import FORMAT, files_of
from .page import tune_page
from .race import BASELINE, SCORES, WORDS

Map = Mapping[str, Any]
FILE = "group_vars/all/tuned.yml"
HEADING = """\
---
# Written by tune.yml: settings that were measured, for keys that llama_services leaves unset.
"""
ROW = "%-40s %6s %10s %10s %10s %12s %24s"
HEADS = ("candidate", "rounds", "tokens/s", "of several", "reads/s", "first token", "times as deployed")


def tune_result(
    candidates: Sequence[Map], measured: Sequence[Map], race: Map, about: Map, text: str = ""
) -> dict[str, Any]:
    """-> {lines: what an operator reads, text: of tuned.yml, diff: its lines, changed, page: HTML, files: {path below
    the reports: content} for the page of decisions}

    candidates, measured, race: of tune_candidates(), tune_measured() and the last tune_round(); about: {service, goal,
    at: ISO 8601, file: of the measurements} and what tune_about() returns; text: of tuned.yml as it is, empty without
    one.
    """
    known = _read(text)
    before = (known.get("llama_tuned") or {}).get(about["service"]) or {}
    rows = [_row(one["name"], measured, race) for one in candidates]
    rows.sort(key=lambda row: -row["ratio"])
    found = text
    if race["best"] != BASELINE:
        changes = next(one["changes"] for one in candidates if one["name"] == race["best"])
        kept = {key: value for key, value in before.items() if not any(key in alike(one) for one in changes)}
        entry = {**kept, **changes, MEASURED: _measured(race, about)}
        tuned = {**(known.get("llama_tuned") or {}), about["service"]: entry}
        # Texts of templates carry marks that only JSON takes for texts.
        plain = json.loads(json.dumps({**known, "llama_tuned": tuned}))
        found = HEADING + yaml_dump(plain, sort_keys=False, default_flow_style=False)
    diff = difflib.unified_diff(text.splitlines(), found.splitlines(), f"{FILE} before", FILE, lineterm="")
    return {
        "lines": _lines(candidates, rows, race, about, before),
        "text": found,
        "diff": list(diff),
        "changed": found != text,
        "page": tune_page(rows, measured, race, about),
        "files": files_of("tune", _kept(candidates, race, about)),
    }


def _kept(candidates: Sequence[Map], race: Map, about: Map) -> dict[str, Any]:
    """The result that is kept: each candidate by its ratio to what is deployed, whose values it has too."""
    service = candidates[0]["services"][about["service"]]
    ratios = [(one["changes"], race["ratios"].get(one["name"])) for one in candidates if one["changes"]]
    keys = {key for changes, _ratio in ratios for key in changes}
    return {
        "format": FORMAT,
        "kind": "tune",
        "measured_at": about["at"],
        **{name: about[name] for name in ("service", "goal", "build", "cards")},
        **{name: service[name] for name in ("model", "quant")},
        "deployed": {key: value(service, key) or OWN.get(key) for key in sorted(keys)},
        "candidates": [{"changes": changes, **ratio} for changes, ratio in ratios if ratio],
    }


def _read(text: str) -> dict[str, Any]:
    known = yaml_of(text, FILE)
    if not isinstance(known, dict) or not isinstance(known.get("llama_tuned") or {}, dict):
        raise Refusal(f"{FILE}: no map llama_tuned seen, which is needed to add to it: correct it or remove it")
    return known


def _measured(race: Map, about: Map) -> dict[str, Any]:
    given = {name: about.get(name) for name in ("at", "goal", "build", "model", "sha256", "cards", "nodes", "file")}
    return {name: value for name, value in dict(given, gain=race["gain"]["ratio"]).items() if value}


def _row(name: str, measured: Sequence[Map], race: Map) -> dict[str, Any]:
    """The medians of a candidate's figures. ratio: 0 without one."""
    own = [one for one in measured if one["name"] == name and not one.get("error")]
    ratio = race["ratios"].get(name) or {"ratio": 1.0 if name == BASELINE else 0.0, "low": None, "high": None}
    why = next((one["why"] for one in race["left"] if one["name"] == name), "")
    keys = (*SCORES.values(), "first_token_s", "memory_mib")
    return {"name": name, "rounds": len(own), "why": why, **ratio, **{key: _median(own, key) for key in keys}}


def _median(records: Sequence[Map], key: str) -> float | None:
    values = sorted(float(one[key]) for one in records if one.get(key))
    return values[len(values) // 2] if values else None


def _lines(candidates: Sequence[Map], rows: Sequence[Map], race: Map, about: Map, before: Map) -> list[str]:
    found = [f"{about['service']}: the {WORDS[about['goal']]} of {len(candidates)} candidates", ROW % HEADS]
    for one in rows:
        if one["rounds"]:
            figures = [_number(one[key]) for key in SCORES.values()]
            first = _number(one["first_token_s"], "%.3f s")
            found.append(ROW % (one["name"], one["rounds"], *figures, first, times(one)))
    found += [f"{one['name']}: not measured, {one['why']}" for one in rows if one["why"] and not one["rounds"]]
    found.append(f"{about['service']}: {race['words']}")
    service = candidates[0]["services"][about["service"]]
    changes: Map = next((one["changes"] for one in candidates if one["name"] == race["best"]), {})
    for key in changes:
        # Not the inventory's is what tuned.yml has filled so far.
        rivals = [one for one in sorted(alike(key)) if one in service and before.get(one) != service[one]]
        found += [
            f"llama_services.{about['service']}.{one} is set, which is used: drop it, and {FILE} is" for one in rivals
        ]
    return found


def times(row: Map) -> str:
    """A row's ratio with its bounds."""
    if row["low"] is None:
        return "%.2f" % row["ratio"] if row["ratio"] else "-"
    return "%.2f (%.2f to %.2f)" % (row["ratio"], row["low"], row["high"])


def _number(number: float | None, form: str = "%.1f") -> str:
    return "-" if number is None else form % number
