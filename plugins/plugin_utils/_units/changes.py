# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units to stop, start and restart so that the inventory's units run. Private to the collection."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._node.units import ANSWERING, Unit, units_of

# As llama_unit_info returns them.
Units = Iterable[Mapping[str, Any]]


def unit_changes(
    nodes: Mapping[str, Units],
    host: str,
    wanted: Mapping[str, Sequence[str]] | None = None,
    degraded: Iterable[str] = (),
    services: Sequence[str] = (),
    held: str = "",
    stopped: Collection[str] = (),
) -> dict[str, Any]:
    """Returns the changes of a node as lists of unit names, in the order of execution.

    nodes: {node: units as llama_unit_info returns them}, of every node of the play; wanted: as wanted_units() returns
    them; degraded: services whose head lost a worker; services: the services that may change, all if empty; held: the
    node to hold for maintenance, then hold_changes() decides; stopped: names of wanted units that must not run.

    heads_down: stopped first, because they are unwanted, stale, degraded, because one of their workers stops or starts
    on any node, or because they failed and wait for their next start.
    unwanted: stopped, disabled and removed. resting: units of stopped that run or would start at boot, stopped and
    disabled. workers_restart, workers_start: then the workers. heads_up: every wanted head that runs, last.
    idle: whether nothing changes.
    A router is a head here, without workers. Nothing disabled is started: it belongs to a node that is held for
    maintenance. Unmanaged units stay as they are, whatever their name.
    """
    if held:
        return dict(hold_changes(nodes, host, held), idle=False)
    wanted = wanted or {}
    found = {
        node: [unit for unit in units_of(units) if not services or unit.service in services]
        for node, units in nodes.items()
    }
    workers = {node: _workers(units, wanted.get(node, []), stopped) for node, units in found.items()}
    disturbed = set(degraded)
    for node, changes in workers.items():
        changing = {name for names in changes.values() for name in names}
        disturbed.update(unit.service or "" for unit in found[node] if unit.name in changing)
    heads = [unit for unit in found[host] if unit.kind in ANSWERING and unit.installed and unit.managed]
    kept = [unit for unit in heads if unit.name in wanted.get(host, []) and unit.name not in stopped]
    unwanted = [unit.name for unit in heads if unit.name not in wanted.get(host, [])]
    resting = _resting(heads, wanted.get(host, []), stopped)
    todo = {
        "heads_down": unwanted
        + resting
        + [unit.name for unit in kept if unit.stale or unit.failed_in_a_row or unit.service in disturbed],
        "unwanted": workers[host]["unwanted"] + unwanted,
        "resting": workers[host]["resting"] + resting,
        "workers_restart": workers[host]["restart"],
        "workers_start": workers[host]["start"],
        "heads_up": [unit.name for unit in kept if unit.enabled],
    }
    up = [unit.name for unit in heads if unit.active_state == "active"]
    still = not any(names for step, names in todo.items() if step != "heads_up")
    return dict(todo, idle=still and set(todo["heads_up"]) <= set(up))


def _resting(units: Iterable[Unit], wanted: Sequence[str], stopped: Collection[str]) -> list[str]:
    """Names of stopped units that run or would start at boot."""
    return [
        unit.name
        for unit in units
        if unit.name in wanted
        and unit.name in stopped
        and (unit.enabled or unit.active_state not in ("inactive", "failed"))
    ]


def _workers(units: Iterable[Unit], wanted: Sequence[str], stopped: Collection[str]) -> dict[str, list[str]]:
    units = [unit for unit in units if unit.kind == "rpc" and unit.installed and unit.managed]
    kept = [unit for unit in units if unit.name in wanted and unit.name not in stopped]
    return {
        "unwanted": [unit.name for unit in units if unit.name not in wanted],
        "resting": _resting(units, wanted, stopped),
        "restart": [unit.name for unit in kept if unit.stale or unit.failed_in_a_row],
        # A worker that systemd is about to restart counts as down: its head has lost it already.
        "start": [unit.name for unit in kept if unit.enabled and unit.active_state != "active"],
    }


def hold_changes(nodes: Mapping[str, Iterable[Mapping[str, Any]]], host: str, held: str) -> dict[str, list[str]]:
    """Returns the changes of `host` before node `held` is held: lists of units, as unit_changes() has them.

    nodes: {node: units as node_facts returns them}. Only managed heads, routers and workers change: watchdog and
    firewall of a held node keep running. heads_down: running heads that are on the held node, or lose a worker there;
    held: all units of that node, which must not start at boot; heads_up: heads of other nodes, which wait for their
    worker as after a boot, unless their own node is held too.
    """
    own = host == held
    mine, theirs = (
        [unit for unit in units_of(nodes[node]) if unit.kind in ("rpc", *ANSWERING) and unit.installed and unit.managed]
        for node in (host, held)
    )
    lost = {unit.service for unit in theirs if unit.kind == "rpc"}
    heads = [unit for unit in mine if unit.kind in ANSWERING and (own or unit.service in lost)]
    return {
        "heads_down": [unit.name for unit in heads if unit.sub_state == "running"],
        "held": [unit.name for unit in mine] if own else [],
        "unwanted": [],
        "workers_restart": [],
        "workers_start": [],
        "heads_up": [] if own else [unit.name for unit in heads if unit.enabled],
    }
