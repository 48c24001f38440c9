# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: plan_lines
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: shows a memory plan as a table"
description:
  - Returns lines to print, for each service a row per device with node, device, layers, weights, KV cache,
    compute buffers, margin, total and free memory in MiB.
positional: _input, only
options:
  _input:
    description: What P(thefermisea.llama_cluster.memory_plan#filter) returned.
    type: dict
    required: true
  only:
    description: The one service to show; empty for all.
    type: str
    default: ""
"""

EXAMPLES = """
lines: "{{ plan | thefermisea.llama_cluster.plan_lines }}"
"""

RETURN = """
_value:
  description: The lines.
  type: list
  elements: str
"""

from ..module_utils._plan.table import lines


class FilterModule:
    def filters(self):
        return {"plan_lines": lines}
