# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the arguments of switch_model.yml before any login. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...module_utils._settings import is_stopped
from .._intent.values import did_you_mean

TRIAL = re.compile(r"[1-9][0-9]{0,3}[smhd]\Z")
RETIRE = ("never", "after", "first")


def switch_refused(
    services: Mapping[str, Any], models: Mapping[str, Any], given: Mapping[str, Any], units: Mapping[str, Any]
) -> str:
    """The first reason against a switch, or empty.

    given: {service, quant, retire, trial, park, evaluation}, if given. units: {node: names of units}, of
    node_serving().
    """
    name, quant, trial, park = (str(given.get(key, "")) for key in ("service", "quant", "trial", "park"))
    retire, service = given.get("retire", "never"), services.get(name)
    if service is None:
        seen = f"service {name} seen" if name else "no service given"
        step = did_you_mean(name, list(services)) or ": add -e service=NAME"
        return f"switch_model: {seen}, one of {', '.join(services)} is needed{step}"
    model, entry = service.get("model"), f"llama_services.{name}"
    quants = models[model]["quants"] if model else {}
    head = f"llama-head{'' if service.get('primary') else '-' + name}.service"
    heads = [node for node, wanted in units.items() if head in wanted]
    seen = f"quant {quant} seen" if quant else "no quant given"
    only = "retire first" if retire == "first" else "park" if park else "trial" if trial else ""
    rows = (
        (
            not model,
            f"service {name} seen, which is a router, a service of one model is needed: change {entry}.models and run "
            "upgrade.yml, which goes back where it does not answer",
        ),
        (
            is_stopped(service),
            f"{entry}.state stopped seen, started is needed, since the new model has to answer: set the quant of the "
            "service in the inventory and run site.yml",
        ),
        (
            quant not in quants,
            f"{seen}, one of {', '.join(quants)} of {model} is needed"
            + (did_you_mean(quant, list(quants)) or ": add -e quant=QUANT"),
        ),
        (retire not in RETIRE, f"retire {retire} seen, one of never, after and first is needed: correct -e retire="),
        (
            trial and not TRIAL.match(trial),
            f"trial {trial} seen, a whole number of minutes, hours or days is needed: add -e trial=90m, 12h or 2d",
        ),
        (
            service.get("launcher") == "slurm" and only,
            f"{only} seen, and {name} is a job of SLURM, whose old model stays on its node until the new one serves: "
            "leave that out, or take -e retire=after",
        ),
        # The inventory goes on naming the quant that comes back.
        (
            trial and quant == service.get("quant"),
            f"quant {quant} seen, as {entry}.quant has it, another one is needed for a trial: leave -e trial out, or "
            "set back what the inventory says",
        ),
        (
            "evaluation" in given and not trial,
            "evaluation seen without trial, which it judges, one is needed: add -e trial=12h, or leave it out",
        ),
        # The old model comes back without an operator.
        (
            trial and (retire != "never" or park),
            f"trial {trial} seen with {'park' if park else 'retire'}, the old model is needed on its node until the "
            "trial ends: leave that out",
        ),
        # Each replica would keep the old model there, and one of them may be there.
        (
            park and len(heads) > 1,
            f"park {park} seen, and {name} has replicas on {', '.join(heads)}, one head is needed for it: take "
            "-e retire=first, or free space there",
        ),
    )
    return next((f"switch_model: {sentence}" for wrong, sentence in rows if wrong), "")
