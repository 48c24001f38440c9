# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: acceptance_report
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: whether a service is accepted, and the report of it"
description:
  - Joins what M(thefermisea.llama_cluster.llama_health) and M(thefermisea.llama_cluster.llama_load_info) found about
    one head, and judges it.
options:
  _input:
    description: The head, as P(thefermisea.llama_cluster.node_serving#filter) returns it.
    type: dict
    required: true
  host:
    description: The node of the head.
    type: str
    required: true
  health:
    description: Result of M(thefermisea.llama_cluster.llama_health), with RV(_value.report.long_prompt) in words.
    type: dict
    required: true
  load:
    description: Result of M(thefermisea.llama_cluster.llama_load_info).
    type: dict
    required: true
  prompt:
    description: What the head was asked.
    type: str
    required: true
  max_tokens:
    description: How many tokens it could answer with.
    type: int
    required: true
  plans:
    description: The service's entry in what P(thefermisea.llama_cluster.memory_plan#filter) returned.
    type: list
    elements: dict
    default: []
  cards:
    description: For each node C(gpus) of M(thefermisea.llama_cluster.nvidia_smi_facts), while the model is loaded.
    type: dict
positional: _input, host, health, load, prompt, max_tokens, plans, cards
"""

EXAMPLES = """
judged: "{{ head | thefermisea.llama_cluster.acceptance_report(inventory_hostname, health, load, 'Name the three primary
  colors.', 48) }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.refused), a sentence for each worker that does not hold the layers of the plan; RV(_value.row), the
      cells of its row in a table; RV(_value.lines), what an operator reads with C(-v).
    - RV(_value.report), with endpoint, model, quant, state, tokens per second, answer, what the conversation and the
      long prompt showed, a curl line, for each worker its layers, MiB and bytes, and for each device of the plan what
      was planned, what was loaded and what the card has in use.
  type: dict
"""

from ..plugin_utils._reports.acceptance import acceptance


class FilterModule:
    def filters(self):
        return {"acceptance_report": acceptance}
