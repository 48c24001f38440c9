# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: plan_cards
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: the cards that somebody wrote down, for a plan that asks no node"
description:
  - Reads cards as an operator types them, or takes C(llama_devices) of nodes, and says what is wrong with them.
  - V(2x24GB+24GB,48GB) is two nodes with two cards and a third one with one. GB and GiB are 1024 MiB, as on the box
    of a card; a number alone is MiB. V(main:256GB) is a node without a card, of so much main memory, and
    V(24GB+main:256GB) one with a card beside it.
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.groups
  - thefermisea.llama_cluster.intent.hostvars
options:
  _input:
    description:
      - COUNTxSIZE or SIZE for each node, with commas between nodes and + between the cards of one node. Empty for
        C(llama_devices) of O(nodes).
    type: str
    required: true
  nodes:
    description:
      - A pattern of hosts. Without one they are those of C(llama_nodes) that have cards, or all where none has one,
        the head of the primary service last.
    type: str
    default: ""
  margin_mib:
    description: What to keep free on each device, where every one of the nodes needs devices.
    type: int
positional: groups, hostvars, nodes, margin_mib
"""

EXAMPLES = """
written: "{{ '3x24GB' | thefermisea.llama_cluster.plan_cards(groups, hostvars) }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.refused), a sentence for each mistake. Where there is none, RV(_value.cards), for each card its
      C(node) (V(node1), V(node2) of what was typed), C(name), C(memory_mib), and C(main) for main memory.
    - With O(margin_mib) also RV(_value.devices), for each node its devices, as
      P(thefermisea.llama_cluster.plan_devices#filter) returns them, and RV(_value.main), the main memory of each
      node in the same form, an empty map where nobody says.
  type: dict
"""

from ..plugin_utils._cluster_plan.cards import plan_cards


class FilterModule:
    def filters(self):
        return {"plan_cards": plan_cards}
