# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: drill_report
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: how long detection, restart and load of drills took"
description:
  - Puts together what the nodes say about each break.
options:
  _input:
    description:
      - Results of role drill, each with C(drill), C(what), C(result), C(reason) and, for a break, C(broken_at),
        C(restored_at), C(recovery) of M(thefermisea.llama_cluster.llama_recovery), and C(timelines), results of
        M(thefermisea.llama_cluster.llama_timeline) by node.
    type: list
    elements: dict
    required: true
  catalog:
    description: The catalogue of role drill.
    type: dict
    required: true
positional: catalog
"""

EXAMPLES = """
report: "{{ results | thefermisea.llama_cluster.drill_report({'head_kill': {'kind': 'restart'}}) }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.drills), the results with C(events) by node, and C(phases), seconds of C(detection), C(held),
      C(restart), C(load) and C(total), C(client_cut) and C(noticed_by); RV(_value.lines), a line for each drill,
      and one above them.
  type: dict
"""

from ..plugin_utils._reports.drill import drill_report


class FilterModule:
    def filters(self):
        return {"drill_report": drill_report}
