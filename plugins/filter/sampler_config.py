# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: sampler_config
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: what the sampler of a host is told"
description:
  - Resolves services to what the sampler of a host is told.
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.models
  - thefermisea.llama_cluster.intent.groups
  - thefermisea.llama_cluster.intent.hostvars
positional: models, groups, hostvars, host, settings
options:
  _input:
    description: The services, as in C(llama_services).
    type: dict
    required: true
  host:
    description: The name of the host.
    type: str
    required: true
  settings:
    description: C(version), C(export), C(textfile_dir), C(port), C(models_dir), C(cache_dir), C(certificate),
      C(plan), C(before).
    type: dict
    required: true
"""

EXAMPLES = """
told: "{{ llama_services | thefermisea.llama_cluster.sampler_config(llama_models, groups, hostvars, inventory_hostname,
  settings) }}"
"""

RETURN = """
_value:
  description: The content of C(/etc/llama-cluster/sampler.json).
  type: dict
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._monitoring.scrape import sampler_config


class FilterModule:
    def filters(self):
        return {"sampler_config": one_sentence(sampler_config)}
