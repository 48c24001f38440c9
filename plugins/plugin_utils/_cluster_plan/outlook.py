# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a service of a plan can reach: the most tokens/s that memory bandwidth allows, and more context on the same
devices. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ...module_utils._model.memory import Shape
from ...module_utils._plan.advice import CONTEXT_STEP, largest
from ...module_utils._plan.context import allowed_context
from ...module_utils._plan.devices import Device
from ...module_utils._plan.place import ServicePlan, plan
from ...module_utils._settings import context
from .._intent.records import Services

Map = Mapping[str, Any]
# A service could have at least so many times its context.
WORTH_IT = 1.25


class Inventory(Protocol):
    """What is planned, of all services."""

    services: Services
    nodes: Mapping[str, Map]
    planned: dict[str, list[ServicePlan]]
    made: dict[tuple[str, str, str], Any]
    claimed: dict[tuple[str, str], dict[str, int]]


def words(inventory: Inventory, name: str) -> str:
    """A line on a service, empty where nothing is known. Of replicas the slowest one and the least context count, of a
    router each of its models."""
    rates: dict[str, list[float | None]] = {}
    parts = inventory.planned[name]
    for part in parts:
        one = inventory.made.get((name, part.node, part.model))
        generates = one and not one.settings.embeddings
        rate = ceiling(part.as_dict(), one.whole, inventory.nodes) if one and generates else None
        rates.setdefault(part.model, []).append(rate)
    known = {model: _rounded(min(filter(None, own))) for model, own in rates.items() if own and all(own)}
    said = ["%s%s" % (rate, " (%s)" % model if rates.keys() - {model} else "") for model, rate in known.items()]
    found = [f"at most {', '.join(said)} tokens/s, one request at a time"] if said else []
    tokens = 0 if len(rates) > 1 else min((_more(inventory, name, part) for part in parts), default=0)
    if tokens:
        found.append("could have %d tokens a slot on the same devices" % tokens)
    return f"{name}: {'; '.join(found)}" if found else ""


def _rounded(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"


def ceiling(part: Map, shape: Shape, nodes: Mapping[str, Map]) -> float | None:
    """Tokens/s of one request that the devices of a plan can read weights for: one after the other, each its layers, of
    experts those that a token uses. The cache is left out, so it is never reached. None where a bandwidth is not known,
    or where a draft model answers for several tokens at once."""
    described = [device for node in nodes.values() for device in (*node["devices"], node.get("main") or {}) if device]
    speeds = {(one["node"], one["device"]): float(one.get("bandwidth") or 0) for one in described}
    rows = [row for row in part["devices"] if row["layers"]]
    if shape.draft or sum(row["layers"] for row in rows) != shape.block_count:
        return None
    used = shape.n_expert_used / shape.n_expert if shape.n_expert else 1.0
    seconds = []
    for row in rows:
        place, last = (row["node"], row["device"]), row["last_layer"] == shape.block_count - 1
        own: list[tuple[tuple[str, str], float]] = [(place, shape.output_bytes)] if last else []
        for block in range(row["first_layer"], row["last_layer"] + 1):
            experts = shape.expert_bytes[block]
            kept = block < part["cpu_moe"]
            own += [
                (place, shape.block_bytes[block] - experts),
                ((part["node"], "main") if kept else place, experts * used),
            ]
        for where, size in own:
            if size and not speeds.get(where):
                return None
            seconds.append(size / speeds[where] / 1e9 if size else 0.0)
    return float(f"{1 / sum(seconds):.4g}") if sum(seconds) else None


def _more(inventory: Inventory, name: str, part: ServicePlan) -> int:
    """The most tokens of a slot, by steps, that fit beside all other services with the layers where they are; 0 where
    that is hardly more than it has. Embeddings of a longer text would need larger buffers."""
    one, service = inventory.made.get((name, part.node, part.model)), inventory.services[name]
    if not one or not part.plan.fits or one.settings.embeddings or "models" in service or not context(service):
        return 0
    most, slots = allowed_context(service, one.shape, one.settings.build), one.settings.parallel or 1
    devices = [_without(inventory, name, device) for device in one.devices]
    main = _without(inventory, name, one.main) if one.main else None

    def fits(tokens: int) -> bool:
        settings = one.settings._replace(ctx_size=tokens * slots)
        return plan(one.shape, settings, devices, one.local, True, one.planned.counts, main).fits

    found = largest(fits, most + CONTEXT_STEP) if most else 0
    return found if found >= WORTH_IT * part.slot_ctx_size else 0


def _without(inventory: Inventory, name: str, device: Device) -> Device:
    """A device with what all others have of it, those that were placed later too."""
    claims = inventory.claimed.get((device.node, device.device), {})
    return device._replace(claimed_mib=sum(mib for other, mib in claims.items() if other != name))
