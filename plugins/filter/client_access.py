# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: client_access
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says which networks get in to the ports of a node's heads"
description:
  - Returns for each head that is not stopped its C(service), C(port), C(address), the C(interface) that has the
    address, the C(networks) of its clients, the C(rules) of firewalld for them with their interface, and whether it
    C(admits) a source address.
  - Of firewalls other than firewalld it returns C(refused), a sentence for each network that a table of nftables,
    iptables or ufw keeps from the port, with the command that lets it in. A rule that cannot be read counts as one
    that lets everybody in.
options:
  _input:
    description: The heads of the node, as P(thefermisea.llama_cluster.node_serving#filter) returns them.
    type: list
    elements: dict
    required: true
  interfaces:
    description: C(interfaces) of M(thefermisea.llama_cluster.node_facts), what C(ip) says of each head's address.
    type: dict
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
  ruleset:
    description: What C(nft list ruleset) says on the node.
    type: str
    default: ""
  host:
    description: The name of the node.
    type: str
    default: ""
positional: interfaces, clients, source, ruleset, host
"""

EXAMPLES = """
heads: "{{ head_server_instances | thefermisea.llama_cluster.client_access(node.interfaces, ['10.0.0.0/8']) }}"
"""

RETURN = """
_value:
  description: One entry for each head.
  type: list
  elements: dict
"""

from ..plugin_utils._access.clients import client_access
from ..plugin_utils._filters import one_sentence


class FilterModule:
    def filters(self):
        return {"client_access": one_sentence(client_access)}
