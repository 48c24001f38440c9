# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: plan_stored
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: what is kept of a service's memory plan"
description:
  - Leaves out what changes from run to run, such as the memory that was free.
options:
  _input:
    description: The plans of one service, from P(thefermisea.llama_cluster.memory_plan#filter).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = """
content: "{{ plan.services.reasoning | thefermisea.llama_cluster.plan_stored | to_nice_json }}"
"""

RETURN = """
_value:
  description: The plans.
  type: list
  elements: dict
"""

from ..plugin_utils._cluster_plan.plan import stored


class FilterModule:
    def filters(self):
        return {"plan_stored": stored}
