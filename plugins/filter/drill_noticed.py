# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: drill_noticed
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: when nodes noticed what a drill broke"
description:
  - The time of the first event that shows the fault.
positional: drill, after
options:
  _input:
    description: Events as M(thefermisea.llama_cluster.llama_timeline) returns them.
    type: list
    elements: dict
    required: true
  drill:
    description: Entry of the catalogue of role drill.
    type: dict
    required: true
  after:
    description: Time of the break in seconds since 1970.
    type: float
    required: true
"""

EXAMPLES = """
at: "{{ timeline.events | thefermisea.llama_cluster.drill_noticed({'kind': 'restart'}, 1795292605.5) }}"
"""

RETURN = """
_value:
  description: Seconds since 1970, or nothing.
  type: float
"""

from ..plugin_utils._reports.drill import noticed


class FilterModule:
    def filters(self):
        return {"drill_noticed": noticed}
