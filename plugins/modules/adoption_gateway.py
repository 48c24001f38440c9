#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: adoption_gateway
short_description: "Internal: take one step of replacing a gateway that was made by hand, or of putting it back"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  A gateway made by hand is a site of nginx that speaks of C(ai-inference), or that proxies from a port of O(ports),
  with the files in C(/etc/nginx/ai-inference), a program in C(/usr/local/bin) or C(/usr/local/sbin) that writes
  these, and the timer, service or line of cron that starts it.
options:
  step:
    description: V(look) says what there is.
    type: str
    required: true
    choices: [look, save, stop, put_aside, finish, put_back, start, forget]
  ports: {description: Where the gateway of this collection listens., type: list, elements: int, default: []}
  directory:
    description: "Where the record and the copies are kept, for root alone."
    type: path
    default: /var/lib/llama-cluster/adopted-gateway
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode:
    support: partial
    details: A step is predicted from what is there; what an earlier step would have made is not.
  diff_mode: {support: none}
"""

EXAMPLES = r"""
---
- name: Look for a gateway made by hand
  thefermisea.llama_cluster.adoption_gateway:
    step: look
    ports: [8000, 8080, 8081]
  register: by_hand
  become: true
"""

RETURN = r"""
---
actions: {description: "What was done, or would be in check mode.", type: list, returned: success, elements: str}
sites: {description: What nginx loads of it., type: list, returned: with O(step=look), elements: str}
keyless: {description: Whether there is a site and none asks for a key., type: bool, returned: with O(step=look)}
tailnet:
  description: The addresses of clients in a tailnet that are connected to O(ports).
  type: list
  returned: with O(step=look)
  elements: str
needed:
  description: Whether there is anything to take over or to go on with.
  type: bool
  returned: with O(step=look)
lines: {description: All of it as lines to print., type: list, returned: with O(step=look), elements: str}
recorded:
  description: "The adoption recorded on the host, when it was made and whether it was finished; V(null) without one."
  type: dict
  returned: with O(step=look) and O(step=put_back)
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._adoption.front_steps import FrontAdoption
from ..module_utils._node import paths
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "step": {
                "type": "str",
                "required": True,
                "choices": ["look", "save", "stop", "put_aside", "finish", "put_back", "start", "forget"],
            },
            "ports": {"type": "list", "elements": "int", "default": []},
            "directory": {"type": "path", "default": paths.ADOPTED_GATEWAY},
        },
        supports_check_mode=True,
    )
    adoption = FrontAdoption(module.params["directory"], module.params["ports"], module.check_mode)
    try:
        told = getattr(adoption, module.params["step"])() or {}
    except Refusal as error:
        module.fail_json(msg=f"adoption: {error}")
    module.exit_json(changed=bool(adoption.actions), actions=adoption.actions, **told)


if __name__ == "__main__":
    main()
