#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: tensor_caches
short_description: "Internal: have a directory hold the tensor caches of these services"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Makes a directory for each service, for its worker's user alone, and removes the directories that it made for
  other services.
options:
  directory:
    description: "Where the caches are, below directories that nobody but root can write."
    type: path
    required: true
  services:
    description: >-
      The services that have a cache; none removes every cache, and O(directory) when nothing else is in it.
    type: list
    elements: str
    required: true
  owner: {description: "The user that the caches are for, with its own group.", type: str}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: none}}
"""

EXAMPLES = r"""
---
- name: Tensor caches
  thefermisea.llama_cluster.tensor_caches:
    directory: /var/lib/llama-cluster/rpc-cache
    services: [reasoning]
    owner: llama-rpc
  become: true
"""

RETURN = r"""
---
actions: {description: "What was done, or would be.", type: list, returned: success, elements: str}
"""

import pwd

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node.tensor_caches import Caches
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "services": {"type": "list", "elements": "str", "required": True},
            "owner": {"type": "str"},
        },
        supports_check_mode=True,
    )
    services, owner = module.params["services"], module.params["owner"]
    identity = (-1, -1)
    try:
        if services:
            entry = pwd.getpwnam(owner or "")
            identity = (entry.pw_uid, entry.pw_gid)
    except KeyError:
        # Check mode only pretends to have made the user.
        if not module.check_mode:
            module.fail_json(
                msg=f"owner: no user {owner!r} seen, the user of the workers is needed: run with --tags node first"
            )
    caches = Caches(module.params["directory"], module.check_mode)
    try:
        caches.have(services, identity)
    except (Refusal, OSError) as error:
        module.fail_json(msg=f"tensor_caches: {error}")
    module.exit_json(changed=bool(caches.actions), actions=caches.actions)


if __name__ == "__main__":
    main()
