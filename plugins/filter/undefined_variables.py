# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: undefined_variables
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: finds variables of the collection without a value"
description:
  - Returns one sentence for each variable of the collection whose template uses what is not defined,
    or that is encrypted and cannot be read.
  - Where all have a value, it returns what Ansible says of each that is of another type than its role takes by its
    C(argument_specs), for all nodes at once. Values that only a run knows are left out.
positional: _input, nodes
options:
  _input:
    description: Ansible's C(hostvars).
    type: dict
    required: true
  nodes:
    description: The names of the nodes.
    type: list
    elements: str
    required: true
"""

EXAMPLES = """
mistakes: "{{ hostvars | thefermisea.llama_cluster.undefined_variables(groups.llama_nodes) }}"
"""

RETURN = """
_value:
  description: One sentence for each such variable; empty when there is none.
  type: list
  elements: str
"""

from ..plugin_utils._intent.variables import undefined_variables


class FilterModule:
    def filters(self):
        return {"undefined_variables": undefined_variables}
