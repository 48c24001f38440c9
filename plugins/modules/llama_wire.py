#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_wire
short_description: "Internal: what goes over the wire between a head and its workers while it answers"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Asks an idle head for a text that is generated token by token, and counts the bytes that went between it and each
  worker meanwhile, by the kernel's counters.
options:
  url: {description: "Address of the server, C(http://HOST:PORT).", type: str, required: true}
  unit: {description: Its systemd unit., type: str, required: true}
  rpc_endpoints: {description: "Its workers, C(HOST:PORT).", type: list, elements: str, default: []}
  seconds: {description: "How long answers are generated, one after the other.", type: float, default: 0}
  timeout: {description: Seconds for each answer., type: float, default: 600}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: none}}
"""

EXAMPLES = r"""
---
- name: See what went over the wire
  thefermisea.llama_cluster.llama_wire:
    url: http://10.0.0.31:8000
    unit: llama-head-reasoning.service
    rpc_endpoints: [10.100.0.32:50052, 10.100.0.33:50052]
  become: true
  register: wire
"""

RETURN = r"""
---
state: {description: As M(thefermisea.llama_cluster.llama_health) has it., type: str, returned: success}
reason: {description: "Why, in one sentence.", type: str, returned: success}
connections:
  description: "For each worker C(endpoint) and C(ends), pairs of the local and the remote end."
  type: list
  returned: success
  elements: dict
decode:
  description: >-
    C(tokens), C(answers), C(tokens_per_second), when they C(began) and C(ended), and C(workers) with C(bytes_sent) and
    C(bytes_received).
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._llama.api import LlamaApi
from ..module_utils._serving.health import Head
from ..module_utils._serving.wire import look
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "unit": {"type": "str", "required": True},
            "rpc_endpoints": {"type": "list", "elements": "str", "default": []},
            "seconds": {"type": "float", "default": 0},
            "timeout": {"type": "float", "default": 600},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        head = Head(LlamaApi(params["url"]), params["rpc_endpoints"], params["unit"], own_key=True)
        result = look(head, params["seconds"], params["timeout"])
    except (Refusal, OSError) as error:
        module.fail_json(msg=f"llama_wire: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
