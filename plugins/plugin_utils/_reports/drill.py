# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The times of a drill: detection, restart and load, by the break, the nodes' timelines and the first answer. Private
to the collection."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._node.timeline import noticed
from ...module_utils._node.units import unit_kind
from .table import table

# Node, unit.
Place = tuple[str, str]
COLUMNS = ("detection", "held", "restart", "load", "total")


def drill_report(results: Iterable[Mapping[str, Any]], catalog: Mapping[str, Any]) -> dict[str, Any]:
    """-> {drills: the results with their times, lines: to print}

    results: of role drill; a break has the timelines of its nodes, empty if it failed before they were read, a drill of
    a gateway the answers to its clients.
    """
    drills = [
        _measured(result, catalog[result["drill"]])
        if "timelines" in result
        else _asked(result)
        if "answers" in result
        else result
        for result in results
    ]
    return {"drills": drills, "lines": lines(drills)}


def _measured(result: Mapping[str, Any], drill: Mapping[str, Any]) -> dict[str, Any]:
    nodes = result["timelines"]
    # ansible-core 2.18 returns numbers of templates as text.
    broken_at, restored_at = (float(result[name]) if result[name] else None for name in ("broken_at", "restored_at"))
    found = {}
    if nodes and broken_at is not None:
        found = phases(drill, broken_at, restored_at, nodes, result["recovery"])
    return {
        **{key: value for key, value in result.items() if key != "timelines"},
        "broken_at": broken_at,
        "restored_at": restored_at,
        "phases": found,
        "events": {node: seen["events"] for node, seen in nodes.items()},
    }


def _asked(result: Mapping[str, Any]) -> dict[str, Any]:
    """A drill of a gateway; total: the longest time without a complete answer since the break."""
    answers = [line.split() for line in result["answers"]]
    broken_at = float(result["broken_at"]) if result["broken_at"] else None
    good = sorted(float(at) for at, status, code in answers if (status, code) == ("200", "0"))
    after = [] if broken_at is None else [broken_at] + [at for at in good if at > broken_at]
    gaps = [round(later - sooner, 3) for sooner, later in itertools.pairwise(after)]
    return {
        **{key: value for key, value in result.items() if key != "answers"},
        "broken_at": broken_at,
        "requests": len(answers),
        "lost": len(answers) - len(good),
        "phases": {"total": max(gaps)} if gaps else {},
    }


def phases(
    drill: Mapping[str, Any],
    broken_at: float,
    restored_at: float | None,
    nodes: Mapping[str, Any],
    recovery: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Seconds of each part of a drill -> {detection, held, restart, load, total, noticed_by, client_cut}; None if it is
    unknown.

    nodes: {node: result of node_history}; recovery: result of llama_recovery, None for a drill without a restart of the
    head. detection: until the last replaced process was noticed. held: until the fault was removed, if it does not end
    by itself; restart counts from there. restart: until the last new process, the head, was started. load: from then to
    the first token.
    """
    first = {}
    restarted = {}
    answered_at = (recovery or {}).get("answered_at")
    for node, seen in sorted(nodes.items()):
        for unit, now in seen["units"].items():
            own = [event for event in seen["events"] if event["unit"] in (unit, None)]
            at = noticed(own, drill, broken_at)
            if at is not None and (restored_at is None or at < restored_at):
                first[(node, unit)] = at
            # The start before the answer: the removal of a fault may start a process again.
            starts = [event["at"] for event in own if event["kind"] == "started"] + [now["started_at"] or 0]
            starts = [start for start in starts if start > broken_at and (answered_at is None or start < answered_at)]
            if starts:
                restarted[(node, unit)] = max(starts)
    heads = [start for (_node, unit), start in restarted.items() if unit_kind(unit)[0] != "rpc"]
    head = heads[0] if heads else None
    times = _wanted_times(drill, first, restarted)
    detected = max(times) if times else None
    since = restored_at if restored_at is not None and (answered_at is None or answered_at > restored_at) else detected
    started = max(restarted.values()) if restarted else None
    end = answered_at if drill["kind"] != "firewall" else detected
    return {
        "detection": _span(broken_at, detected),
        "held": _span(broken_at, restored_at),
        "restart": _span(since, started) if recovery else None,
        "load": _span(head, answered_at) if recovery else None,
        "total": _span(since if restored_at is not None and since == restored_at else broken_at, end),
        "noticed_by": ["%s %s" % place for place, _at in sorted(first.items(), key=lambda item: item[1])],
        "client_cut": _span(broken_at, ((recovery or {}).get("client") or {}).get("cut_at")),
    }


def _wanted_times(drill: Mapping[str, Any], first: dict[Place, float], restarted: dict[Place, float]) -> list[float]:
    if drill["kind"] == "restart":
        return [at for place, at in first.items() if place in restarted]
    if drill["kind"] == "away":
        return [at for (_node, unit), at in first.items() if unit_kind(unit)[0] != "rpc"]
    return [min(first.values())] if first else []


def _span(start: float | None, end: float | None) -> float | None:
    return round(end - start, 3) if start is not None and end is not None else None


def lines(results: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = []
    for one in results:
        found = one.get("phases") or {}
        times = [None if found.get(name) is None else f"{found[name]:.2f}" for name in COLUMNS]
        rows.append([one["drill"], *times, ": ".join(filter(None, (one["result"], one.get("reason"))))])
    return table(("drill", *(f"{name} s" for name in COLUMNS), "result"), rows)
