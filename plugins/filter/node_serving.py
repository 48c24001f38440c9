# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: node_serving
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: Resolves services to what one node serves
description:
  - Returns what the roles C(head_server) and C(model) configure on a node, the units that every node should have, and
    the primary service.
positional: models, host, groups, hostvars, models_dir, plan
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.models
  - thefermisea.llama_cluster.intent.groups
  - thefermisea.llama_cluster.intent.hostvars
  - thefermisea.llama_cluster.intent.host
options:
  _input:
    description: The services, as in C(llama_services).
    type: dict
    required: true
  models_dir:
    description: The directory the models are published in.
    type: path
    required: true
  plan:
    description: The memory plan, as P(thefermisea.llama_cluster.memory_plan#filter) returns it.
    type: dict
    default: {}
"""

EXAMPLES = """
head_server_instances: >-
  {{ (llama_services
      | thefermisea.llama_cluster.node_serving(llama_models, inventory_hostname, groups, hostvars, '/opt/models',
          preflight_plan | default({}))).heads }}
"""

RETURN = """
_value:
  description: What the node serves.
  type: dict
  contains:
    heads:
      description:
        - For each head its service, node, label, unit, address, port, url, endpoint, model path, RPC endpoints, layers
          per node, and the arguments of llama-server.
        - Its shares are its workers, each with node, unit, endpoint, build, and layers where they are known.
        - Its tensor split is that of the memory plan, in llama.cpp's device order; none without a plan.
      type: list
      elements: dict
    models:
      description: For each model its quant, destination, sources and sha256 sums. A model lives where its head runs.
      type: list
      elements: dict
    units:
      description: For each node of the inventory the names of the units that it should have, heads and workers, because
        a head stops where one of its workers changes on another node.
      type: dict
    stopped:
      description: The names among them of the units that do not run, because their service is stopped.
      type: list
      elements: str
    primary:
      description: The service that is meant if none is named, the primary or only one; empty otherwise.
      type: str
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._intent.services import node_serving


class FilterModule:
    def filters(self):
        return {"node_serving": one_sentence(node_serving)}
