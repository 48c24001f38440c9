# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a node that this run has, and the ones that it still needs. Private to the collection.

The fact llama_node has the answers, `run`, and `asked`: {subset: the argument it was asked for with}.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]


def missing(known: Facts, asked: Facts, run: str, again: bool = False) -> dict[str, Any]:
    """The subsets of `asked` that this run does not have; of a list only the new entries."""
    asked = {name: argument for name, argument in asked.items() if argument != []}
    if again or known.get("run") != run:
        return asked
    wanted: dict[str, Any] = {}
    for name, argument in asked.items():
        if _is_keyed(known, name, argument):
            new = [key for key in argument if key not in known[name]]
            if new:
                wanted[name] = new
        elif name == "build" and _same_prefix(known, argument):
            new = [release for release in argument["releases"] if release not in known[name]["of"]]
            if new:
                wanted[name] = {**argument, "releases": new}
        elif name not in known["asked"] or known["asked"][name] != argument:
            wanted[name] = argument
    return wanted


def merged(known: Facts, asked: Facts, answers: Facts, run: str) -> dict[str, Any]:
    """The fact after an answer to `asked`; what another run knew is left out."""
    before = known if known.get("run") == run else {"asked": {}}
    keyed = {
        name: {**before[name], **answers[name]}
        for name, argument in asked.items()
        if _is_keyed(before, name, argument) and name in answers
    }
    if "build" in answers and "build" in asked and _same_prefix(before, asked["build"]):
        keyed["build"] = {**answers["build"], "of": {**before["build"]["of"], **answers["build"]["of"]}}
    return {**before, **answers, **keyed, "run": run, "asked": {**before["asked"], **asked}}


def _same_prefix(known: Facts, argument: Facts) -> bool:
    """Whether builds below this prefix were already queried; then only new releases are queried."""
    return "build" in known and known["asked"]["build"]["prefix"] == argument["prefix"]


def _is_keyed(known: Facts, name: str, argument: Any) -> bool:
    return isinstance(argument, list) and isinstance(known.get(name), dict)


def slurped(content: Any, of: type = dict) -> Any:
    """The JSON of a node's file, from slurp's `content`; empty for a missing or damaged file."""
    try:
        found = json.loads(base64.b64decode(content or "").decode("utf-8"))
    except (ValueError, RecursionError):
        return of()
    return found if isinstance(found, of) else of()


def is_planned(plan: Facts, service: str, host: str = "") -> bool:
    """Whether the plan covers all nodes of the service, or its part on `host`: --limit leaves nodes out."""
    parts = (plan.get("services") or {}).get(service) or []
    return bool(parts) and (service not in plan.get("unplanned", ()) or host in [part["node"] for part in parts])
