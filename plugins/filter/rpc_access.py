# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: rpc_access
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: Resolves services to who may use RPC on one node
description:
  - Returns what the firewall of a node lets pass, see the entry point C(firewall) of role C(node_setup).
positional: host, groups, hostvars
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
"""

EXAMPLES = """
node_setup_rpc_access: >-
  {{ llama_services
     | thefermisea.llama_cluster.rpc_access(inventory_hostname, groups, hostvars) }}
"""

RETURN = """
_value:
  description: C(incoming), HEAD:PORT for each worker of the node, and C(outgoing), WORKER:PORT for each worker of the
    heads of the node.
  type: dict
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._intent.services import rpc_access


class FilterModule:
    def filters(self):
        return {"rpc_access": one_sentence(rpc_access)}
