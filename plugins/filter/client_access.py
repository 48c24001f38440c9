# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: client_access
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says which networks get in to the ports of a node's heads"
description:
  - Returns for each head its C(service), C(port), C(address), the C(interface) that has the address, the C(networks)
    of its clients, the C(rules) of firewalld for them with their interface, and whether it C(admits) a source
    address.
positional: shown, clients, source
options:
  _input:
    description: The heads of the node, as P(thefermisea.llama_cluster.head_instances#filter) returns them.
    type: list
    elements: dict
    required: true
  shown:
    description: What C(ip -oneline -4 address show to ADDRESS) says for each of them.
    type: list
    elements: str
    required: true
  clients:
    description: The networks of the clients, none for that of the head's own interface.
    type: list
    elements: str
    required: true
  source:
    description: The address that somebody comes from.
    type: str
    default: ""
"""

EXAMPLES = """
heads: "{{ head_server_instances | thefermisea.llama_cluster.client_access(shown, ['10.0.0.0/8']) }}"
"""

RETURN = """
_value:
  description: One entry for each head.
  type: list
  elements: dict
"""

from ..plugin_utils._access.clients import access
from ..plugin_utils._filters import one_sentence


class FilterModule:
    def filters(self):
        return {"client_access": one_sentence(access)}
