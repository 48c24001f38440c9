# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of status.yml. Private to the collection."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._node import paths
from ...module_utils._node.units import Unit, units_of
from ...module_utils._plan.full_prompt import NOT_KNOWN, full_prompt, measured
from ...module_utils._plan.stored import kept
from ...module_utils._settings import is_stopped
from ...module_utils._text import printable
from .._access.trials import minute
from .._intent.builds import named
from .table import context_cell, nodes_of, table

COLUMNS = ("service", "nodes", "state", "context", "endpoint", "since", "restarts", "what it says")


def status_lines(
    nodes: Mapping[str, Any],
    heads: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]],
    plans: Mapping[str, Mapping[str, Any]] | None = None,
    silent: Mapping[str, Sequence[str]] | None = None,
    verbose: bool = False,
    jobs: Sequence[Sequence[Any]] = (),
) -> list[str]:
    """A row for each instance of a service, then faults.

    nodes: {node: result of llama_unit_info}; heads: list of (entry of head_instances, result of llama_health); plans:
    {node: `plans` of node_facts}; silent: {node that gave no answer: the services that have a part there}; verbose:
    every unit, and how long a full prompt takes; jobs: rows of jobs_seen().
    """
    units = {(node, unit.name): unit for node, info in nodes.items() for unit in units_of(info["units"])}
    measured = {
        (node, one["service"]): one["until"] for node, info in nodes.items() for one in info.get("variants", [])
    }
    expected: set[tuple[str, str]] = set()
    rows, prompts = [], []
    for head, health in heads:
        label = head.get("label") or head["service"]
        places = [(head.get("node", ""), head.get("unit", ""))]
        places += [(share["node"], share.get("unit", "")) for share in head["shares"]]
        own = [units[place] for place in places if place in units]
        stopped = is_stopped(head)
        at_rest = stopped and health["state"] == "down"
        expected |= {place for place in places if place in units and (at_rest or _is_sound(units[place]))}
        if at_rest:
            rows.append([label, nodes_of(head), "stopped", "", "", "", "", "as the inventory says"])
            continue
        until = measured.get((head.get("node", ""), head["service"]))
        if until and health["state"] != "ready":
            expected |= {place for place in places if place in units}
            words = f"tune.yml measures it until {minute(until)}, then it serves as deployed"
            rows.append([label, nodes_of(head), health["state"], "", head["endpoint"], "", "", words])
            continue
        awaited = [share["node"] for share in head["shares"] if nodes.get(share["node"], {}).get("held")]
        reason = (
            f"it waits for {', '.join(awaited)}, held for maintenance"
            if awaited and health["state"] != "ready"
            else health["reason"]
        )
        reason += ", and the inventory says stopped: run site.yml" if stopped else ""
        since = units[places[0]].since if places[0] in units else ""
        restarts = sum(unit.restarts for unit in own) if own else ""
        state = [health["state"], context_cell(health), head["endpoint"], since, restarts, reason]
        rows.append([label, nodes_of(head), *state])
        prompt = _prompt(head, health, (plans or {}).get(head.get("node", ""), {}))
        prompts += [f"{label}: {prompt}"] if prompt else []
    rows += [list(row) for row in jobs]
    rows.sort(key=lambda row: str(row[0]))
    rows += [[", ".join(names), node, "no answer", *[""] * 5] for node, names in (silent or {}).items()]
    lines = table(COLUMNS, rows) if rows else []
    for node, info in nodes.items():
        lines += [f"{one['service']}: {trial_of(one, node)}" for one in info.get("trials", [])]
    for node, info in nodes.items():
        lines += [f"{node}: fetches {one['name']}: {one['line']}" for one in info.get("transfers", [])]
        if info["held"]:
            lines.append(
                f"{node}: held for maintenance since {info['held']}: maintenance.yml -e node={node} -e state=return"
            )
    # Units of a held node may be stopped.
    for (node, name), unit in units.items():
        if verbose or not (nodes[node]["held"] or (node, name) in expected):
            note = ", its configuration changed since it started" if unit.stale else ""
            lines.append(
                "%s: %s %s since %s, %d restarts, build %s%s"
                % (node, name, unit.active_state, unit.since or "-", unit.restarts, _build_of(unit, nodes[node]), note)
            )
    return lines + (prompts if verbose else [])


