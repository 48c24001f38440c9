# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: drill_phases
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: how long detection, restart and load took"
description:
  - Puts together what the nodes say about a break.
positional: broken_at, restored_at, nodes, recovery
options:
  _input:
    description: Entry of the catalogue of role drill.
    type: dict
    required: true
  broken_at:
    description: Time of the break in seconds since 1970, by the clock of the node that was broken.
    type: float
    required: true
  restored_at:
    description: When the fault was taken away; nothing where it does not stay.
    type: float
  nodes:
    description: Results of M(thefermisea.llama_cluster.llama_timeline) by node.
    type: dict
    required: true
  recovery:
    description: Result of M(thefermisea.llama_cluster.llama_recovery), or an empty one.
    type: dict
    required: true
"""

EXAMPLES = """
seconds: "{{ {'kind': 'restart'} | thefermisea.llama_cluster.drill_phases(1795292605.5, none, nodes, recovery) }}"
"""

RETURN = """
_value:
  description: Seconds of C(detection), C(held), C(restart), C(load) and C(total), and C(noticed_by).
  type: dict
"""

from ..plugin_utils._reports.drill import phases


class FilterModule:
    def filters(self):
        return {"drill_phases": phases}
