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
  - A head goes down first when it is unwanted or stale, or when one of its workers changes on any node,
    and comes up last.
positional: host, wanted, degraded, services
options:
  _input:
    description: For each node its units, as M(thefermisea.llama_cluster.llama_unit_info) returns them.
    type: dict
    required: true
  host:
    description: The node's inventory name.
    type: str
    required: true
  wanted:
    description: For each node the units it should have, as the filter
      P(thefermisea.llama_cluster.wanted_units#filter) returns them.
    type: dict
    required: true
  degraded:
    description: Services whose head lost a worker.
    type: list
    elements: str
    required: true
  services:
    description: The services that may be touched; all where none is named.
    type: list
    elements: str
    default: []
"""

EXAMPLES = """
changes: >-
  {{ nodes | thefermisea.llama_cluster.unit_changes(inventory_hostname, llama_services
     | thefermisea.llama_cluster.wanted_units(groups), []) }}
"""

RETURN = """
_value:
  description: Lists of unit names in the order to act on them, heads_down, unwanted, workers_restart, workers_start
    and heads_up; and idle, whether they leave everything as it is.
  type: dict
"""

from ..plugin_utils._units.changes import unit_changes


class FilterModule:
    def filters(self):
        return {"unit_changes": unit_changes}
