#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: port_probe
short_description: "Internal: whether ports would answer this host, without a connection"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: "Sends each port the one segment that asks for a connection, and never completes it."
options:
  endpoints: {description: "The ports, C(HOST:PORT).", type: list, elements: str, required: true}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: none}}
"""

EXAMPLES = r"""
---
- name: See whether this host could use the workers
  thefermisea.llama_cluster.port_probe:
    endpoints: [10.100.0.32:50052, 10.100.0.33:50052]
  become: true
  register: probed
"""

RETURN = r"""
---
answers:
  description: "For each endpoint V(open), V(refused), or V(silent) where nothing came back."
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node.port_probe import probe
from ..module_utils._text import Refusal


def main():
    spec = {"endpoints": {"type": "list", "elements": "str", "required": True}}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        answers = probe(module.params["endpoints"])
    except Refusal as error:
        module.fail_json(msg=f"port_probe: {error}")
    module.exit_json(changed=False, answers=answers)


if __name__ == "__main__":
    main()