def _is_sound(unit: Unit) -> bool:
    return unit.active_state == "active" and not unit.stale


def _prompt(head: Mapping[str, Any], health: Mapping[str, Any], plans: Mapping[str, Any]) -> str:
    """How long a full prompt takes, if the head has a plan."""
    read = plans.get(head["service"], {})
    parts = kept(read)
    if not parts or not health.get("n_ctx") or head["serves"] != "text":
        return ""
    return full_prompt(health["n_ctx"], parts[0].inputs, measured(read)) or NOT_KNOWN


def _build_of(unit: Unit, info: Mapping[str, Any]) -> str:
    found = named([{"arguments": unit.arguments}], paths.BUILDS)
    return os.path.basename(min(found, default=info["current_build"] or "none"))


def trial_of(one: Mapping[str, Any], node: str) -> str:
    """A trial of llama_unit_info in words."""
    if one["state"] == "running":
        return (
            "on trial with %s on %s until %s, kept with switch_model.yml -e service=%s -e keep=true, else %s is back"
            % (one["quant"], node, minute(one["until"]), one["service"], one["was"])
        )
    ended = f"the trial of {one['quant']} on {node} was not kept"
    reason = ", " + one["reason"] if one["reason"] else ""
    if one["state"] == "failed":
        return f"{ended}, and {one['was']} could not be put back at {minute(one['at'])}{reason}"
    return f"{ended}, reverted to {one['was']} at {minute(one['at'])}{reason}"


def gateway_lines(
    host: str, units: Sequence[Mapping[str, Any]], asked: Mapping[str, Any], verbose: bool = False
) -> list[str]:
    """units: llama_unit_info of the engine and nginx; asked: result of curl at the engine's status.json. verbose: also
    services that serve and have no queue."""
    known = {unit.name: unit for unit in units_of(units)}
    states = [
        f"{name} {known[unit].active_state if unit in known else 'absent'}"
        for name, unit in (("engine", "llama-gateway.service"), ("nginx", "nginx.service"))
    ]
    try:
        status = json.loads(asked.get("stdout") or "")
        services = sorted(status["services"].items())
        where = ", ".join(status.get("base_urls", []))
        lines = [f"gateway on {host}: {where or 'no address'}, {', '.join(states)}"]
        shown = [one for one in services if verbose or not _serves_all(one[1])]
        return lines + [f"  {_service_line(name, service)}" for name, service in shown]
    except (ValueError, KeyError, TypeError, AttributeError):
        reason = printable(" ".join(str(asked.get("stderr") or "no answer").split())[:200])
        return [f"gateway on {host}: {', '.join(states)}, which does not say what it knows ({reason})"]


def _serves_all(service: Mapping[str, Any]) -> bool:
    waits = service.get("queue") or service.get("why")
    return not waits and all(one["state"] == "ready" for one in service["endpoints"])


def _service_line(name: str, service: Mapping[str, Any]) -> str:
    endpoints = service["endpoints"]
    ready = [one for one in endpoints if one["state"] == "ready"]
    free = sum(one.get("free") or 0 for one in ready)
    slots = sum(one.get("slots") or 0 for one in ready)
    others = [f"{one['node']} {one['state']}" for one in endpoints if one["state"] != "ready"]
    words = [f"{service['state']}", "%d of %d slots free" % (free, slots), "%d waiting" % (service.get("queue") or 0)]
    why = [str(service["why"])] if service.get("why") else []
    return printable(f"{name}: {', '.join(words + others + why)}")
