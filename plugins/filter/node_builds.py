# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: node_builds
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says which builds of llama.cpp a node runs, and which it compiles"
description:
  - Returns what the role C(llama_cpp) installs on a node for the services there.
positional: services, host, groups, hostvars, targets, hosts
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.groups
  - thefermisea.llama_cluster.intent.host
  - thefermisea.llama_cluster.intent.hostvars
options:
  _input:
    description: The builds, as in C(llama_builds).
    type: dict
    required: true
  services:
    description: The services, as in C(llama_services).
    type: dict
    required: true
  targets:
    description: The programs that are compiled.
    type: list
    elements: str
  hosts:
    description: The nodes that this one compiles for, of which M(thefermisea.llama_cluster.node_facts) has told what
      they have.
    type: list
    elements: str
    default: []
"""

EXAMPLES = """
builds: "{{ (llama_builds | thefermisea.llama_cluster.node_builds(llama_services, inventory_hostname, groups,
  hostvars)).builds }}"
"""

RETURN = """
_value:
  description: >-
    C(builds), for each build of the node its C(release), C(version), C(accelerator), C(source), C(cmake_options) and
    what else it is made of, the one that is to be current first; C(orders), the same for those that one of O(hosts)
    lacks.
  type: dict
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._intent.builds import node_builds


class FilterModule:
    def filters(self):
        return {"node_builds": one_sentence(node_builds)}
