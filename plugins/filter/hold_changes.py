# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: hold_changes
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: what has to stop so that a node can be held for maintenance"
description:
  - Heads that are on the node, or lose a worker there, and every unit of the node.
options:
  _input:
    description: For each node its units, as M(thefermisea.llama_cluster.llama_unit_info) returns them.
    type: dict
    required: true
  host:
    description: The node that asks.
    type: str
    required: true
  held:
    description: The node that is to be held.
    type: str
    required: true
positional: host, held
"""

EXAMPLES = """
apply_changes: "{{ units | thefermisea.llama_cluster.hold_changes(inventory_hostname, 'node2') }}"
"""

RETURN = """
_value:
  description:
    - Lists of units as P(thefermisea.llama_cluster.unit_changes#filter) returns them, and RV(_value.held), those that
      stop and do not start at boot.
  type: dict
"""

from ..plugin_utils._units.hold import hold_changes


class FilterModule:
    def filters(self):
        return {"hold_changes": hold_changes}
