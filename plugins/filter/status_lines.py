# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: status_lines
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: turns the state of a cluster into lines to print"
description:
  - One line for each service, then one for each unit of each node.
positional: heads
options:
  _input:
    description: For each node the result of M(thefermisea.llama_cluster.llama_unit_info).
    type: dict
    required: true
  heads:
    description: Pairs of a head and the result of M(thefermisea.llama_cluster.llama_health) for it.
    type: list
    required: true
    elements: list
"""

EXAMPLES = """
lines: "{{ {'node1': units} | thefermisea.llama_cluster.status_lines([[head, health]]) }}"
"""

RETURN = """
_value:
  description: The lines.
  type: list
  elements: str
"""

from ..plugin_utils._reports.status import status_lines


class FilterModule:
    def filters(self):
        return {"status_lines": status_lines}
