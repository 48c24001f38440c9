#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: adoption_gateway
short_description: "Internal: take one step of replacing a gateway that was made by hand, or of putting it back"
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - A gateway made by hand is a site of nginx that speaks of C(ai-inference), or that proxies from a port of
    O(ports), with the files in C(/etc/nginx/ai-inference), a program in C(/usr/local/bin) or C(/usr/local/sbin) that
    writes these, and the timer, service or line of cron that starts it.
  - Each step looks at what is there and does what is missing, so a run that died is finished, or undone, by the next
    one. nginx keeps what it has loaded until it is reloaded.
options:
  step:
    description:
      - V(look) says what there is.
      - V(save) copies and records all that the next steps change.
      - V(stop) stops the updater's timer and service, and comments out its lines of cron.
      - V(put_aside) removes the saved files; nginx is not reloaded.
      - V(finish) notes that what took over serves.
      - V(put_back) restores files with content, owner, mode and time; nginx is not reloaded.
      - V(start) reloads nginx after C(nginx -t), and has the updater started again as it was.
      - V(forget) removes the record.
    type: str
    required: true
    choices: [look, save, stop, put_aside, finish, put_back, start, forget]
  ports:
    description:
      - Where the gateway of this collection listens.
    type: list
    elements: int
    default: []
  directory:
    description:
      - Where the record and the copies are kept, for root alone.
    type: path
    default: /var/lib/llama-cluster/adopted-gateway
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
attributes:
  check_mode:
    support: partial
    details:
      - A step is predicted from what is there; what an earlier step would have made is not.
  diff_mode:
    support: none
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
actions:
  description: What was done, or would be in check mode.
  type: list
  elements: str
  returned: success
  sample: [stop ai-inference-upstream.timer]
sites:
  description: What nginx loads of it.
  type: list
  elements: str
  returned: with O(step=look)
  sample: [/etc/nginx/sites-enabled/ai-inference]
keyless:
  description: Whether there is a site and none asks for a key.
  type: bool
  returned: with O(step=look)
  sample: true
tailnet:
  description: The addresses of clients in a tailnet that are connected to O(ports).
  type: list
  elements: str
  returned: with O(step=look)
  sample: [100.101.5.9]
needed:
  description: Whether there is anything to take over or to go on with.
  type: bool
  returned: with O(step=look)
  sample: true
lines:
  description: All of it as lines to print.
  type: list
  elements: str
  returned: with O(step=look)
  sample: ["/etc/nginx/sites-enabled/ai-inference: a site of nginx, ours takes its place"]
recorded:
  description: The adoption recorded on the host, when it was made and whether it was finished; V(null) without one.
  type: dict
  returned: with O(step=look) and O(step=put_back)
  sample: {created: "2026-10-01T08:00:00Z", finished: true}
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
