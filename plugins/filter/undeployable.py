# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: undeployable
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: finds what can be planned and is not deployed"
description:
  - Returns one sentence for each service whose intent is sound but whose kind or launcher this version of the
    collection does not deploy, and for each service that has the key of the example inventory.
positional: api_keys
options:
  _input:
    description: The services, as in C(llama_services).
    type: dict
    required: true
  api_keys:
    description: The keys of each service, as in C(llama_api_keys).
    type: dict
    default: {}
"""

EXAMPLES = """
refused: "{{ llama_services | thefermisea.llama_cluster.undeployable(llama_api_keys | default({})) }}"
"""

RETURN = """
_value:
  description: One sentence for each of them; empty when all can be deployed.
  type: list
  elements: str
"""

from ..plugin_utils._intent.check import undeployable


class FilterModule:
    def filters(self):
        return {"undeployable": undeployable}
