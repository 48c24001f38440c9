# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: gateway_config
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: Resolves services to what the gateway is told of them
description:
  - Returns the services with their models and endpoints, the models that no service serves with the reason, tasks,
    tiers and addresses, as C(gateway.json) of the gateway has them. No key is part of it.
positional: models, groups, hostvars, host, settings
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.models
  - thefermisea.llama_cluster.intent.groups
  - thefermisea.llama_cluster.intent.hostvars
options:
  _input:
    description: The services, as in C(llama_services).
    type: dict
    required: true
  host:
    description: The name of the gateway's host.
    type: str
    required: true
  settings:
    description:
      - C(routes), C(port), C(tls), C(address), C(auth), C(unknown_model), C(tiers), C(queue) and C(registry_dir) as
        role C(gateway) has them; what is missing is taken from the variables of the host.
      - C(plan), the memory plan, as P(thefermisea.llama_cluster.memory_plan#filter) returns it, for the context of a
        slot and the reasons of models that no service serves.
      - C(prompts), for each service the C(prompt) that M(thefermisea.llama_cluster.node_facts) reads on its heads, or a
        list of them.
      - C(before), the file as it is, as M(ansible.builtin.slurp) has it, which tells what is not planned in this run.
    type: dict
    default: {}
"""

EXAMPLES = """
told: "{{ llama_services
  | thefermisea.llama_cluster.gateway_config(llama_models, groups, hostvars, inventory_hostname) }}"
"""

RETURN = """
_value:
  description: What the gateway is told.
  type: dict
  contains:
    services:
      description: For each service its kind, tier, models, endpoints, state, fallback, timeout and queue.
      type: dict
    unserved:
      description: For each name of a model that no service serves the reason.
      type: dict
    base_urls:
      description: Where clients reach the gateway, without a path.
      type: list
      elements: str
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._gateway.config import gateway_config


class FilterModule:
    def filters(self):
        return {"gateway_config": one_sentence(gateway_config)}
