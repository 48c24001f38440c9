# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: plan_card_devices
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: the devices of a node as the inventory describes them"
description:
  - For a plan that asks no node.
positional: _input, cards, margin_mib
options:
  _input:
    description: The node's inventory name.
    type: str
    required: true
  cards:
    description:
      - The node's C(llama_devices), each a card with C(name), C(memory_mib) and C(bandwidth) in GB/s,
        or C(main) with V(true) and C(memory_mib) for the main memory of a node without a GPU.
    type: list
    elements: dict
    required: true
  margin_mib:
    description: What to keep free on each device.
    type: int
    required: true
"""

EXAMPLES = """
devices: "{{ inventory_hostname | thefermisea.llama_cluster.plan_card_devices(llama_devices, 1024) }}"
"""

RETURN = """
_value:
  description: The devices, as P(thefermisea.llama_cluster.plan_node_devices#filter) returns them.
  type: list
  elements: dict
"""

from ..module_utils._plan.devices import of_inventory
from ..plugin_utils._filters import as_dicts


class FilterModule:
    def filters(self):
        return {"plan_card_devices": as_dicts(of_inventory)}
