# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: hopeless
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: finds services whose model cannot fit their nodes"
description:
  - Returns one sentence for each service whose weights alone are more than the memory of all its nodes together.
  - The weights are the quant's C(size), or the model's C(parameters) times the
    quant's C(bits_per_weight). No hub is asked.
  - What passes may still not fit, KV cache and compute buffers come on top.
positional: _input, models, groups, nodes
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.models
  - thefermisea.llama_cluster.intent.groups
options:
  _input:
    description: The services, as in C(llama_services), sound by P(thefermisea.llama_cluster.intent_errors#filter).
    type: dict
    required: true
  nodes:
    description:
      - For each node its C(devices), of P(thefermisea.llama_cluster.plan_devices#filter).
      - A service with a node that is missing here is not judged.
    type: dict
    required: true
"""

EXAMPLES = """
refused: >-
  {{ llama_services
     | thefermisea.llama_cluster.hopeless(llama_models, groups,
         {'gpu1': {'devices': [{'kind': 'GPU', 'total_mib': 32510}]}}) }}
"""

RETURN = """
_value:
  description: One sentence for each hopeless service; empty when there is none.
  type: list
  elements: str
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._intent.check import hopeless


class FilterModule:
    def filters(self):
        return {"hopeless": one_sentence(hopeless)}
