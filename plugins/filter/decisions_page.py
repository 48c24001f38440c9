# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: decisions_page
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: the page of decisions, and which of them measurement contradicts"
description:
  - Judges each claim of a decision by the newest benchmarks, and drills, that are about it.
options:
  _input:
    description: Decisions, as role acceptance has them in C(files/decisions).
    type: list
    elements: dict
    required: true
  benchmarks:
    description: The text of each file that a benchmark has left, by its name.
    type: dict
    required: true
  drills:
    description: The same of drills.
    type: dict
    required: true
positional: benchmarks, drills
"""

EXAMPLES = """
page: "{{ decisions | thefermisea.llama_cluster.decisions_page(benchmarks, drills) }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.text), the page in Markdown, the same for the same decisions and results; RV(_value.lines), what of it
      is printed.
  type: dict
"""

from ..plugin_utils._reports.decisions_page import decisions_page


class FilterModule:
    def filters(self):
        return {"decisions_page": decisions_page}
