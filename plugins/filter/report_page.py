# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: report_page
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: the report as one file for a browser"
description:
  - Writes HTML that loads nothing, with the criteria, both readings of the targets, and earlier runs beside this one.
options:
  _input:
    description: C(result) of P(thefermisea.llama_cluster.criteria_report#filter).
    type: dict
    required: true
  texts:
    description: What is kept of earlier runs, the content of each file by its path.
    type: dict
    required: true
positional: _input, texts
notes:
  - Without pygal for this Ansible's Python it has tables and no charts.
"""

EXAMPLES = """
page: "{{ report.result | thefermisea.llama_cluster.report_page({}) }}"
"""

RETURN = """
_value:
  description: The page.
  type: str
"""

from ..plugin_utils._reports.page import page


class FilterModule:
    def filters(self):
        return {"report_page": page}
