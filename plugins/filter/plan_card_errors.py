# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: plan_card_errors
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: what is wrong with the cards that a plan is made for"
description:
  - For a plan that asks no node. Returns one sentence for each mistake.
positional: _input, nodes, groups, hostvars, each
options:
  _input:
    description: Cards as P(thefermisea.llama_cluster.plan_cards#filter) reads them; empty for C(llama_devices) of the
      nodes.
    type: str
    required: true
  nodes:
    description: A pattern of hosts.
    type: str
    required: true
  groups:
    description: Ansible's C(groups).
    type: dict
    required: true
  hostvars:
    description: Ansible's C(hostvars).
    type: dict
    required: true
  each:
    description: Whether every one of the nodes needs cards.
    type: bool
    default: false
"""

EXAMPLES = """
mistakes: >-
  {{ devices | default('')
     | thefermisea.llama_cluster.plan_card_errors('llama_nodes', groups, hostvars, true) }}
"""

RETURN = """
_value:
  description: The sentences.
  type: list
  elements: str
"""

from ..plugin_utils._cluster_plan.cards import card_errors


class FilterModule:
    def filters(self):
        return {"plan_card_errors": card_errors}
