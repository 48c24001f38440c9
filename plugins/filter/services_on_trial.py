# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: services_on_trial
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: the services with the quants that are on trial"
description:
  - While a trial runs, the inventory goes on naming the old quant. What only looks at a cluster goes by what serves.
options:
  _input:
    description: C(llama_services).
    type: dict
    required: true
  models:
    description: C(llama_models).
    type: dict
    required: true
  nodes:
    description:
      - Of each node its C(trials), of M(thefermisea.llama_cluster.llama_unit_info), and the services whose C(heads) it
        has.
    type: dict
    required: true
  now:
    description: The time, UTC, ISO 8601.
    type: str
    required: true
positional: models, nodes, now
"""

EXAMPLES = """
found: "{{ llama_services | thefermisea.llama_cluster.services_on_trial(llama_models,
  {'node1': {'heads': ['chat'], 'trials': ansible_facts.llama_node.trials}}, now(utc=true, fmt='%Y-%m-%dT%H:%M:%SZ'))
  }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.services), with the quants on trial; RV(_value.lines), what an operator is told; RV(_value.refused), a
      sentence for each service that cannot be judged so.
  type: dict
"""

from ..plugin_utils._access.trials import services_on_trial
from ..plugin_utils._filters import one_sentence


class FilterModule:
    def filters(self):
        return {"services_on_trial": one_sentence(services_on_trial)}
