# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: link_report
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: how much the links between heads and workers carry"
description:
  - Joins what M(thefermisea.llama_cluster.link_capacity) has measured and what
    M(thefermisea.llama_cluster.llama_fabric_facts) says of the ports.
options:
  _input:
    description: The variable C(hostvars).
    type: dict
    required: true
  nodes:
    description: The nodes of the play.
    type: list
    elements: str
    required: true
  seconds:
    description: How long each measurement took.
    type: int
    required: true
  measured_at:
    description: When, ISO 8601 in UTC.
    type: str
    required: true
positional: nodes, seconds, measured_at
"""

EXAMPLES = """
found: "{{ hostvars | thefermisea.llama_cluster.link_report(groups.llama_nodes, 10, '2026-11-26T10:00:00Z') }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.result) as docs/measuring.md describes it, RV(_value.lines) to print, RV(_value.name), that of the file
      without an ending, and RV(_value.refused), a sentence for each pair that was not measured.
  type: dict
"""

from ..plugin_utils._reports.link import link_report


class FilterModule:
    def filters(self):
        return {"link_report": link_report}
