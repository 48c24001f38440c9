# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: node_rpc
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: Resolves services to what one node has to do with RPC
description:
  - Returns what the role C(rpc_worker) configures on a node, and whom its firewall lets pass.
positional: host, groups, hostvars, plan
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.groups
  - thefermisea.llama_cluster.intent.host
options:
  _input:
    description: The services, as in C(llama_services).
    type: dict
    required: true
  hostvars:
    description: Ansible's C(hostvars); the nodes need C(llama_fabric_address).
    type: dict
    required: true
  plan:
    description: The memory plan, as P(thefermisea.llama_cluster.memory_plan#filter) returns it. Services with C(cards)
      need it.
    type: dict
    default: {}
"""

EXAMPLES = """
rpc_worker_instances: >-
  {{ (llama_services
      | thefermisea.llama_cluster.node_rpc(inventory_hostname, groups, hostvars)).workers }}
"""

RETURN = """
_value:
  description: What the node has to do with RPC.
  type: dict
  contains:
    workers:
      description: For each worker its service, unit, address, port, the address of its head,
        and the arguments of ggml-rpc-server.
      type: list
      elements: dict
    access:
      description:
        - C(incoming), HEAD:PORT for each worker of the node, C(outgoing), WORKER:PORT for each worker of the heads
          of the node, and C(clients), NETWORK:PORT for whoever may use its heads, where there is a gateway.
        - See the entry point C(firewall) of role C(node_setup).
      type: dict
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._intent.services import node_rpc


class FilterModule:
    def filters(self):
        return {"node_rpc": one_sentence(node_rpc)}
