# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a drill measured: from the time of the break, the nodes' timelines and the first answer to detection, restart
and load. Private to the collection."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._node.timeline import noticed
from ...module_utils._node.units import unit_kind
from ...module_utils._settings import is_stopped
from ...module_utils._text import duration
from ...module_utils._watchdog.head import UNKNOWN as NOTICED
from .._intent.services import managed

# Node, unit.
Place = tuple[str, str]
# What is done to a whole node, see break.sh.
WHOLE_NODE = ("gone", "cut_off", "power")


def outage_lines(run: Mapping[str, Any]) -> list[str]:
    """For how long services will be gone at most, in words, before anything is broken.

    run: service, its worker (the node that drills break), chosen: names of drills, catalog, load: seconds of the head's
    last load, empty where nobody knows, drills: of the last report, deadline: seconds, services, groups.
    """
    breaks = [name for name in run["chosen"] if run["catalog"][name]["kind"] not in ("soak", "firewall", "gateway")]
    if not breaks:
        return []
    took = {one["drill"]: _gone(one.get("phases") or {}) for one in run["drills"] if one["result"] == "recovered"}
    seconds = [took.get(name) for name in breaks]
    known = [one for one in seconds if one is not None]
    if len(known) == len(breaks):
        words = f"about {duration(max(known))} at most, as in the last drills"
    # The watchdog knows the age alone of a head that was there before it.
    elif run["load"] and float(run["load"]) < float(run["deadline"]):
        # The kernel may end a worker in the middle of a load.
        longest = NOTICED + 2 * float(run["load"])
        words = "about %s at most: what hangs is noticed within %s, and the last load took %s" % (
            *(duration(longest), duration(NOTICED)),
            duration(float(run["load"])),
        )
    else:
        words = f"not known yet, a drill fails after {duration(float(run['deadline']))}"
    found = [f"gone in each drill: {run['service']}, {words}"]
    parts = [
        one
        for one in managed(run["services"], run["groups"])
        if run["worker"] in (*one.heads, *one.workers) and one.name != run["service"] and not is_stopped(one.settings)
    ]
    for name in breaks:
        action = run["catalog"][name]["action"]
        # Who is cut off from the other nodes still answers its clients.
        others = [one.name for one in parts if action != "cut_off" or {*one.heads, *one.workers} != {run["worker"]}]
        if action in WHOLE_NODE and others:
            found.append(f"gone as long in {name}: {', '.join(others)}, of which {run['worker']} has a part")
    return found


def _gone(phases: Mapping[str, Any]) -> float | None:
    """Seconds without an answer: total counts from the end of held."""
    total = phases.get("total")
    return None if total is None else total + (phases.get("held") or 0)


def drill_report(results: Iterable[Mapping[str, Any]], catalog: Mapping[str, Any]) -> dict[str, Any]:
    """-> {drills: the results with what was measured, lines: the table an operator reads}

    results: of role drill; one of a break has the timelines of its nodes, none where it failed before they were read,
    one behind a gateway the answers that clients saw.
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
    # ansible-core before 2.19 makes texts of both.
    times = {name: float(result[name]) if result[name] else None for name in ("broken_at", "restored_at")}
    broken_at = times["broken_at"]
    return {
        **{key: value for key, value in result.items() if key != "timelines"},
        **times,
        "phases": phases(drill, broken_at, times["restored_at"], nodes, result["recovery"])
        if nodes and broken_at is not None
        else {},
        "events": {node: seen["events"] for node, seen in nodes.items()},
    }


def _asked(result: Mapping[str, Any]) -> dict[str, Any]:
    """Of clients that asked through the gateway, total: the longest time without a whole answer since the break."""
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
    """Seconds of each part of a drill -> {detection, held, restart, load, total, noticed_by, client_cut}; None where it
    cannot be told.

    nodes: {node: result of node_history}; recovery: result of llama_recovery, None for a drill that no head has to
    survive by a restart. detection: until the last of the processes that were replaced had been noticed. held: until
    the fault was taken away, where it does not go by itself; restart counts from there. restart: until the last new
    process was started, which is the head's. load: from then to the first token.
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
            # The start that the answer came from: taking a fault away may start a process again.
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
    """Results of drills -> the table an operator reads."""
    rows = [("drill", "detection s", "held s", "restart s", "load s", "total s", "result")]
    for result in results:
        found = result.get("phases") or {}
        numbers = [
            "-" if found.get(name) is None else f"{found[name]:.2f}"
            for name in ("detection", "held", "restart", "load", "total")
        ]
        rows.append(
            tuple(
                [result["drill"]]
                + numbers
                + [result["result"] + (": " + result["reason"] if result.get("reason") else "")]
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    return [
        "  ".join([row[0].ljust(widths[0])] + [row[column].rjust(widths[column]) for column in range(1, 6)] + [row[6]])
        for row in rows
    ]
