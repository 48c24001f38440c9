#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: gateway_endpoints
short_description: "Internal: keep new requests of the gateway from endpoints, or let them in again"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Writes C(/var/lib/llama-cluster/draining.json) of a gateway's host, which the gateway's engine reads twice a
  second, and waits until the engine has the endpoints as wanted.
options:
  state:
    description: "V(draining) keeps new requests from O(endpoints), and waits until none runs there."
    type: str
    required: true
    choices: [draining, ready]
  endpoints:
    description: Replicas of services.
    type: list
    elements: dict
    suboptions:
      service: {description: The service., type: str, required: true}
      node: {description: The node of its head., type: str, required: true}
  reason:
    description: "V(change) is for endpoints that are about to restart, requests wait for them."
    type: str
    default: change
    choices: [change, maintenance]
  held: {description: Nodes that are held for maintenance., type: list, elements: str, default: []}
  timeout: {description: The most seconds to wait., type: int, default: 30}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  action: {support: full, description: Has an action plugin.}
"""

EXAMPLES = r"""
---
- name: Send no more requests to a replica
  thefermisea.llama_cluster.gateway_endpoints:
    state: draining
    endpoints: [{service: embed, node: node1}]
    timeout: 300
  become: true
"""

RETURN = r"""
---
endpoints: {description: All endpoints that drain now., type: list, returned: success, elements: dict}
waiting: {description: Endpoints that are not yet as wanted., type: list, returned: success, elements: str}
reason:
  description: "Why the engine did not respond; empty if it responded, or was not contacted."
  type: str
  returned: success
seconds: {description: How long the wait was., type: float, returned: success}
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._gateway import draining
from ..module_utils._text import Refusal


def main():
    endpoint = {"service": {"type": "str", "required": True}, "node": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["draining", "ready"], "required": True},
            "endpoints": {"type": "list", "elements": "dict", "options": endpoint},
            "reason": {"type": "str", "choices": [draining.CHANGE, draining.MAINTENANCE], "default": draining.CHANGE},
            "held": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 30},
        },
        required_if=[("state", "draining", ["endpoints"])],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**draining.apply(module.params, time.time(), module.check_mode))
    except Refusal as error:
        module.fail_json(msg=f"gateway_endpoints: {error}")
    except OSError as error:
        module.fail_json(
            msg=f"gateway_endpoints: {error.filename}: {error.strerror}: root and a writable disk are needed"
        )


if __name__ == "__main__":
    main()
