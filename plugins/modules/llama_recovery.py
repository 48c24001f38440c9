#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_recovery
short_description: "Internal: wait for the first answer of a head that is about to be replaced"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: "Waits until the head's present process has gone and another one gives a token, and says when that was."
options:
  url: {description: "Address of the head, without path.", type: str, required: true}
  unit: {description: systemd unit of the head., type: str, required: true}
  api_key_file: {description: File on the node with an API key of the head., type: path}
  model: {description: The model of a router to ask for., type: str}
  generate:
    description: "Keeps the head generating until it is cut off, and says when that was."
    type: bool
    default: false
  embeddings:
    description: Whether the head only serves embeddings; the first one is then waited for instead of a token.
    type: bool
    default: false
  armed_file:
    description: "Written when everything is in place, and after the first tokens with O(generate)."
    type: path
    required: true
  timeout: {description: "How long it may take, in seconds.", type: int, default: 1800}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: none}, diff_mode: {support: none}}
"""

EXAMPLES = r"""
---
- name: Watch the head
  thefermisea.llama_cluster.llama_recovery:
    url: http://10.100.0.31:8000
    unit: llama-head-reasoning.service
    armed_file: /run/llama-drill-armed
  async: 1860
  poll: 0
  become: true
"""

RETURN = r"""
---
pid: {description: The process that had to go., type: int, returned: success}
answered_at:
  description: >-
    When another process had given its first token, in seconds since 1970; V(null) without one in
    O(timeout), or the watch was ended.
  type: float
  returned: success
seconds_to_token: {description: How long that token took., type: float, returned: success}
client: {description: What the client of O(generate) saw; V(null) without it., type: dict, returned: success}
"""

import contextlib
import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._llama.api import LlamaApi, read_api_key
from ..module_utils._node.units import main_pid
from ..module_utils._serving.recovery import PROMPT, watch
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "unit": {"type": "str", "required": True},
            "api_key_file": {"type": "path", "no_log": False},
            "model": {"type": "str"},
            "generate": {"type": "bool", "default": False},
            "embeddings": {"type": "bool", "default": False},
            "armed_file": {"type": "path", "required": True},
            "timeout": {"type": "int", "default": 1800},
        }
    )
    wanted = module.params

    def armed():
        with open(wanted["armed_file"], "w"):
            pass

    try:
        key = read_api_key(wanted["api_key_file"]) if wanted["api_key_file"] else None
        pid = main_pid(wanted["unit"])
        if not pid:
            module.fail_json(
                msg="llama_recovery: %s has no process, a running head is needed: start it and wait until it answers"
                % wanted["unit"]
            )
        api = LlamaApi(wanted["url"], key, wanted["model"], pid)

        def there():
            """Whether the unit has a process again, which the key is for."""
            other = 0
            # No process while systemd does not respond.
            with contextlib.suppress(Refusal):
                other = main_pid(wanted["unit"])
            api.use_key(key if other else None, other)
            return bool(other)

        result = watch(
            api,
            pid,
            wanted["timeout"],
            armed,
            lambda: os.path.exists(wanted["armed_file"]),
            PROMPT if wanted["generate"] else None,
            embeddings=wanted["embeddings"],
            there=there,
        )
    except Refusal as error:
        module.fail_json(msg=f"llama_recovery: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
