#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_long_prompt
short_description: "Internal: have a llama-server read a prompt that fills nine tenths of a slot"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Sends a prompt in ten parts, each of them the one before and more, so that the server computes each token once,
  and prints a line of progress after each.
options:
  url: {description: "Base address of the server, without C(/v1).", type: str, required: true}
  unit: {description: Its systemd unit; a job of SLURM has none., type: str}
  timeout: {description: The most seconds for all of it., type: int, default: 3600}
  part: {description: "How many tenths of the prompt to send, for the module itself.", type: int, default: 10}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  action: {support: full, description: Has an action plugin.}
"""

EXAMPLES = r"""
---
- name: Fill a slot
  thefermisea.llama_cluster.llama_long_prompt:
    url: http://10.0.0.31:8000
    unit: llama-head-reasoning.service
  become: true
"""

RETURN = r"""
---
tokens: {description: Tokens that were read., type: int, returned: success}
slot: {description: Tokens of a slot., type: int, returned: success}
seconds: {description: How long the server read., type: float, returned: success}
said: {description: All of it in words., type: str, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._llama.api import LlamaApi
from ..module_utils._serving.health import Head
from ..module_utils._serving.long_prompt import read_part
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "unit": {"type": "str"},
            "timeout": {"type": "int", "default": 3600},
            "part": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        head = Head(LlamaApi(params["url"]), unit=params["unit"], own_key=True)
        module.exit_json(changed=False, **read_part(head, params["part"], params["timeout"]))
    except Refusal as error:
        source = f"journalctl -u {params['unit']}" if params["unit"] else "its log"
        module.fail_json(msg=f"{params['url']}: {error}; see {source}")


if __name__ == "__main__":
    main()
