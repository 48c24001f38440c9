# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: node_clients
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says which networks may use the ports of a node's heads"
description:
  - Returns the networks of C(llama_clients) of the node. Where group C(llama_gateway) has a host, those of its hosts
    come with them, and those of the workers of the node's heads, whose watchdog looks whether their head listens.
    C(127.0.0.0/8) is for the node itself alone.
  - An empty list is for the network of each head.
positional: host, groups, hostvars
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.groups
  - thefermisea.llama_cluster.intent.hostvars
  - thefermisea.llama_cluster.intent.host
options:
  _input:
    description: The services, as in C(llama_services).
    type: dict
    required: true
"""

EXAMPLES = """
networks: "{{ llama_services | thefermisea.llama_cluster.node_clients(inventory_hostname, groups, hostvars) }}"
"""

RETURN = """
_value:
  description: The networks.
  type: list
  elements: str
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._intent.services import node_clients


class FilterModule:
    def filters(self):
        return {"node_clients": one_sentence(node_clients)}
