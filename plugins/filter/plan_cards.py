# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: plan_cards
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: reads cards as an operator types them"
description:
  - Turns V(2x24GB+24GB,48GB) into five cards, two in each of two nodes and one in a third. GB and GiB are 1024 MiB,
    as on the box of a card; a number alone is MiB. V(main:256GB) is a node without a card, of so much main memory.
options:
  _input:
    description: COUNTxSIZE or SIZE for each node, with commas between nodes and + between the cards of one node.
    type: str
    required: true
"""

EXAMPLES = """
devices: "{{ '3x24GB' | thefermisea.llama_cluster.plan_cards }}"
"""

RETURN = """
_value:
  description: For each card its C(node) (V(node1), V(node2)), name and C(memory_mib), and C(main) for main memory.
  type: list
  elements: dict
"""

from ..plugin_utils._cluster_plan.cards import cards
from ..plugin_utils._filters import one_sentence


class FilterModule:
    def filters(self):
        return {"plan_cards": one_sentence(cards)}
