#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_variant
short_description: "Internal: serve a service's model another way, to measure it"
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Starts the command of a head with other workers, or none, in a unit that systemd forgets with the next boot. It
    listens on loopback at the port of the head, which has to be stopped.
  - It does not wait until the server answers.
options:
  state:
    description:
      - V(started) ends what an earlier call has started, and starts anew.
      - V(ended) ends it, with its RPC server and the rules for that.
    type: str
    choices: [started, ended]
    required: true
  service:
    description: The service.
    type: str
    required: true
  rpc_endpoints:
    description: The workers, C(HOST:PORT).
    type: list
    elements: str
    default: []
  loopback:
    description:
      - Start an RPC server on loopback and have it hold the layers. Nobody but the user of the head can reach it.
    type: bool
    default: false
  tensor_split:
    description: As in C(--tensor-split); nothing for one device.
    type: list
    elements: int
    default: []
  seconds:
    description: After this time it ends by itself.
    type: int
    default: 7200
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
attributes:
  check_mode:
    support: full
    details:
      - Starts and ends nothing in check mode.
  diff_mode:
    support: none
notes:
  - Needs root.
"""

EXAMPLES = r"""
---
- name: Serve with the head's node alone
  thefermisea.llama_cluster.llama_variant:
    state: started
    service: reasoning
  become: true

- name: End it
  thefermisea.llama_cluster.llama_variant:
    state: ended
    service: reasoning
  become: true
"""

RETURN = r"""
unit:
  description: The unit of the server.
  type: str
  returned: when O(state=started), but not in check mode
  sample: llama-overhead-reasoning.service
rpc_endpoints:
  description: Its workers, the one on loopback too.
  type: list
  elements: str
  returned: when O(state=started), but not in check mode
  sample: ["127.0.0.1:40871"]
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._bench.variant import Layers, Variant
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["started", "ended"], "required": True},
            "service": {"type": "str", "required": True},
            "rpc_endpoints": {"type": "list", "elements": "str", "default": []},
            "loopback": {"type": "bool", "default": False},
            "tensor_split": {"type": "list", "elements": "int", "default": []},
            "seconds": {"type": "int", "default": 7200},
        },
        supports_check_mode=True,
    )
    params = module.params
    started = {}
    changed = params["state"] == "started"
    try:
        variant = Variant(params["service"])
        if module.check_mode:
            pass
        elif changed:
            started = variant.start(Layers(*[params[name] for name in Layers._fields]), params["seconds"])
        else:
            changed = variant.end()
    except Refusal as refusal:
        module.fail_json(msg=f"llama_variant: {refusal}")
    except OSError as error:
        module.fail_json(msg=f"llama_variant: {error.filename}: {error.strerror}: root and a writable disk are needed")
    module.exit_json(changed=changed, **started)


if __name__ == "__main__":
    main()
