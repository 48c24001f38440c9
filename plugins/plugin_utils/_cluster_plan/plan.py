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
from ...module_utils._settings import is_stopped
from ...module_utils._text import human
from .._intent.check import hopeless, weights
from .._intent.ports import ports
from .._intent.records import Groups, Models, Services
from .._intent.routers import quants
from . import refusals
from .cluster import Claims, Cluster, Placed, claim
from .lines import lines, load_modes, threads
from .planner import place
from .routers import counts_models


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
    refused: [sentences]; hopeless: [those that need no header]; sharing: [lines]; cards: {name: {node: those that units
    name}}; ports: {name: port} of those that give none; jobs: {name: words about its partition};
    threads, load_modes, unserved, lines: of threads(), load_modes(), unserved(), table.lines()}
    """
    cluster = Cluster(services, models, groups, nodes, list(headers), builds, list(previous), complete)
    placed, notes = _placed(cluster)
    refused = refusals.numa(nodes) + [sentence for one in placed.values() for sentence in one.refused]
    refused += [refusals.misfit_sentence(cluster, misfit) for one in placed.values() for misfit in one.misfits]
    planned = {name: one.parts for name, one in placed.items() if one.parts}
    found: dict[str, Any] = {
        "services": {name: [part.as_dict() for part in parts] for name, parts in planned.items()},
        "unplanned": {name: one.why for name, one in placed.items() if one.why},
        "uncounted": [name for name, one in placed.items() if one.uncounted],
        "unchanged": [
            name
            for name, parts in sorted(planned.items())
            if unchanged(parts, cluster.earlier(name, [part.node for part in parts]))
        ],
        "rendered": {name: one.rendered for name, one in placed.items() if one.rendered},
        "refused": list(dict.fromkeys(refused)),
        "hopeless": hopeless(cluster.services, models, groups, nodes),
        "sharing": _same_cards(cluster) + [line for one in placed.values() for line in one.lines] + notes,
        "cards": {name: one.cards for name, one in placed.items() if one.cards is not None},
        "threads": threads(cluster, placed),
        "load_modes": load_modes(cluster),
        "ports": {name: port for name, port in ports(services).items() if "port" not in services[name]},
        "jobs": {
            name: f" of partition {one['partition']}" if one.get("partition") else ""
            for name, one in services.items()
            if one.get("launcher") == "slurm"
        },
        "unserved": unserved(services, models, groups, nodes),
    }
    return dict(found, lines=table.lines(found, only) + lines(cluster, placed, found, only))


def _placed(cluster: Cluster) -> tuple[dict[str, Placed], list[str]]:
    """All services in their places, and notes. What comes first takes the fastest devices, also those without which
    another one does not fit: that one comes before it then."""
    best = _in_order(cluster, [])
    found, first, notes = best, list[str](), list[str]()
    while _lacking(found) - set(first):
        first += sorted(_lacking(found) - set(first))
        found = _in_order(cluster, first)
        if _lacking(found) < _lacking(best) and _refused(found) <= _refused(best):
            moved = [name for name, one in best.items() if name not in first and _layers(one) != _layers(found[name])]
            best = found
            notes = [
                "%s leaves room for %s, which would not fit beside the split that is fastest for %s"
                % (name, table.join(first), name)
                for name in moved
            ]
    return best, notes


def _in_order(cluster: Cluster, first: Sequence[str]) -> dict[str, Placed]:
    """Services without a choice are placed first, then services that can leave a card to others only as a whole, then
    services that can leave a part of it, and last what takes nothing. first: services that choose before the others."""

    def order(name: str) -> tuple[bool, bool, bool, bool, bool, str]:
        service = cluster.services[name]
        free = not isinstance(service.get("tensor_split"), dict)
        last = service.get("cpu_moe") == "auto" or counts_models(service)
        return (is_stopped(service), "models_max" not in service, free, name not in first, last, name)

    placed: dict[str, Placed] = {}
    claims: Claims = {}
    for name in sorted(cluster.services, key=order):
        placed[name] = place(cluster, name, claims, [other for other, one in placed.items() if one.uncounted])
        claim(claims, name, placed[name].rows)
    return placed


def _lacking(placed: Mapping[str, Placed]) -> set[str]:
    return {name for name, one in placed.items() if one.misfits}


def _refused(placed: Mapping[str, Placed]) -> set[str]:
    return {sentence for one in placed.values() for sentence in one.refused}


def _layers(placed: Placed) -> list[dict[str, int]]:
    return [part.layers for part in placed.parts]


def _same_cards(cluster: Cluster) -> list[str]:
    """Lines on cards that several names of the inventory have, which a plan counts as several."""
    nodes: dict[str, list[str]] = {}
    for node, own in sorted(cluster.devices.items()):
        for uuid in sorted({device.uuid for device in own if device.uuid}):
            nodes.setdefault(uuid, []).append(node)
    return [
        f"note: {' and '.join(names)} have the same card, {uuid}, which is counted for each of them"
        for uuid, names in sorted(nodes.items())
        if len(names) > 1
    ]


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
    """Without what is main memory."""
    cards = [one for one in node["devices"] if one["kind"] == "GPU"]
    return sum(one.get("own_mib", 0) if one.get("unified") else one["total_mib"] for one in cards)


def _main(node: Mapping[str, Any]) -> float:
    """0 where it is not known."""
    mains = [node["main"]] if node.get("main") else [one for one in node["devices"] if one["kind"] == "main"]
    return sum(one["total_mib"] for one in mains)
