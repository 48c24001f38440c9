# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: front_door
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: shows where clients will come in"
description:
  - Returns lines with the address of the gateway, its certificate, the names by which clients ask for each service, and
    the names of keys, and notes on what of a sound inventory is probably not meant so. No key is part of them.
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.models
  - thefermisea.llama_cluster.intent.groups
  - thefermisea.llama_cluster.intent.hostvars
options:
  _input:
    description: The services, as in C(llama_services), sound by P(thefermisea.llama_cluster.intent_errors#filter).
    type: dict
    required: true
  routes:
    description: Tasks to models, as in C(llama_routes).
    type: dict
    default: {}
  plan:
    description: The memory plan, as P(thefermisea.llama_cluster.memory_plan#filter) returns it.
    type: dict
    default: {}
  only:
    description: The one service that is asked for, for which there are no lines; empty for all.
    type: str
    default: ""
positional: models, groups, hostvars, routes, plan, only
"""

EXAMPLES = """
lines: "{{ llama_services | thefermisea.llama_cluster.front_door(llama_models, groups, hostvars, llama_routes) }}"
"""

RETURN = """
_value:
  description: The lines.
  type: list
  elements: str
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._gateway.front_door import front_door


class FilterModule:
    def filters(self):
        return {"front_door": one_sentence(front_door)}
