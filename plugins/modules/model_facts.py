#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: model_facts
short_description: "Internal: tell which models of a list are there"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Finds the models that are untouched since they were published, by their records, and reads their headers.
options:
  models:
    description: "Models, of P(thefermisea.llama_cluster.node_serving#filter)."
    type: list
    elements: dict
    required: true
  mode: {description: "The mode that their files must have, in octal digits.", type: str, default: "0644"}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes, thefermisea.llama_cluster.attributes.reads]
"""

EXAMPLES = r"""
---
- name: Look for a model
  thefermisea.llama_cluster.model_facts:
    models: [{dest: /opt/models/m.gguf, urls: ["https://models.example.org/m.gguf"]}]
  register: seen
"""

RETURN = r"""
---
models:
  description: "One entry for each model, with C(item), the entry it was asked for with, and C(there)."
  type: list
  returned: success
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._plan.header import look


def main():
    module = AnsibleModule(
        argument_spec={
            "models": {"type": "list", "elements": "dict", "required": True},
            "mode": {"type": "str", "default": "0644"},
        },
        supports_check_mode=True,
    )
    module.exit_json(
        changed=False, models=[look(item, int(module.params["mode"], 8)) for item in module.params["models"]]
    )


if __name__ == "__main__":
    main()
