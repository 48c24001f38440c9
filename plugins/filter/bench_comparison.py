# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: bench_comparison
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: whether a benchmark is worse than an earlier one"
description:
  - Compares the cells that both have. Fails where none can be compared.
options:
  _input:
    description: RV(thefermisea.llama_cluster.bench_report#filter:_value.result).
    type: dict
    required: true
  baseline:
    description: An earlier one.
    type: dict
    required: true
  loss:
    description: How many percent worse a figure may be, beyond the noise of both.
    type: float
    required: true
positional: baseline, loss
"""

EXAMPLES = """
compared: "{{ report.result | thefermisea.llama_cluster.bench_comparison(baseline, 5) }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.lines), each figure beside the baseline's; RV(_value.refused), a sentence for each that is worse.
  type: dict
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._reports.bench_compare import comparison


class FilterModule:
    def filters(self):
        return {"bench_comparison": one_sentence(comparison)}
