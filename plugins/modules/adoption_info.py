#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: adoption_info
short_description: "Internal: tell what serves llama.cpp on a node without being the collection's"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Finds C(llama-server), C(rpc-server) and C(ggml-rpc-server) in systemd units that somebody wrote by hand and in
  processes outside of any such unit, as C(nohup) leaves them, and says what each serves.
options:
  directory:
    description: Where M(thefermisea.llama_cluster.adoption) keeps its record.
    type: path
    default: /var/lib/llama-cluster/adopted
  moved:
    description: "Directories that have to make room, as for M(thefermisea.llama_cluster.adoption)."
    type: list
    elements: path
    default: [/opt/llama.cpp/build]
extends_documentation_fragment: [thefermisea.llama_cluster.attributes, thefermisea.llama_cluster.attributes.reads]
"""

EXAMPLES = r"""
---
- name: What serves by hand
  thefermisea.llama_cluster.adoption_info:
  register: by_hand
  become: true
"""

RETURN = r"""
---
units: {description: "Units that were made by hand, sorted by name.", type: list, returned: success, elements: dict}
processes: {description: "Root's processes outside of such units.", type: list, returned: success, elements: dict}
clients:
  description: "Who is connected to one of the heads right now, from another address."
  type: list
  returned: success
  elements: dict
pids:
  description: Every process that ends when all of these are stopped.
  type: list
  returned: success
  elements: int
around:
  description: Files that speak of the deployment and are left alone.
  type: list
  returned: success
  elements: str
foreign:
  description: "Servers of others, of a SLURM job or another user for example, with their owner; they are left alone."
  type: list
  returned: success
  elements: dict
lines: {description: All of it as lines to print., type: list, returned: success, elements: str}
recorded:
  description: >-
    The adoption recorded on the node, when it was made, whether it was finished, and the heads that served then;
    V(null) without one.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._adoption.look import look
from ..module_utils._node import paths
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "default": paths.ADOPTED},
            "moved": {"type": "list", "elements": "path", "default": ["/opt/llama.cpp/build"]},
        },
        supports_check_mode=True,
    )
    try:
        result = look(module.params["directory"], module.params["moved"])
    except Refusal as error:
        module.fail_json(msg=f"adoption_info: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
