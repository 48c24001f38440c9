# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: model_fan_out
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says which node fetches a model and which ones copy it from there"
description:
  - Returns what the role C(model) does about each model of a node. If several nodes hold a model, the first one with a
    fabric address that has it whole lends it, else the first one with an address fetches it. The others with an
    address copy it from there.
  - A node without a fabric address fetches its models itself. So does every node whose C(urls) are files of its own.
positional: host
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.host
options:
  _input:
    description: The nodes in inventory order, each with C(host), C(address) on the fabric (empty for none),
      C(items), its models of P(thefermisea.llama_cluster.node_serving#filter), and C(there), the paths of those that
      it has whole.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = """
fetched: "{{ nodes | thefermisea.llama_cluster.model_fan_out(inventory_hostname) | selectattr('source', 'eq', '') }}"
"""

RETURN = """
_value:
  description: The node's items, each with C(source), the node it copies from or empty, C(original), its path there,
    and the node's C(address).
  type: list
  elements: dict
"""

from ..plugin_utils._intent.models import fan_out


class FilterModule:
    def filters(self):
        return {"model_fan_out": fan_out}
