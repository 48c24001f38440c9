# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes that an evaluation suggests, and the file that has them. Private to the collection."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible.module_utils.common.yaml import yaml_dump

from ...module_utils._text import Refusal
from .._intent.variables import yaml_of
from .._reports.evaluation import percent
from .rates import ALL

Map = Mapping[str, Any]
FILE = "group_vars/all/routes.yml"
HEADING = """\
---
# Written by evaluate.yml: the model that was measured as the best one for a kind of task.
"""
# Among models that are alike, the share of the others' seconds that decides, from this number of answers.
FASTER, LEAST = 0.5, 8


def suggest(rows: Sequence[Map], routes: Map, shared: Collection[str] = ()) -> list[dict[str, Any]]:
    """-> [{kind, model: None if nothing is decided, reason}]. rows: of rates(); routes: llama_routes; shared: models
    whose name several services have, to which no route can lead."""
    kinds = dict.fromkeys(row["kind"] for row in rows if row["kind"] != ALL)
    found = [_decided(kind, [row for row in rows if row["kind"] == kind], _present(routes, kind)) for kind in kinds]
    return [_routed(one, routes, shared) for one in found]


def _routed(one: dict[str, Any], routes: Map, shared: Collection[str]) -> dict[str, Any]:
    if one["model"] not in shared:
        return one
    keep = _kept(_present(routes, one["kind"]))
    step = "another service has its name: give one of them another one with names:"
    return {**one, "model": None, "reason": f"{keep}{one['model']} {one['reason']}, but {step}"}


def _kept(present: str) -> str:
    return f"not decided, keep {present or 'no route'}: "


def _present(routes: Map, kind: str) -> str:
    return str((routes.get("tasks") or {}).get(kind) or routes.get("default") or "")


def _decided(kind: str, rows: Sequence[Map], present: str) -> dict[str, Any]:
    keep = _kept(present)
    if len(rows) == 1:
        return {"kind": kind, "model": None, "reason": f"{keep}only {rows[0]['model']} was evaluated"}
    best = max(rows, key=lambda row: row["pass_rate"][0])
    alike = [row for row in rows if row["pass_rate"][2] >= best["pass_rate"][1]]
    words = "passes " + percent(best["pass_rate"])
    if len(alike) == 1:
        most = max(row["pass_rate"][2] for row in rows if row is not best)
        reason = f"{words}, every other at most {100 * most:.1f} %"
        return {"kind": kind, "model": best["model"], "reason": reason}
    solved = [row for row in alike if row["seconds_per_solved"] is not None]
    fast = min(solved, key=lambda row: row["seconds_per_solved"], default=best)
    others = [row["seconds_per_solved"] for row in solved if row is not fast]
    # An interval of few answers has room for any quality.
    sound = len(solved) == len(alike) and fast["pass_rate"][0] >= best["pass_rate"][1]
    sound = sound and min(row["n"] for row in alike) >= LEAST
    if sound and fast["seconds_per_solved"] <= FASTER * min(others):
        reason = "is as good as %s within its interval, %.1f s for each solved task, every other at least %.1f s" % (
            ", ".join(sorted(row["model"] for row in alike if row is not fast)),
            fast["seconds_per_solved"],
            min(others),
        )
        return {"kind": kind, "model": fast["model"], "reason": reason}
    names = ", ".join("%s %s" % (row["model"], percent(row["pass_rate"])) for row in alike)
    return {"kind": kind, "model": None, "reason": f"{keep}the intervals of {names} overlap"}


def routes_result(suggestions: Sequence[Map], routes: Map, text: str = "") -> dict[str, Any]:
    """-> {text: of routes.yml, diff: its lines, changed, refused: why it cannot be written, else empty}

    routes: llama_routes as it is in force; text: of routes.yml as it is, empty without one.
    """
    known = _read(text)
    wanted = {one["kind"]: one["model"] for one in suggestions if one["model"]}
    tasks = {kind: model for kind, model in wanted.items() if model != _present(routes, kind)}
    # Texts of templates carry marks that only JSON takes for texts.
    before = json.loads(json.dumps(routes))
    after = {**before, "tasks": {**(before.get("tasks") or {}), **tasks}} if tasks else before
    old, new = (yaml_dump({"llama_routes": one}, sort_keys=False, default_flow_style=False) for one in (before, after))
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), "llama_routes before", "llama_routes", lineterm="")
    refused = ""
    if tasks and before != (known.get("llama_routes") or {}):
        shown = "; ".join(
            f"{kind}: {_present(routes, kind) or 'none'} there, {tasks[kind]} suggested" for kind in tasks
        )
        refused = (
            f"llama_routes: set in another file than {FILE} seen ({shown}), only that file is needed to write to it: "
            "change the other file, or move llama_routes there"
        )
    return {"text": HEADING + new if tasks else text, "diff": list(diff), "changed": bool(tasks), "refused": refused}


def _read(text: str) -> dict[str, Any]:
    known = yaml_of(text, FILE)
    if not isinstance(known, dict) or known.keys() - {"llama_routes"}:
        raise Refusal(
            f"{FILE}: other keys than llama_routes seen, only that one is needed: move the others to another file"
        )
    return known
