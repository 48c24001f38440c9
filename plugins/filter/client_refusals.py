# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: client_refusals
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: finds firewalls other than firewalld that keep clients from heads"
description:
  - Returns one sentence for each network that a table of nftables, iptables
    or ufw keeps from a head's port, with the command that lets it in. A rule that cannot be read counts as one that
    lets everybody in.
positional: ruleset, host
options:
  _input:
    description: The heads, as P(thefermisea.llama_cluster.client_access#filter) returns them.
    type: list
    elements: dict
    required: true
  ruleset:
    description: What C(nft list ruleset) says on their node.
    type: str
    required: true
  host:
    description: The name of the node.
    type: str
    required: true
"""

EXAMPLES = """
refused: "{{ heads | thefermisea.llama_cluster.client_refusals(ruleset.stdout, inventory_hostname) }}"
"""

RETURN = """
_value:
  description: One sentence for each mistake.
  type: list
  elements: str
"""

from ..plugin_utils._access.clients import refusals


class FilterModule:
    def filters(self):
        return {"client_refusals": refusals}
