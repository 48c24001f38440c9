# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the candidates of a service are started, and what an operator reads before. Private to the collection."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .._intent.records import Groups, HostVars, Models
from .._intent.services import head_instances, rpc_instances
from .grid import on_loopback

Map = Mapping[str, Any]
# Assumed before anything is measured: MiB/s of loading, seconds of a start, tokens/s, rounds that all candidates take.
LOADING, STARTING, GENERATING, ROUNDS = 200, 5, 10, 3


def tune_start(
    candidates: Sequence[Map],
    service: str,
    node: str,
    models: Models,
    groups: Groups,
    hostvars: HostVars,
    models_dir: str,
) -> dict[str, dict[str, Any]]:
    """Returns {name: how the candidate is started} of those that may be, the deployed configuration first.

    -> {arguments: of its head on the node, rpc_endpoints, workers: {node: arguments of a worker that differ from the
    deployed ones}, worker: arguments of one on the loopback, empty without one}
    """
    found: dict[str, dict[str, Any]] = {}
    deployed: Map = {}
    for one in candidates:
        if one["why"]:
            continue
        services, plan = one["services"], one["plan"]
        known = on_loopback(hostvars, node) if services[service].get("workers") == node else hostvars
        heads = head_instances(services, models, node, groups, known, models_dir, plan)
        head = next(head for head in heads if head.service == service)
        workers = {
            share.node: [str(word) for word in worker.args]
            for share in head.shares
            for worker in rpc_instances(services, share.node, groups, known, plan)
            if worker.service == service
        }
        beside = workers.pop(node, [])
        deployed = deployed or workers
        found[one["name"]] = {
            "arguments": [str(word) for word in head.args],
            "rpc_endpoints": list(head.rpc_endpoints),
            "workers": {name: args for name, args in workers.items() if args != deployed.get(name)},
            "worker": beside,
        }
    return found


def tune_minutes(candidates: Sequence[Map], service: str, tokens: int) -> int:
    """About how long a race takes at most, before anything is measured: each start reads the model, and generates
    `tokens`."""
    tried = [one for one in candidates if not one["why"]]
    parts: Sequence[Map] = next((one["plan"]["services"].get(service, []) for one in tried if one["plan"]), [])
    weights = sum(row["weights_mib"] for row in parts[0]["devices"]) if parts else 0
    seconds = STARTING + weights / LOADING + tokens / GENERATING
    return math.ceil(ROUNDS * len(tried) * seconds / 60)


def tune_lines(candidates: Sequence[Map], service: str, minutes: float, interrupt: bool) -> list[str]:
    """Lines for the operator: the candidates, the reasons of those that are left out, and how long it takes."""
    tried = [one["name"] for one in candidates if not one["why"]]
    lines = [f"{service}: {len(tried)} candidates: {'; '.join(tried)}"]
    lines += [f"{one['name']}: not measured, {one['why']}" for one in candidates if one["why"]]
    if interrupt:
        return [*lines, f"{service} does not respond meanwhile, for {minutes:g} minutes at most"]
    return [
        *lines,
        f"{service} would not respond for {minutes:g} minutes at most: run with -e interrupt=true, without --check",
    ]
