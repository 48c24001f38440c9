# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: bench_report
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: what is kept and printed of a benchmark"
description:
  - Joins the cells of M(thefermisea.llama_cluster.llama_bench) and what
    M(thefermisea.llama_cluster.llama_bench_watch) saw on the nodes meanwhile.
options:
  _input:
    description: The head, an entry of RV(thefermisea.llama_cluster.bench_heads#filter:_value.heads).
    type: dict
    required: true
  cells:
    description: Those of M(thefermisea.llama_cluster.llama_bench).
    type: list
    elements: dict
    required: true
  watches:
    description: For each node the result of M(thefermisea.llama_cluster.llama_bench_watch).
    type: dict
    required: true
  settings:
    description: How it was asked, with C(from), C(endpoint) and C(prompts), the text of each by its name.
    type: dict
    required: true
  measured_at:
    description: When, ISO 8601 in UTC.
    type: str
    required: true
  plan:
    description: The service's entry in what P(thefermisea.llama_cluster.memory_plan#filter) returned.
    type: list
    elements: dict
    default: []
  slot:
    description: Tokens of one of its slots.
    type: int
    default: 0
positional: cells, watches, settings, measured_at, plan, slot
"""

EXAMPLES = """
report: "{{ head | thefermisea.llama_cluster.bench_report(measured.cells, watches, settings, '2026-11-25T20:00:00Z') }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.result) as docs/measuring.md describes it, the same as RV(_value.csv), RV(_value.lines) to print,
      RV(_value.name) and RV(_value.latest), names of files without an ending, and RV(_value.prompt), what the head
      keeps of how fast it reads.
  type: dict
"""

from ..plugin_utils._reports.bench import benchmark


class FilterModule:
    def filters(self):
        return {"bench_report": benchmark}
