# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: monitoring_addresses
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: who may read what a host counts"
description:
  - Returns the addresses from which the hosts of C(llama_monitoring) come to a host, none without such a host.
positional: groups, hostvars
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.groups
  - thefermisea.llama_cluster.intent.hostvars
options:
  _input:
    description: The name of the host.
    type: str
    required: true
"""

EXAMPLES = """
addresses: "{{ inventory_hostname | thefermisea.llama_cluster.monitoring_addresses(groups, hostvars) }}"
"""

RETURN = """
_value:
  description: IPv4 addresses.
  type: list
  elements: str
"""

from ..plugin_utils._intent.monitoring import allowed


class FilterModule:
    def filters(self):
        return {"monitoring_addresses": allowed}
