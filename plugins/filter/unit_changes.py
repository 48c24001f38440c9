# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: unit_changes
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: decides which units of a node stop, start and restart"
description:
  - Compares the units of all nodes with what the services want, by state alone.
  - A head goes down first when it is unwanted or stale, or when one of its workers changes on any node, and comes
    up last.
  - With O(held) it says what has to stop so that a node can be held for maintenance, heads that are on it, or lose
    a worker there, and every unit of the node.
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.host
options:
  _input:
    description: For each node its units, as M(thefermisea.llama_cluster.llama_unit_info) returns them.
    type: dict
    required: true
  wanted:
    description:
      - For each node the units it should have, C(units) of P(thefermisea.llama_cluster.node_serving#filter).
    type: dict
    default: {}
  degraded:
    description: Services whose head lost a worker.
    type: list
    elements: str
    default: []
  services:
    description: The services that may be touched; all where none is named.
    type: list
    elements: str
    default: []
  held:
    description: The node that is to be held; empty for none.
    type: str
    default: ""
  stopped:
    description: The names of wanted units that do not run, C(stopped) of
      P(thefermisea.llama_cluster.node_serving#filter).
    type: list
    elements: str
    default: []
positional: host, wanted, degraded, services, held, stopped
"""

EXAMPLES = """
changes: "{{ units | thefermisea.llama_cluster.unit_changes('node1', {'node1': ['llama-head-chat.service']}) }}"
held: "{{ units | thefermisea.llama_cluster.unit_changes('node1', held='node2') }}"
"""

RETURN = """
_value:
  description:
    - Lists of unit names in the order to act on them, RV(_value.heads_down), RV(_value.unwanted),
      RV(_value.workers_restart), RV(_value.workers_start) and RV(_value.heads_up); those that stop and do not start at
      boot, RV(_value.held) of a node that is to be held, else RV(_value.resting) of services that are stopped; and
      RV(_value.idle), whether they leave everything as it is.
  type: dict
"""

from ..plugin_utils._units.changes import unit_changes


class FilterModule:
    def filters(self):
        return {"unit_changes": unit_changes}
