#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: slurm_node
short_description: "Internal: take a node out of SLURM for maintenance, or return it"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Drains a node in SLURM with the reason C(llama_cluster: maintenance), and has the jobs of services end as soon as no
  request is running. Returns only a node that was drained with such a reason.
options:
  state: {description: What it should be., type: str, required: true, choices: [drained, resumed]}
  node: {description: Its name in SLURM., type: str, required: true}
  user: {description: "For V(drained): the user of the jobs.", type: str, default: ""}
  services: {description: "For V(drained): the services whose jobs end.", type: list, elements: str, default: []}
  timeout: {description: The most seconds to wait until they have ended., type: int, default: 60}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
---
- name: Drain a node
  thefermisea.llama_cluster.slurm_node:
    state: drained
    node: vasp-02
    user: llama
    services: [fast]
  become: true
"""

RETURN = r"""
---
reason:
  description: "With V(drained) why the node is drained, with V(resumed) why it stays so, empty if it does not."
  type: str
  returned: success
others: {description: Jobs of other users that still run there., type: list, returned: with V(drained), elements: str}
left: {description: Own jobs that have not ended., type: list, returned: with V(drained), elements: str}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._slurm import nodes
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["drained", "resumed"], "required": True},
            "node": {"type": "str", "required": True},
            "user": {"type": "str", "default": ""},
            "services": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**nodes.apply(module.params, module.check_mode))
    except Refusal as error:
        module.fail_json(msg=f"slurm_node: {error}")


if __name__ == "__main__":
    main()
