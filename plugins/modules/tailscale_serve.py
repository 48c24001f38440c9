#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: tailscale_serve
short_description: "Internal: have C(tailscale serve) hand the gateway's paths and ports to a tailnet"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: "Sets what is missing and removes what is no longer wanted, of what it has set itself."
options:
  state:
    description: V(absent) removes all that this module has set.
    type: str
    default: present
    choices: [present, absent, looked]
  gateway_port: {description: "The port of the gateway; without it, only the tiers are served.", type: int}
  gateway_tls: {description: Whether O(gateway_port) speaks TLS., type: bool, default: false}
  tiers: {description: "The ports of the tiers that are open, by their names.", type: dict, default: {}}
  record:
    description: Where the module keeps what it has set.
    type: path
    default: /var/lib/llama-cluster/tailscale-serve.json
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: full}}
"""

EXAMPLES = r"""
---
- name: Serve the tiers in the tailnet
  thefermisea.llama_cluster.tailscale_serve:
    gateway_port: 8000
    tiers: {fast: 8080, reasoning: 8081}
  become: true
"""

RETURN = r"""
---
handlers:
  description: "What the gateway has in the tailnet, as far as this module has set it."
  type: list
  returned: with O(state=present) and O(state=absent)
  elements: str
handed_on:
  description: "Each handler that somebody else has set and that names a port of the host's loopback."
  type: list
  returned: with O(state=looked)
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._gateway.tailscale import Tailscale, wanted_handlers
from ..module_utils._node import paths
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "default": "present", "choices": ["present", "absent", "looked"]},
            "gateway_port": {"type": "int"},
            "gateway_tls": {"type": "bool", "default": False},
            "tiers": {"type": "dict", "default": {}},
            "record": {"type": "path", "default": paths.TAILSCALE_RECORD},
        },
        supports_check_mode=True,
    )
    if module.params["state"] == "looked":
        module.exit_json(changed=False, handed_on=Tailscale(record=module.params["record"]).handed_on())
    wanted = []
    if module.params["state"] == "present":
        tiers = {name: int(port) for name, port in module.params["tiers"].items()}
        wanted = wanted_handlers(tiers, module.params["gateway_port"], module.params["gateway_tls"])
    try:
        before, after = Tailscale(record=module.params["record"]).serve(wanted, module.check_mode)
    except Refusal as error:
        module.fail_json(msg=str(error))
    shown = [sorted(f"{handler!s}\n" for handler in handlers) for handlers in (before, after)]
    module.exit_json(
        changed=shown[0] != shown[1],
        handlers=[str(handler) for handler in after],
        diff={"before_header": "tailscale serve", "before": "".join(shown[0]), "after": "".join(shown[1])},
    )


if __name__ == "__main__":
    main()
