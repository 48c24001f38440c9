# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: rpc_instances
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: Resolves services to the RPC workers of one node
description:
  - Returns what the role C(rpc_worker) configures on a node.
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
rpc_worker_instances: >-
  {{ llama_services
     | thefermisea.llama_cluster.rpc_instances(inventory_hostname, groups, hostvars) }}
"""

RETURN = """
_value:
  description: For each worker its service, unit, address, port, the address of its head,
    and the arguments of ggml-rpc-server.
  type: list
  elements: dict
"""

from ..plugin_utils._filters import as_dicts
from ..plugin_utils._intent.services import rpc_instances


class FilterModule:
    def filters(self):
        return {"rpc_instances": as_dicts(rpc_instances)}
