# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: doctor_report
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: what the doctor found on all nodes"
description:
  - Puts the findings of all nodes beside what only all of them together show, the worst first, or tells the story of
    one failure.
options:
  _input:
    description: C(hostvars), with C(doctor_node), what M(thefermisea.llama_cluster.llama_doctor) has returned.
    type: dict
    required: true
  hosts:
    description: The hosts that should have been looked at.
    type: list
    elements: str
    required: true
  explained:
    description: The unit or service whose last failure is told, instead of findings.
    type: str
    default: ""
  inventories:
    description: Those of this run, C(ansible_inventory_sources), which the commands of findings get.
    type: list
    elements: str
    default: []
positional: hosts, explained, inventories
"""

EXAMPLES = """
report: "{{ hostvars | thefermisea.llama_cluster.doctor_report(ansible_play_hosts_all) }}"
"""

RETURN = """
_value:
  description:
    - C(lines) for a terminal; C(code), 0 for healthy, 1 for findings, 2 where something could not be looked at; C(end),
      the last word; C(findings); C(failed), what could not be looked at; C(nodes), the evidence.
  type: dict
"""

from ..plugin_utils._doctor.cluster import doctor_report


class FilterModule:
    def filters(self):
        return {"doctor_report": doctor_report}
