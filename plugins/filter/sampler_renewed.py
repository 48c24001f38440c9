# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: sampler_renewed
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: what the sampler of a host is told after a service has changed"
description:
  - Takes over from what a sampler would be told anew what is about services that have changed. All else stays.
positional: told, services
options:
  _input:
    description: The content of C(/etc/llama-cluster/sampler.json) as it is, as M(ansible.builtin.slurp) has it.
    type: str
    required: true
  told:
    description: What it would be anew, as P(thefermisea.llama_cluster.sampler_config#filter) has it.
    type: dict
    required: true
  services:
    description: The services that have changed; none for all.
    type: list
    elements: str
    required: true
"""

EXAMPLES = """
told: "{{ before | thefermisea.llama_cluster.sampler_renewed(wanted, ['chat']) }}"
"""

RETURN = """
_value:
  description: The content that it has after that.
  type: dict
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._monitoring.scrape import sampler_renewed


class FilterModule:
    def filters(self):
        return {"sampler_renewed": one_sentence(sampler_renewed)}
