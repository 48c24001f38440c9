# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals because of trials, and the services as trials change them. Private to the collection.

During a trial the inventory still names the old quant. A playbook that deploys it would end the trial, and a new
snapshot would restore the trial's quant later. So all other changes of services are refused until the trial is kept or
undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# As llama_unit_info returns them.
Trials = Sequence[Mapping[str, Any]]


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

    heads: the node's heads, none of which may have the quant of a trial that was not kept; switch: {service, quant,
    trial} of switch_model.yml, which may repeat the trial or switch back.
    """
    found = []
    switch = switch or {}
    for one in trials:
        wanted = (one["service"], one["quant"] if switch.get("trial") else one["was"])
        if one["state"] == "running" and (switch.get("service"), switch.get("quant")) != wanted:
            found.append(
                "llama_services.%s: on trial with %s on %s until %s seen, none on trial is needed for this run: keep "
                "that with switch_model.yml -e service=%s -e keep=true, or go back with switch_model.yml -e service=%s "
                "-e quant=%s"
                % (one["service"], one["quant"], host, minute(one["until"]), one["service"], one["service"], one["was"])
            )
        names = (one["service"], one["quant"])
        if one["state"] == "reverted" and names in [(head["service"], head["quant"]) for head in heads]:
            found.append(
                "llama_services.%s.quant: %s seen, whose trial on %s ended at %s and was not kept, %s is needed: set "
                "it so, or switch for good with switch_model.yml -e service=%s -e quant=%s"
                % (one["service"], one["quant"], host, minute(one["at"]), one["was"], one["service"], one["quant"])
            )
    return found


def services_on_trial(
    services: Mapping[str, Any], models: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]], now: str
) -> dict[str, Any]:
    """The services with the quants on trial, for read-only runs: {services: llama_services with these quants, lines:
    for the operator, refused: sentences}.

    nodes: {host: {heads: services whose head it is, trials}}; trials of other services are ignored. now: ISO 8601.
    """
    changed, lines, refused = dict(services), [], []
    for service, intent in services.items():
        reported = {
            host: next((one for one in node["trials"] if one["service"] == service and one["state"] == "running"), None)
            for host, node in nodes.items()
            if service in node["heads"]
        }
        running = [(host, one) for host, one in reported.items() if one]
        # A router has no quant.
        if not running or not intent.get("model"):
            continue
        host, one = running[0]
        quants = {name: trial["quant"] if trial else intent.get("quant") for name, trial in reported.items()}
        until, back = minute(one["until"]), f"go back with switch_model.yml -e service={service} -e quant={one['was']}"
        if len(set(quants.values())) > 1:
            refused.append(
                "llama_services.%s: %s seen, some of it on trial, one quant on all of its heads is needed: keep that "
                "with switch_model.yml -e service=%s -e keep=true, or %s"
                % (service, ", ".join(f"{quant} on {name}" for name, quant in sorted(quants.items())), service, back)
            )
        elif one["quant"] not in ((models.get(intent["model"]) or {}).get("quants") or {}):
            refused.append(
                "llama_models.%s.quants: %s missing, which %s has on trial until %s, its source is needed to plan it: "
                "add it again, or %s" % (intent["model"], one["quant"], service, until, back)
            )
        else:
            changed[service] = dict(intent, quant=one["quant"])
            over = f", which is over: see journalctl -t llama-trial on {host}" if now > one["until"] else ""
            lines.append(
                f"{service}: on trial with {one['quant']} until {until}{over}, planned and judged by that, the "
                f"inventory says {intent.get('quant') or 'none'}"
            )
    return {"services": changed, "lines": lines, "refused": refused}
