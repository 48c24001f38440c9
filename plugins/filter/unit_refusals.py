# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: unit_refusals
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says what keeps a node from having its workers or heads"
description:
  - Returns one sentence for each thing that is missing or in the way.
positional: _input, kind, node, host, build, at_boot, deployed
options:
  _input:
    description: The instances of the node, of P(thefermisea.llama_cluster.rpc_instances#filter)
      or P(thefermisea.llama_cluster.head_instances#filter).
    type: list
    elements: dict
    required: true
  kind:
    description: V(rpc) or V(head).
    type: str
    required: true
  node:
    description: The fact C(llama_node) with C(units), C(build) and, for heads, C(files) with their models.
    type: dict
    required: true
  host:
    description: The name of the node.
    type: str
    required: true
  build:
    description: The path of the build to run.
    type: str
    required: true
  at_boot:
    description: Whether the primary service answers to its short name.
    type: bool
    required: true
  deployed:
    description: Whether earlier tasks have really installed build and models.
    type: bool
    required: true
"""

EXAMPLES = """
refused: >-
  {{ rpc_worker_instances
     | thefermisea.llama_cluster.unit_refusals('rpc', ansible_facts.llama_node, inventory_hostname,
         '/opt/llama.cpp/current', true, true) }}
"""

RETURN = """
_value:
  description: The sentences; empty where nothing is wrong.
  type: list
  elements: str
"""

from ..plugin_utils._units.refusals import unit_refusals


class FilterModule:
    def filters(self):
        return {"unit_refusals": unit_refusals}
