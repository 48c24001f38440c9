# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: change_waves
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: decides in which order nodes change what runs behind a gateway"
description:
  - Nodes that restart replicas of one service do it one after the other, so that a gateway always finds a ready one.
    A node changes as a whole, and nodes that a changed service with workers spans change together.
options:
  _input:
    description: For each node its units, as M(thefermisea.llama_cluster.llama_unit_info) returns them.
    type: dict
    required: true
  changes:
    description: For each node what has to change, as P(thefermisea.llama_cluster.unit_changes#filter) returns it.
    type: dict
  held:
    description: Without O(changes), the node that is to be held.
    type: str
    default: ""
positional: changes, held
"""

EXAMPLES = """
waves: "{{ units | thefermisea.llama_cluster.change_waves(changes) }}"
drain: "{{ units | thefermisea.llama_cluster.change_waves(held='node2') | map(attribute='drain') | flatten }}"
"""

RETURN = """
_value:
  description:
    - A dict for each wave. RV(_value.changes) has for each node what it has to do; RV(_value.drain) the running
      endpoints that go down; RV(_value.answers) for each node the heads that start and have to answer, and
      RV(_value.ready) their endpoints.
  type: list
  elements: dict
"""

from ..plugin_utils._units.waves import change_waves


class FilterModule:
    def filters(self):
        return {"change_waves": change_waves}
