# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: upgrade_too_slow
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says what is slower than allowed"
description:
  - A service without a baseline is not judged.
positional: baselines, min_ratio
options:
  _input:
    description: What was measured, as the filter P(thefermisea.llama_cluster.upgrade_rates#filter) returns it.
    type: dict
    required: true
  baselines:
    description: What was measured before, the same way.
    type: dict
    required: true
  min_ratio:
    description: The least part of the baseline that is allowed.
    type: float
    required: true
"""

EXAMPLES = """
slow: "{{ now | thefermisea.llama_cluster.upgrade_too_slow(before, 0.8) }}"
"""

RETURN = """
_value:
  description: One sentence for each rate that is too low.
  type: list
  elements: str
"""

from ..plugin_utils._reports.speed import too_slow


class FilterModule:
    def filters(self):
        return {"upgrade_too_slow": too_slow}
