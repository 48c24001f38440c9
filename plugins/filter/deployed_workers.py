# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: deployed_workers
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: finds a node's RPC workers by their units"
description:
  - What is deployed, with its address, whatever the inventory says by now.
options:
  _input:
    description: The node's units, as M(thefermisea.llama_cluster.llama_unit_info) returns them.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = """
workers: "{{ node.units | thefermisea.llama_cluster.deployed_workers }}"
"""

RETURN = """
_value:
  description: For each worker service, unit and endpoint.
  type: list
  elements: dict
"""

from ..plugin_utils._units.changes import deployed_workers


class FilterModule:
    def filters(self):
        return {"deployed_workers": deployed_workers}
