# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What status.yml prints. Private to the collection."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._llama.args import told
from ...module_utils._node import paths
from ...module_utils._node.units import Unit, units_of
from ...module_utils._plan.full_prompt import NOT_KNOWN, full_prompt, measured
from ...module_utils._plan.stored import kept
from ...module_utils._settings import is_stopped
from .._access.trials import minute
from .._intent.releases import named
from .acceptance import context_of


def status_lines(
    nodes: Mapping[str, Any],
    heads: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]],
    plans: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[str]:
    """A cluster's state as lines to print.

    nodes: {node: result of llama_unit_info}; heads: list of (entry of head_instances, result of llama_health); plans:
    {node: `plans` of node_facts}.
    """
    lines = []
    for head, health in heads:
        label = head.get("label") or head["service"]
        stopped = is_stopped(head)
        if stopped and health["state"] == "down":
            lines.append("%s: stopped, as the inventory says" % label)
            continue
        awaited = [share["node"] for share in head["shares"] if nodes.get(share["node"], {}).get("held")]
        reason = (
            "it waits for %s, held for maintenance" % ", ".join(awaited)
            if awaited and health["state"] != "ready"
            else health["reason"]
        )
        reason += ", and the inventory says stopped: run site.yml" if stopped else ""
        known = ", %s" % context_of(health) if context_of(health) else ""
        lines.append("%s: %s at %s, %s%s" % (label, health["state"], head["endpoint"], reason, known))
        prompt = _prompt(head, health, (plans or {}).get(head.get("node", ""), {}))
        lines += ["  %s" % prompt] if prompt else []
    for node, info in nodes.items():
        lines += ["%s: %s" % (one["service"], trial_of(one, node)) for one in info.get("trials", [])]
    for node, info in nodes.items():
        lines += ["  %-12s fetches %s: %s" % (node, one["name"], one["line"]) for one in info.get("transfers", [])]
        if info["held"]:
            lines.append(
                "  %-12s held for maintenance since %s: maintenance.yml -e node=%s -e state=return"
                % (node, info["held"], node)
            )
        if not info["units"]:
            lines.append("  %-12s no units" % node)
        for unit in units_of(info["units"]):
            note = ", its configuration changed since it started" if unit.stale else ""
            lines.append(
                "  %-12s %-36s %s since %s, %d restarts, build %s%s"
                % (node, unit.name, unit.active_state, unit.since or "-", unit.restarts, _build_of(unit, info), note)
            )
    return lines


def _prompt(head: Mapping[str, Any], health: Mapping[str, Any], plans: Mapping[str, Any]) -> str:
    """How long a full prompt takes, of a head that serves by a plan of its own."""
    read = plans.get(head["service"], {})
    parts = kept(read)
    if not parts or not health.get("n_ctx") or told(head.get("args") or []).embeddings:
        return ""
    return full_prompt(health["n_ctx"], parts[0].inputs, measured(read)) or NOT_KNOWN


def _build_of(unit: Unit, info: Mapping[str, Any]) -> str:
    """The release that a unit names."""
    found = named([{"arguments": unit.arguments}], paths.BUILDS)
    return os.path.basename(min(found, default=info["current_build"] or "none"))


def trial_of(one: Mapping[str, Any], node: str) -> str:
    """What an operator is told of a trial, as llama_unit_info tells it."""
    if one["state"] == "running":
        return (
            "on trial with %s on %s until %s, kept with switch_model.yml -e service=%s -e keep=true, else %s is back"
            % (one["quant"], node, minute(one["until"]), one["service"], one["was"])
        )
    ended = "the trial of %s on %s was not kept" % (one["quant"], node)
    reason = ", " + one["reason"] if one["reason"] else ""
    if one["state"] == "failed":
        return "%s, and %s could not be put back at %s%s" % (ended, one["was"], minute(one["at"]), reason)
    return "%s, reverted to %s at %s%s" % (ended, one["was"], minute(one["at"]), reason)
