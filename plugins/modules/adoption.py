#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: adoption
short_description: "Internal: take one step of replacing a deployment that was made by hand, or of putting it back"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: Acts on what M(thefermisea.llama_cluster.adoption_info) finds.
options:
  step:
    description: >-
      V(save) copies unit files, drop-ins and the links that enable them, and records what ran and how; nothing
      is stopped or changed.
    type: str
    required: true
    choices: [save, stop, put_aside, finish, put_back, start, forget]
  kind: {description: What V(stop) and V(start) act on., type: str, choices: [head, worker]}
  directory:
    description: "Where the record and the copies are kept, for root alone."
    type: path
    default: /var/lib/llama-cluster/adopted
  moved:
    description: Directories that have to make room.
    type: list
    elements: path
    default: [/opt/llama.cpp/build]
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode:
    support: partial
    details: A step is predicted from what is there; what an earlier step would have made is not.
  diff_mode: {support: none}
"""

EXAMPLES = r"""
---
- name: Save what was made by hand
  thefermisea.llama_cluster.adoption:
    step: save
  become: true
"""

RETURN = r"""
---
actions: {description: "What was done, or would be in check mode.", type: list, returned: success, elements: str}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._adoption.steps import Adoption
from ..module_utils._node import paths
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "step": {
                "type": "str",
                "required": True,
                "choices": ["save", "stop", "put_aside", "finish", "put_back", "start", "forget"],
            },
            "kind": {"type": "str", "choices": ["head", "worker"]},
            "directory": {"type": "path", "default": paths.ADOPTED},
            "moved": {"type": "list", "elements": "path", "default": ["/opt/llama.cpp/build"]},
        },
        required_if=[("step", "stop", ["kind"]), ("step", "start", ["kind"])],
        supports_check_mode=True,
    )
    adoption = Adoption(module.params["directory"], module.params["moved"], module.check_mode)
    step = getattr(adoption, module.params["step"])
    try:
        step(module.params["kind"]) if module.params["step"] in ("stop", "start") else step()
    except Refusal as error:
        module.fail_json(msg=f"adoption: {error}")
    module.exit_json(changed=bool(adoption.actions), actions=adoption.actions)


if __name__ == "__main__":
    main()
