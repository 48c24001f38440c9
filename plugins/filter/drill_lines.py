# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: drill_lines
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: turns results of drills into a table"
description:
  - A line for each drill, and one above them.
options:
  _input:
    description: Results of role drill.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = """
lines: "{{ results | thefermisea.llama_cluster.drill_lines }}"
"""

RETURN = """
_value:
  description: The lines.
  type: list
  elements: str
"""

from ..plugin_utils._reports.drill import lines


class FilterModule:
    def filters(self):
        return {"drill_lines": lines}
