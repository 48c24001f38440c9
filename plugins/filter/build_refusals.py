# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: build_refusals
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says what is wrong with the builds that a head and its workers would run"
description:
  - Head and workers of a service run one commit, compiled one way for each accelerator, and each file of a build is the
    one that its manifest lists.
positional: _input, wanted, runs
options:
  _input:
    description: For each node its units and builds, as M(thefermisea.llama_cluster.node_facts) tells them.
    type: dict
    required: true
  wanted:
    description: For each node the names of the units whose builds count.
    type: dict
    default: {}
  runs:
    description: What is to run instead of what units name, the heads and workers of each node.
    type: dict
"""

EXAMPLES = """
refused: "{{ {'node1': ansible_facts.llama_node} | thefermisea.llama_cluster.build_refusals(apply_wanted) }}"
"""

RETURN = """
_value:
  description: The sentences; empty where nothing is wrong.
  type: list
  elements: str
"""

from ..plugin_utils._access.units import build_refusals


class FilterModule:
    def filters(self):
        return {"build_refusals": build_refusals}
