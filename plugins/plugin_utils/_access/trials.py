# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a service on trial stands in the way of. Private to the collection.

While a trial runs, the inventory goes on naming the old quant: whatever makes nodes equal to it would end the trial
unasked, and a snapshot that is taken meanwhile would bring the new quant back after its end. So nothing else changes
what serves until it is kept or switched back.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

# As llama_unit_info tells them.
Trials = Sequence[Mapping[str, Any]]


def minute(moment: str) -> str:
    """'2026-11-24T08:00:12Z' -> '2026-11-24 08:00 UTC'."""
    return "%s UTC" % moment[:16].replace("T", " ")


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
