#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_hand
short_description: "Internal: tell when a hand was last on a node"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Looks for the last change of a unit, of the configuration, of a node program or of the current build, by the times
  that the kernel keeps, and in the journal for the last start of a unit that was not systemd's own restart.
options:
  units:
    description: "The units of services on the node, by their full names."
    type: list
    elements: str
    required: true
extends_documentation_fragment: [thefermisea.llama_cluster.attributes, thefermisea.llama_cluster.attributes.reads]
"""

EXAMPLES = r"""
---
- name: Look for the last hand
  thefermisea.llama_cluster.llama_hand:
    units: [llama-rpc-reasoning.service]
  become: true
  register: hand
"""

RETURN = r"""
---
now: {description: "The node's clock when it was asked.", type: float, returned: success}
at:
  description: "When the last hand was on it, in seconds since 1970; V(null) where none is known."
  type: float
  returned: success
what: {description: What it did., type: str, returned: success}
recovered:
  description: "The last start that was systemd's own, with its C(unit) and C(at); V(null) without one."
  type: dict
  returned: success
restart: {description: "When systemd restarts each of the units, its word for it.", type: dict, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node.hand import last_hand
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={"units": {"type": "list", "elements": "str", "required": True}}, supports_check_mode=True
    )
    try:
        found = last_hand(module.params["units"])
    except Refusal as error:
        module.fail_json(msg=f"llama_hand: {error}")
    except OSError as error:
        module.fail_json(msg=f"llama_hand: {error.filename}: {error.strerror}: root is needed")
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
