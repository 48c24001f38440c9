# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a service on trial stands in the way of, and what it is judged by. Private to the collection.

While a trial runs, the inventory goes on naming the old quant: whatever makes nodes equal to it would end the trial
unasked, and a snapshot that is taken meanwhile would bring the new quant back after its end. So nothing else changes
what serves until it is kept or switched back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

# As llama_unit_info tells them.
Trials = Sequence[Mapping[str, Any]]
FORM = "%Y-%m-%dT%H:%M:%SZ"
# For so long its end may wait for a disk that is not mounted yet.
LATE = timedelta(hours=1)


def minute(moment: str) -> str:
    """'2026-11-24T08:00:12Z' -> '2026-11-24 08:00 UTC'."""
    return f"{moment[:16].replace('T', ' ')} UTC"


def trial_refusals(
    trials: Trials,
    host: str,
    heads: Sequence[Mapping[str, Any]] = (),
    switch: Mapping[str, Any] | None = None,
) -> list[str]:
    """One sentence for each trial of a node that is in the way.

    heads: that the node is to have, of which none may be what a trial was not kept for; switch: what switch_model.yml
    is to do, {service, quant, trial}: a trial may go on, or be switched back.
    """
    found = []
    for one in trials:
        if one["state"] == "running" and not _goes_on(one, switch or {}):
            found.append(
                "llama_services.%s: on trial with %s on %s until %s seen, none on trial is needed for this run: keep "
                "that with switch_model.yml -e service=%s -e keep=true, or go back with switch_model.yml -e service=%s "
                "-e quant=%s"
                % (one["service"], one["quant"], host, minute(one["until"]), one["service"], one["service"], one["was"])
            )
        found += [_unkept(one, host) for head in heads if one["state"] == "reverted" and _names(head, one)]
    return found


def _goes_on(one: Mapping[str, Any], switch: Mapping[str, Any]) -> bool:
    """Whether a switch is the trial itself, once more, or the way back."""
    wanted = one["quant"] if switch.get("trial") else one["was"]
    return switch.get("service") == one["service"] and switch.get("quant") == wanted


def _names(head: Mapping[str, Any], one: Mapping[str, Any]) -> bool:
    return head["service"] == one["service"] and head["quant"] == one["quant"]


def _unkept(one: Mapping[str, Any], host: str) -> str:
    return (
        "llama_services.%s.quant: %s seen, whose trial on %s ended at %s and was not kept, %s is needed: set it so, or "
        "switch for good with switch_model.yml -e service=%s -e quant=%s"
        % (one["service"], one["quant"], host, minute(one["at"]), one["was"], one["service"], one["quant"])
    )


def services_on_trial(
    services: Mapping[str, Any], models: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]], now: str
) -> dict[str, Any]:
    """What serves instead of what the inventory says, for runs that only look: {services: llama_services with the
    quants on trial, lines: what an operator is told, refused: sentences}.

    nodes: {host: {heads: the services whose head it is, trials}}; a node has no say about the services of others. now:
    ISO 8601.
    """
    changed, lines, refused = dict(services), [], []
    for service, intent in services.items():
        said = {
            host: next((one for one in node["trials"] if one["service"] == service and one["state"] == "running"), None)
            for host, node in nodes.items()
            if service in node["heads"]
        }
        running = [(host, one) for host, one in said.items() if one]
        # A router has no quant.
        if not running or not intent.get("model"):
            continue
        host, one = running[0]
        quants = {host: trial["quant"] if trial else intent.get("quant") for host, trial in said.items()}
        if len(set(quants.values())) > 1:
            refused.append(_differ(service, one["was"], quants))
        elif one["quant"] not in ((models.get(intent["model"]) or {}).get("quants") or {}):
            refused.append(_no_source(intent["model"], one))
        else:
            changed[service] = dict(intent, quant=one["quant"])
            lines.append(_judged_by(one, host, intent.get("quant"), now))
    return {"services": changed, "lines": lines, "refused": refused}


def _differ(service: str, was: str, quants: Mapping[str, Any]) -> str:
    seen = ", ".join(f"{quant} on {host}" for host, quant in sorted(quants.items()))
    return (
        "llama_services.%s: %s seen, some of it on trial, one quant on all of its heads is needed: keep that with "
        "switch_model.yml -e service=%s -e keep=true, or go back with switch_model.yml -e service=%s -e quant=%s"
        % (service, seen, service, service, was)
    )


def _no_source(model: str, one: Mapping[str, Any]) -> str:
    return (
        "llama_models.%s.quants: %s missing, which %s has on trial until %s, its source is needed to plan it: add it "
        "again, or go back with switch_model.yml -e service=%s -e quant=%s"
        % (model, one["quant"], one["service"], minute(one["until"]), one["service"], one["was"])
    )


def _judged_by(one: Mapping[str, Any], host: str, quant: Any, now: str) -> str:
    late = datetime.strptime(now, FORM) - datetime.strptime(one["until"], FORM) > LATE
    return "%s: on trial with %s until %s%s, planned and judged by that, the inventory says %s" % (
        one["service"],
        one["quant"],
        minute(one["until"]),
        ", which is over: see journalctl -t llama-trial on %s" % host if late else "",
        quant or "none",
    )
