# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: head_instances
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: Resolves services to the heads of one node
description:
  - Returns what the role C(head_server) configures on a node. The tensor split is that of the memory plan,
    in llama.cpp's device order; none without a plan.
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
  {{ llama_services
     | thefermisea.llama_cluster.head_instances(llama_models, inventory_hostname, groups, hostvars, '/opt/models',
         preflight_plan | default({})) }}
"""

RETURN = """
_value:
  description:
    - For each head its service, unit, address, port, url, endpoint, model path, RPC endpoints, layers per node,
      and the arguments of llama-server.
    - Its shares are its workers, each with node, unit, endpoint, and layers where they are known.
  type: list
  elements: dict
"""

from ..plugin_utils._filters import as_dicts
from ..plugin_utils._intent.services import head_instances


class FilterModule:
    def filters(self):
        return {"head_instances": as_dicts(head_instances)}
