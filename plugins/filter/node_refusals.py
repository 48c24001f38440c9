# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: node_refusals
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says what keeps a node from being deployed to"
description:
  - Returns one sentence for each thing that is in the way. Without O(accounts) and O(services) it judges the system
    alone.
positional: _input, host, accounts, services
options:
  _input:
    description: The facts of the node, with those of M(thefermisea.llama_cluster.node_facts).
    type: dict
    required: true
  host:
    description: The name of the node.
    type: str
    required: true
  accounts:
    description: The accounts of heads and workers, with C(option), C(name), C(id_option) and C(id).
    type: list
    elements: dict
  services:
    description: C(heads) and C(workers) of the node, its C(address) on the fabric, and what will have made room,
      C(ending) and C(leaving).
    type: dict
"""

EXAMPLES = """
refused: "{{ ansible_facts | thefermisea.llama_cluster.node_refusals(inventory_hostname) }}"
"""

RETURN = """
_value:
  description: The sentences; empty where nothing is wrong.
  type: list
  elements: str
"""

from ..plugin_utils._access.node import node_refusals


class FilterModule:
    def filters(self):
        return {"node_refusals": node_refusals}
