# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: plan_devices
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: the devices of a node that layers can lie on"
description:
  - Its GPUs, or its main memory where it has none. What processes of the collection's own units use counts as free.
options:
  _input:
    description: The node's inventory name.
    type: str
    required: true
  gpus:
    description: C(gpus) of the facts that M(thefermisea.llama_cluster.nvidia_smi_facts) sets.
    type: list
    elements: dict
    required: true
  memory_mib:
    description: The node's main memory.
    type: int
    required: true
  margin_mib:
    description: What to keep free on each device.
    type: int
    required: true
  pids:
    description: Processes of the collection's own units.
    type: list
    elements: int
    default: []
  visible:
    description: E(CUDA_VISIBLE_DEVICES) of the units, where it is set.
    type: str
  described:
    description:
      - The node's C(llama_devices), one for each card that is used, in order. Their C(bandwidth) counts more than
        what the collection knows of a card, and their C(memory_mib) is taken for one whose memory C(nvidia-smi) does
        not tell.
    type: list
    elements: dict
    default: []
  order:
    description: E(CUDA_DEVICE_ORDER) that the inventory gives the units; without it they have V(PCI_BUS_ID).
    type: str
positional: gpus, memory_mib, margin_mib, pids, visible, described, order
"""

EXAMPLES = """
devices: "{{ inventory_hostname | thefermisea.llama_cluster.plan_devices(nvidia_smi.gpus, 128000, 1024) }}"
"""

RETURN = """
_value:
  description:
    - For each device its node, device, name, kind (V(GPU) or V(main)), total_mib, others_mib, others (the processes
      that have those, in words, with their MiB), margin_mib, bandwidth in GB/s, the card's uuid, and unified, whether
      its memory is the node's main memory.
  type: list
  elements: dict
"""

from ..module_utils._plan.devices import as_dicts, of_node
from ..plugin_utils._filters import one_sentence


def plan_devices(*args, **kwargs):
    return as_dicts(of_node(*args, **kwargs))


class FilterModule:
    def filters(self):
        return {"plan_devices": one_sentence(plan_devices)}
