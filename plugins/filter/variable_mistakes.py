# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: variable_mistakes
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: finds variables of an inventory that nothing reads, or that have no value"
description:
  - A variable that looks like one of the collection's is unknown where no role reads it and no other variable uses it.
  - Names given with C(-e NAME=VALUE) need not look like one. No variable of Ansible tells them from those of an
    inventory, so they are read from the options of the command, and the answer depends on these, too.
  - A variable of the collection is undefined where its template uses what is not defined, or where it is encrypted and
    cannot be read. Values that only a run knows are left out.
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
warned: "{{ (hostvars | thefermisea.llama_cluster.variable_mistakes(groups.llama_nodes)).unknown }}"
refused: "{{ (hostvars | thefermisea.llama_cluster.variable_mistakes(groups.llama_nodes)).undefined }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.unknown), one sentence for each such variable, with its nodes where not all have it, and the nearest
      known name where one is near, and for each file of C(group_vars) and C(host_vars) that belongs to no group or
      host.
    - RV(_value.undefined), one sentence for each such variable.
  type: dict
"""

from ansible import context
from ansible.module_utils.common.text.converters import to_text
from ansible.parsing.splitter import parse_kv

from ..plugin_utils._intent.variables import variable_mistakes


def _typed():
    """The names given with -e NAME=VALUE, which no variable of Ansible tells from others. A file of -e @FILE may hold
    what is for somebody else."""
    texts = [to_text(text) for text in context.CLIARGS.get("extra_vars") or ()]
    return {name for text in texts if not text.startswith(("@", "{", "[")) for name in parse_kv(text)}


class FilterModule:
    def filters(self):
        return {"variable_mistakes": lambda hostvars, nodes: variable_mistakes(hostvars, nodes, _typed())}
