# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to stop, start and restart so that the units that run are the ones the inventory wants. Private to the collection."""

from ._intent import expand


def unit_changes(nodes, host, services, groups, degraded):
    """What a node has to do, as lists of unit names, in the order it has to be done.

    nodes: {node: units as llama_unit_info returns them}, of every node of the play; degraded: services whose head lost a worker.

    heads_down: stopped first, because they are unwanted, stale, degraded, or because one of their workers stops or starts somewhere.
    unwanted: stopped, disabled and removed. workers_restart, workers_start: then the workers. heads_up: every wanted head, last.
    Nothing disabled is started: it belongs to a node that is held for maintenance.
    """
    workers = {node: _workers(node, units, services, groups) for node, units in nodes.items()}
    disturbed = set(degraded)
    for changes in workers.values():
        for names in changes.values():
            disturbed.update(name[len("llama-rpc-") : -len(".service")] for name in names)
    heads = [unit for unit in nodes[host] if unit["kind"] == "head" and unit["installed"]]
    wanted = [unit for unit in heads if unit["service"] in services and host in expand(services[unit["service"]]["head"], groups)]
    unwanted = [unit["name"] for unit in heads if unit not in wanted]
    return {
        "heads_down": unwanted + [unit["name"] for unit in wanted if unit["stale"] or unit["service"] in disturbed],
        "unwanted": workers[host]["unwanted"] + unwanted,
        "workers_restart": workers[host]["restart"],
        "workers_start": workers[host]["start"],
        "heads_up": [unit["name"] for unit in wanted if unit["enabled"]],
    }


def _workers(node, units, services, groups):
    units = [unit for unit in units if unit["kind"] == "rpc" and unit["installed"]]
    wanted = [unit for unit in units if unit["service"] in services and node in expand(services[unit["service"]].get("workers", ""), groups)]
    return {
        "unwanted": [unit["name"] for unit in units if unit not in wanted],
        "restart": [unit["name"] for unit in wanted if unit["stale"]],
        # A worker that systemd is about to restart counts as down: its head has lost it already.
        "start": [unit["name"] for unit in wanted if unit["enabled"] and unit["active_state"] != "active"],
    }
