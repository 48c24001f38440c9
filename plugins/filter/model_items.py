# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: model_items
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: Resolves services to the models of one node
description:
  - Returns what the role C(model) publishes on a node; a model lives where its head runs.
positional: models, host, groups, models_dir
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.models
  - thefermisea.llama_cluster.intent.groups
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
"""

EXAMPLES = """
model_items: >-
  {{ llama_services
     | thefermisea.llama_cluster.model_items(llama_models, inventory_hostname, groups, '/opt/models') }}
"""

RETURN = """
_value:
  description: For each model its quant, destination, sources and sha256 sums.
  type: list
  elements: dict
"""

from ..plugin_utils._filters import as_dicts
from ..plugin_utils._intent.models import model_items


class FilterModule:
    def filters(self):
        return {"model_items": as_dicts(model_items)}
