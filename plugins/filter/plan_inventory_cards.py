# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: plan_inventory_cards
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: the cards that an inventory says its nodes have"
description:
  - Collects C(llama_devices) of nodes, as M(thefermisea.llama_cluster.llama_plan) takes its devices.
positional: _input, hostvars, groups
options:
  _input:
    description: The nodes. Without any they are those of C(llama_nodes) that have cards, or all where none has one,
      the primary service's head last.
    type: list
    elements: str
    required: true
  hostvars:
    description: Ansible's C(hostvars).
    type: dict
    required: true
  groups:
    description: Ansible's C(groups).
    type: dict
    required: true
"""

EXAMPLES = """
devices: "{{ groups.llama_nodes | thefermisea.llama_cluster.plan_inventory_cards(hostvars, groups) }}"
"""

RETURN = """
_value:
  description: For each card its node and what C(llama_devices) says of it.
  type: list
  elements: dict
"""

from ..plugin_utils._cluster_plan.cards import inventory_cards


class FilterModule:
    def filters(self):
        return {"plan_inventory_cards": inventory_cards}
