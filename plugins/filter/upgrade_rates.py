# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: upgrade_rates
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: medians of a short benchmark"
description:
  - A service that never answered is left out, and so are answers without a rate.
options:
  _input:
    description: Pairs of a service and the result of M(thefermisea.llama_cluster.llama_health).
    type: list
    elements: list
    required: true
"""

EXAMPLES = """
rates: "{{ services | zip(results) | thefermisea.llama_cluster.upgrade_rates }}"
"""

RETURN = """
_value:
  description: For each service requests, tokens_per_second and prompt_tokens_per_second.
  type: dict
"""

from ..plugin_utils._reports.speed import rates


class FilterModule:
    def filters(self):
        return {"upgrade_rates": rates}
