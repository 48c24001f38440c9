# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: intent_errors
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: finds every mistake in llama_services and llama_models"
description:
  - Checks what C(argument_specs) cannot, maps with free keys and what several services get wrong together.
  - Returns one sentence for each mistake, with the entry, the value seen and the value needed.
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.models
  - thefermisea.llama_cluster.intent.groups
  - thefermisea.llama_cluster.intent.hostvars
options:
  _input:
    description: The services, as in C(llama_services).
    type: dict
    required: true
  routes:
    description: Tasks to models, as in C(llama_routes).
    type: dict
    default: {}
  api_keys:
    description: Keys of services, as in C(llama_api_keys).
    type: dict
    default: {}
  deployable:
    description:
      - Whether what can be planned and is not deployed counts as a mistake, a kind or launcher that this version of the
        collection does not deploy, and a service with the key of the example inventory.
    type: bool
    default: false
positional: models, groups, hostvars, routes, api_keys, deployable
"""

EXAMPLES = """
- name: Require a sound intent
  ansible.builtin.assert:
    that: mistakes | length == 0
    fail_msg: "{{ mistakes | join('\\n') }}"
  vars:
    mistakes: "{{ llama_services | thefermisea.llama_cluster.intent_errors(llama_models, groups, hostvars) }}"
"""

RETURN = """
_value:
  description: One sentence for each mistake; empty where there is none.
  type: list
  elements: str
"""

from ..plugin_utils._intent.check import intent_errors
from ..plugin_utils._intent.gateway import all_hosts
from ..plugin_utils._intent.monitoring import hosts
from ..plugin_utils._intent.variables import mistyped_variables


def errors(services, models, groups, hostvars, *more, **options):
    """Types that only a role's argument specs know are told last, in Ansible's words."""
    found = intent_errors(services, models, groups, hostvars, *more, **options)
    return found or mistyped_variables(hostvars, list(dict.fromkeys([*all_hosts(groups), *hosts(groups)])))


class FilterModule:
    def filters(self):
        return {"intent_errors": errors}
