# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: prometheus_config
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: what Prometheus scrapes"
description:
  - Resolves services to what Prometheus scrapes.
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.models
  - thefermisea.llama_cluster.intent.groups
  - thefermisea.llama_cluster.intent.hostvars
positional: models, groups, hostvars, settings
options:
  _input:
    description: The services, as in C(llama_services).
    type: dict
    required: true
  settings:
    description: C(interval), C(keys), C(group) that reads them, C(prometheus) and C(alertmanager), their URLs,
      C(textfile), C(install), C(webhooks).
    type: dict
    required: true
"""

EXAMPLES = """
told: "{{ llama_services | thefermisea.llama_cluster.prometheus_config(llama_models, groups, hostvars, settings) }}"
"""

RETURN = """
_value:
  description: C(files), as M(thefermisea.llama_cluster.node_files) takes them, and C(secrets), those that Prometheus'
    account alone may read, keys of services and where alerts go.
  type: dict
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._monitoring.scrape import output_files, prometheus_config, secret_files


def whole(services, models, groups, hostvars, settings):
    found = prometheus_config(services, models, groups, hostvars, settings)
    return {"files": output_files(found, settings), "secrets": secret_files(found, settings)}


class FilterModule:
    def filters(self):
        return {"prometheus_config": one_sentence(whole)}
