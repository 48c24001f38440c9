# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: memory_plan
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: plans the memory of all services of an inventory together"
description:
  - Says for each service which device holds which layers and how much memory they need there, adds up what shares a
    card, and refuses what does not fit, with the nearest things that would.
  - Where a model's header was not read, its C(header) in C(llama_models) and the size of its quant give an
    estimate, and the plan says so.
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
      - For each node C(devices), as from P(thefermisea.llama_cluster.plan_devices#filter), C(main), its main memory
        in the same form where it is known, for services that compute or keep experts there, and C(cores).
      - A service with a node that is not in it is not planned.
    type: dict
    required: true
  headers:
    description:
      - Results of M(thefermisea.llama_cluster.llama_plan) in a loop over the models that
        P(thefermisea.llama_cluster.node_serving#filter) returns.
    type: list
    elements: dict
    default: []
  builds:
    description: The builds of llama.cpp, as in C(llama_builds).
    type: dict
    default: {}
  previous:
    description:
      - The plans that were stored, as C(plans) of M(thefermisea.llama_cluster.node_facts). A stored split that
        still fits is kept.
    type: list
    elements: dict
    default: []
  complete:
    description: Whether a service that cannot be planned is refused.
    type: bool
    default: false
  only:
    description: The one service of the lines; empty for all.
    type: str
    default: ""
positional: models, groups, nodes, headers, builds, previous, complete, only
"""

EXAMPLES = """
plan: "{{ llama_services | thefermisea.llama_cluster.memory_plan(llama_models, groups, nodes, headers.results) }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.services), the plans by service, one for each replica with the C(node) of its head,
      RV(_value.unplanned), why there is none, RV(_value.uncounted), those of which only some nodes are in O(nodes) and
      that have no earlier plan, and RV(_value.unchanged), those that are planned as they were.
    - RV(_value.rendered), C(layers) and C(tensor_split) of services that have layers per node and no plan.
    - RV(_value.refused), sentences, and RV(_value.hopeless), those that are true whatever a header says, for services
      whose weights alone are more than the memory of all their nodes together. Weights are the quant's C(size), or the
      model's C(parameters) times the quant's C(bits_per_weight).
    - RV(_value.sharing), lines on services that share cards; RV(_value.cards), for each service with cards of its own
      their UUIDs by node; RV(_value.ports), those of services that give none; and RV(_value.lines), a table for
      operators with a row for each device, in MiB.
  type: dict
"""

from ..plugin_utils._cluster_plan.plan import memory_plan
from ..plugin_utils._filters import one_sentence


class FilterModule:
    def filters(self):
        return {"memory_plan": one_sentence(memory_plan)}
