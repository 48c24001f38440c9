# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: upgrade_speed
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: whether services are as fast as they were"
description:
  - Takes the medians of a short benchmark. A service that answered others, or has no rate, is left out. A service
    without a baseline is not judged.
options:
  _input:
    description:
      - Results of M(thefermisea.llama_cluster.llama_bench), each with the service's unit as its C(item).
    type: list
    elements: dict
    required: true
  baselines:
    description: What was measured before, the same way.
    type: dict
    default: {}
  min_ratio:
    description: The least part of the baseline that is allowed.
    type: float
    default: 0
  looks:
    description: Results of M(thefermisea.llama_cluster.llama_health) before that, each with the same C(item).
    type: list
    elements: dict
    default: []
positional: baselines, min_ratio, looks
"""

EXAMPLES = """
speed: "{{ answers.results | thefermisea.llama_cluster.upgrade_speed(before, 0.8) }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.rates), for each service requests, tokens_per_second and prompt_tokens_per_second;
      RV(_value.refused), a sentence for each rate that is too low; RV(_value.unmeasured), for each service that was
      asked and has no rate, why.
  type: dict
"""

from ..plugin_utils._reports.speed import upgrade_speed


class FilterModule:
    def filters(self):
        return {"upgrade_speed": upgrade_speed}
