# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: reach_refusals
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says why Ansible cannot work on a node"
description:
  - Returns one sentence for a node that cannot be reached, gives no root, or lacks a Python for modules.
positional: _input, variables, login, root, python
options:
  _input:
    description: The name of the node.
    type: str
    required: true
  variables:
    description: Its variables, as in C(hostvars).
    type: dict
    required: true
  login:
    description: The result of a task without root and without Python.
    type: dict
    required: true
  root:
    description: The result of a task with root and without Python.
    type: dict
  python:
    description: The result of a module.
    type: dict
"""

EXAMPLES = """
refused: >-
  {{ inventory_hostname
     | thefermisea.llama_cluster.reach_refusals(hostvars[inventory_hostname], login, root, python) }}
"""

RETURN = """
_value:
  description: The sentence; empty where nothing is wrong.
  type: list
  elements: str
"""

from ..plugin_utils._access.reach import refusals


class FilterModule:
    def filters(self):
        return {"reach_refusals": refusals}
