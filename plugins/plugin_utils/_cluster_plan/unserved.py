# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why models that no service serves fit no service of these nodes. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...module_utils._text import human
from .._intent.check import weights
from .._intent.records import Groups, Models, Services
from .._intent.routers import quants


def unserved(
    services: Services, models: Models, groups: Groups, nodes: Mapping[str, Mapping[str, Any]]
) -> dict[str, str] | None:
    """{model: why}, for those whose smallest quant is more than what a service with workers has on all nodes, and more
    than cards and main memory of each. None where a node is not known; nothing where the size of a quant is not."""
    served = {model for one in services.values() for model in quants(one)}
    wanted = groups.get("llama_nodes") or []
    if not wanted or any(node not in nodes or not _main(nodes[node]) for node in wanted):
        return None
    split = {node: sum(device["total_mib"] for device in nodes[node]["devices"]) for node in wanted}
    whole = {node: _cards(nodes[node]) + _main(nodes[node]) for node in wanted}
    largest = max(wanted, key=lambda node: whole[node])
    most = max(sum(split.values()), whole[largest])
    found = {}
    for name, model in models.items():
        sizes = {quant: weights(model, quant) for quant in model.get("quants") or {}}
        known = {quant: size for quant, (size, _how) in sizes.items() if size is not None}
        if name in served or not sizes or len(known) < len(sizes) or min(known.values()) <= most * 2**20:
            continue
        quant = min(known, key=lambda one: known[one])
        found[name] = "%s %s %s, more than the %s that a service over all nodes may use and the %s of %s" % (
            *(name, quant, sizes[quant][1]),
            *(human(int(sum(split.values())) << 20), human(int(whole[largest]) << 20), largest),
        )
    return found


def _cards(node: Mapping[str, Any]) -> float:
    """Without those that work in main memory."""
    return sum(one["total_mib"] for one in node["devices"] if one["kind"] == "GPU" and not one.get("unified"))


def _main(node: Mapping[str, Any]) -> float:
    """0 where it is not known."""
    mains = [node["main"]] if node.get("main") else [one for one in node["devices"] if one["kind"] == "main"]
    return sum(one["total_mib"] for one in mains)
