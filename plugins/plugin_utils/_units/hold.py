# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units to stop before a node is held for maintenance. Private to the collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._node.units import ANSWERING, units_of


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
