# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: overhead_variants
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: in which variants a service can be served with the same flags"
description:
  - As it is deployed, by the head's node alone, over RPC on loopback and with one worker; each is planned, and what
    does not fit says why.
  - What is not described here is as for P(thefermisea.llama_cluster.memory_plan#filter).
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.models
  - thefermisea.llama_cluster.intent.groups
options:
  _input:
    description: The services, as in C(llama_services).
    type: dict
    required: true
  head:
    description: One of RV(thefermisea.llama_cluster.node_serving#filter:_value.heads), of a service that is no router.
    type: dict
    required: true
  nodes:
    description: The devices of all nodes.
    type: dict
    required: true
  headers:
    description: What was read of models.
    type: list
    elements: dict
    required: true
  builds:
    description: The builds, as in C(llama_builds).
    type: dict
    required: true
  previous:
    description: The plans that were stored.
    type: list
    elements: dict
    required: true
  plan:
    description: What the filter returned for all of this.
    type: dict
    required: true
  tokens:
    description: How many tokens each of them is to generate.
    type: int
    required: true
positional: head, models, groups, nodes, headers, builds, previous, plan, tokens
"""

EXAMPLES = """
planned: >-
  {{ llama_services | thefermisea.llama_cluster.overhead_variants(head, llama_models, groups, memory, headers,
  llama_builds, [], preflight_plan, 1408) }}
"""

RETURN = """
_value:
  description:
    - RV(_value.minutes), about how long the service is away while they are measured, and RV(_value.variants).
    - Each has C(name), one of V(all), V(local), V(loopback) and V(one), C(title) for an operator, C(running) for the
      one that is deployed, C(workers), C(rpc_endpoints), C(tensor_split) and C(loopback) for
      M(thefermisea.llama_cluster.llama_variant), C(ceiling), the tokens/s that the bandwidth of its devices allows,
      and C(why) it cannot be tried, empty where it can, with C(fits), which is false where memory is too small.
  type: dict
"""

from ..plugin_utils._cluster_plan.variants import variants
from ..plugin_utils._filters import one_sentence


class FilterModule:
    def filters(self):
        return {"overhead_variants": one_sentence(variants)}
