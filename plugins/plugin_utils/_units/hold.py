# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to stop so that a node can be held for maintenance. Private to the collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._node.units import units_of


def hold_changes(nodes: Mapping[str, Iterable[Mapping[str, Any]]], host: str, held: str) -> dict[str, list[str]]:
    """What `host` has to do before node `held` can go: lists of units, as unit_changes() has them.

    nodes: {node: units as llama_unit_info returns them}. heads_down: running heads that are on the held node, or lose a
    worker there; held: all units of that node, which must not come back at boot; heads_up: heads of other nodes, which
    wait for their worker as after a boot.
    """
    own = host == held
    mine = units_of(nodes[host])
    lost = {unit.service for unit in units_of(nodes[held]) if unit.kind == "rpc" and unit.installed}
    heads = [unit for unit in mine if unit.kind == "head" and unit.installed and (own or unit.service in lost)]
    return {
        "heads_down": [unit.name for unit in heads if unit.sub_state == "running"],
        "held": [unit.name for unit in mine if unit.installed] if own else [],
        "unwanted": [],
        "workers_restart": [],
        "workers_start": [],
        "heads_up": [] if own else [unit.name for unit in heads],
    }
