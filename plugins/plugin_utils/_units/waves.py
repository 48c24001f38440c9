# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which nodes change, so that a gateway can send the clients of one replica to the others meanwhile.
Private to the collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...module_utils._node.units import Unit, units_of
from .changes import hold_changes

NOTHING: dict[str, Any] = {
    "heads_down": [],
    "unwanted": [],
    "held": [],
    "resting": [],
    "workers_restart": [],
    "workers_start": [],
    "heads_up": [],
}


class _Heads(NamedTuple):
    """Heads of a node that change. stops: services whose running head stops; starts: services whose head starts."""

    stops: set[str]
    starts: set[str]


def change_waves(
    nodes: Mapping[str, Iterable[Mapping[str, Any]]],
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    held: str = "",
) -> list[dict[str, Any]]:
    """Returns [wave], in order of execution.

    nodes: {node: units as llama_unit_info returns them}; changes: {node: its unit_changes()}; held: instead, the node
    to hold, then hold_changes() decides. A node changes as a whole, because units that start may need the memory of
    units that stop. Nodes that share a service whose workers or head change do so together, because a worker serves
    one head. Of other services one replica is down at a time, and nodes that only start units come first.

    changes of a wave: {node: its changes}, for every node; drain: running endpoints that stop; answers: {node: heads
    that start and must respond}; ready: their endpoints. A head that waits for a worker of a held node is in neither.
    """
    changes = changes or {node: dict(hold_changes(nodes, node, held), idle=False) for node in nodes}
    units = {node: {unit.name: unit for unit in units_of(found)} for node, found in nodes.items()}
    heads = {node: _heads(todo, units[node]) for node, todo in changes.items()}
    waiting = _waiting(units)
    waves = []
    for wave in _ordered(_together(changes, units), heads):
        started = {node: _started(changes[node], units[node], waiting) for node in wave}
        waves.append(
            {
                "changes": {node: dict(changes[node]) if node in wave else dict(NOTHING) for node in changes},
                "drain": _endpoints({node: sorted(heads[node].stops) for node in wave}),
                "answers": {node: started.get(node, []) for node in changes},
                "ready": _endpoints(
                    {node: [_service(name, units[node]) for name in names] for node, names in started.items()}
                ),
            }
        )
    return waves


def _service(name: str, units: Mapping[str, Unit]) -> str:
    return (units[name].service if name in units else None) or ""


def _endpoints(services: Mapping[str, Iterable[str]]) -> list[dict[str, str]]:
    return [{"service": service, "node": node} for node in sorted(services) for service in services[node]]


def _runs(name: str, units: Mapping[str, Unit]) -> bool:
    return name in units and units[name].active_state == "active"


def _heads(todo: Mapping[str, Any], units: Mapping[str, Unit]) -> _Heads:
    stops = {_service(name, units) for name in todo["heads_down"] if _runs(name, units)}
    starts = {
        _service(name, units) for name in todo["heads_up"] if name in todo["heads_down"] or not _runs(name, units)
    }
    return _Heads(stops, starts)


def _waiting(units: Mapping[str, Mapping[str, Unit]]) -> set[str]:
    """Services with a worker that does not start, because its node is held."""
    return {
        unit.service or ""
        for by_name in units.values()
        for unit in by_name.values()
        if unit.kind == "rpc" and unit.installed and unit.managed and not unit.enabled
    }


def _started(todo: Mapping[str, Any], units: Mapping[str, Unit], waiting: set[str]) -> list[str]:
    starts = _heads(todo, units).starts - waiting
    return [name for name in todo["heads_up"] if _service(name, units) in starts]


def _together(changes: Mapping[str, Mapping[str, Any]], units: Mapping[str, Mapping[str, Unit]]) -> list[set[str]]:
    """Returns groups of nodes that change together."""
    spans: dict[str, set[str]] = {}
    for node, todo in changes.items():
        workers = {name for name, unit in units[node].items() if unit.kind == "rpc" and unit.managed and unit.installed}
        acted = {name for step, names in todo.items() if step not in ("heads_up", "idle") for name in names}
        started = {name for name in todo["heads_up"] if not _runs(name, units[node])}
        for name in workers | acted | started:
            spans.setdefault(_service(name, units[node]), set()).add(node)
    with_workers = {
        unit.service or ""
        for by_name in units.values()
        for unit in by_name.values()
        if unit.kind == "rpc" and unit.managed
    }
    touched = {
        _service(name, units[node])
        for node, todo in changes.items()
        for step, names in todo.items()
        if step != "idle"
        for name in names
        if step != "heads_up" or not _runs(name, units[node])
    }
    groups = [{node} for node in sorted(changes)]
    for service in with_workers & touched:
        joined = [group for group in groups if group & spans.get(service, set())]
        groups = [group for group in groups if group not in joined] + ([set().union(*joined)] if joined else [])
    return sorted(groups, key=sorted)


def _ordered(groups: Iterable[set[str]], heads: Mapping[str, _Heads]) -> list[set[str]]:
    """Puts each group into the first wave in which no other replica of its services is down."""
    waves: list[set[str]] = []
    for group in sorted(groups, key=lambda nodes: (any(heads[node].stops for node in nodes), sorted(nodes))):
        for wave in waves:
            if not _collide(_all(group, heads), _all(wave, heads)):
                wave.update(group)
                break
        else:
            waves.append(set(group))
    return waves


def _all(nodes: Iterable[str], heads: Mapping[str, _Heads]) -> _Heads:
    chosen = [heads[node] for node in nodes]
    return _Heads(set().union(*(one.stops for one in chosen)), set().union(*(one.starts for one in chosen)))


def _collide(one: _Heads, other: _Heads) -> bool:
    return bool(one.stops & (other.stops | other.starts) or other.stops & one.starts)
