# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: overhead_report
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: what a service's split costs"
description:
  - Puts the figures of a model that was served in several variants beside each other, and says whether its split costs
    more than it gives.
options:
  _input:
    description: The head, one of RV(thefermisea.llama_cluster.node_serving#filter:_value.heads).
    type: dict
    required: true
  variants:
    description:
      - Those of P(thefermisea.llama_cluster.overhead_variants#filter), with the C(cells) of
        M(thefermisea.llama_cluster.llama_bench) where it was measured.
    type: list
    elements: dict
    required: true
  settings:
    description: C(requests) and C(max_tokens).
    type: dict
    required: true
  measured_at:
    description: When, ISO 8601 in UTC.
    type: str
    required: true
  watches:
    description: For each node the result of M(thefermisea.llama_cluster.llama_bench_watch).
    type: dict
    required: true
  plan:
    description: The service's entry in what P(thefermisea.llama_cluster.memory_plan#filter) returned.
    type: list
    elements: dict
    default: []
positional: variants, settings, measured_at, watches, plan
"""

EXAMPLES = """
report: "{{ head | thefermisea.llama_cluster.overhead_report(measured, settings, '2026-11-26T20:00:00Z', watches) }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.result) as docs/measuring.md describes it, RV(_value.lines) to print, RV(_value.name) and
      RV(_value.latest), names of files without an ending.
  type: dict
"""

from ..plugin_utils._reports.overhead import overhead


class FilterModule:
    def filters(self):
        return {"overhead_report": overhead}
