# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory plan of an inventory: all of its services together, those that share a card added up. Private to the
collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._plan import table
from ...module_utils._plan.stored import unchanged
from .._intent.check import hopeless
from .._intent.records import Groups, Models, Services
from .._intent.services import ports
from . import notes, own_cards, refusals
from .inventory import Inventory
from .threads import shares
from .unserved import unserved

Cards = dict[str, own_cards.Found | None]


def memory_plan(
    services: Services,
    models: Models,
    groups: Groups,
    nodes: Mapping[str, Mapping[str, Any]],
    headers: Iterable[dict[str, Any]] = (),
    builds: Mapping[str, Any] | None = None,
    previous: Iterable[dict[str, Any]] = (),
    complete: bool = False,
    only: str = "",
) -> dict[str, Any]:
    """Plan every service.

    nodes: {node: {devices: [of filter plan_devices], main and physical_cores: where they are known, cores: int or None,
    numa: where asked for, see refusals.numa()}}; headers: results of llama_plan, each with its item of model_items();
    builds: llama_builds; previous: [{item: service, content: what stored() kept of an earlier plan, JSON in base64,
    prompt: see full_prompt.measured()}]; complete: whether a service that cannot be planned is refused; only: the one
    service of the lines.
    -> {services: {name: [ServicePlan as a dict]}, one for each replica, or each model of a router on each of its hosts;
    unplanned: {name: why}; uncounted: [names of those with some nodes in the plan and no earlier plan]; unchanged:
    [names planned as they were]; rendered: {name: {layers, tensor_split}} of those with layers per node and no plan;
    refused: [sentences]; hopeless: [those that need no header]; sharing: [lines]; cards: {name: {node: UUIDs}};
    ports: {name: port} of those that give none; threads, unserved, lines: of shares(), unserved(), table.lines()}
    """
    facts = (services, models, groups, nodes, list(headers), builds, list(previous), complete)
    one, cards = _placed(facts)
    one.refuse_misfits()
    threads = shares(one)
    found: dict[str, Any] = {
        "services": {name: [part.as_dict() for part in parts] for name, parts in one.planned.items()},
        "unplanned": one.unplanned,
        "uncounted": one.uncounted,
        "unchanged": [
            name
            for name, parts in sorted(one.planned.items())
            if parts and unchanged(parts, one.earlier(name, [part.node for part in parts]))
        ],
        "rendered": one.rendered,
        "refused": one.refused,
        "hopeless": hopeless(one.services, models, groups, nodes),
        "sharing": one.sharing,
        "cards": {name: found for name, found in cards.items() if found is not None},
        "threads": threads,
        "ports": {name: port for name, port in ports(services).items() if "port" not in services[name]},
        "unserved": unserved(services, models, groups, nodes),
    }
    return dict(found, lines=table.lines(found, only) + notes.lines(one, found, only))


def _placed(facts: tuple[Any, ...]) -> tuple[Inventory, Cards]:
    """All services in their places. What comes first takes the fastest devices, also those without which another one
    does not fit: that one comes before it then."""
    best, cards = _in_order(facts, [])
    found, first = best, list[str]()
    while {lack.name for lack in found.misfits} - set(first):
        first += sorted({lack.name for lack in found.misfits} - set(first))
        found, found_cards = _in_order(facts, first)
        fewer = {lack.name for lack in found.misfits} < {lack.name for lack in best.misfits}
        if fewer and set(found.refused) <= set(best.refused):
            moved = [name for name in best.planned if name not in first and _layers(best, name) != _layers(found, name)]
            best, cards = found, found_cards
            best.sharing += [
                "%s leaves room for %s, which would not fit beside the split that is fastest for %s"
                % (name, table.join(first), name)
                for name in moved
            ]
    return best, cards


def _in_order(facts: tuple[Any, ...], first: Sequence[str]) -> tuple[Inventory, Cards]:
    one = Inventory(*facts)
    one.first = first
    one.refused.extend(refusals.numa(one.nodes))
    one.sharing.extend(own_cards.claimed_twice(one.devices))
    return one, {name: own_cards.add(one, name) for name in sorted(one.services, key=one.order)}


def _layers(one: Inventory, name: str) -> list[dict[str, int]]:
    return [part.layers for part in one.planned.get(name, [])]
