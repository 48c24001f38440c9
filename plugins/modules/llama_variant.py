#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_variant
short_description: "Internal: run a head or worker with other settings, to measure them"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description:
  - Stops a unit of the collection and runs its server with other arguments in a unit that systemd forgets at the next
    boot. A head listens only on loopback, at its port. It does not wait until the server answers.
  - With O(worker) a worker on the loopback is started before the head, in a unit of its own with the head's user and
    sandbox. It has the cards, the head has none. Only this user can connect to it.
  - After O(seconds) the node starts the deployed unit again by itself.
options:
  state:
    description: V(started) replaces an earlier variant; V(ended) starts what is deployed.
    type: str
    choices: [started, ended]
    required: true
  service: {description: "The service; empty with O(state=ended) means all.", type: str, default: ""}
  kind: {description: Which unit of the service., type: str, choices: [head, rpc], default: head}
  arguments: {description: The arguments of its server., type: list, elements: str, default: []}
  rpc_endpoints: {description: "The workers of a head, C(HOST:PORT).", type: list, elements: str, default: []}
  worker:
    description: Arguments of a worker beside the head, with C(--host 127.0.0.1) and a free C(--port).
    type: list
    elements: str
    default: []
  run: {description: "The id of the run, which has to hold the node's lock; empty is any.", type: str, default: ""}
  seconds: {description: The lifetime of the variant., type: int, default: 1800}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
notes:
  - Needs root.
"""

EXAMPLES = r"""
---
- name: Serve the deployed configuration again
  thefermisea.llama_cluster.llama_variant:
    state: ended
    service: reasoning
  become: true
"""

RETURN = r"""
---
unit: {description: The unit of the variant., type: str, returned: with O(state=started)}
ended: {description: Services that had one., type: list, elements: str, returned: with O(state=ended)}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._bench.variant import Changed, Variants
from ..module_utils._node.units import VARIANT
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["started", "ended"], "required": True},
            "service": {"type": "str", "default": ""},
            "kind": {"type": "str", "choices": ["head", "rpc"], "default": "head"},
            "arguments": {"type": "list", "elements": "str", "default": []},
            "rpc_endpoints": {"type": "list", "elements": "str", "default": []},
            "worker": {"type": "list", "elements": "str", "default": []},
            "run": {"type": "str", "default": ""},
            "seconds": {"type": "int", "default": 1800},
        },
        required_if=[("state", "started", ("service", "arguments"))],
        supports_check_mode=True,
    )
    given = module.params
    try:
        if given["state"] == "ended":
            ended = Variants().end(given["service"], module.check_mode)
            module.exit_json(changed=bool(ended), ended=ended)
        changed = Changed(given["arguments"], given["rpc_endpoints"], given["worker"])
        if not module.check_mode:
            Variants().start(given["kind"], given["service"], changed, given["seconds"], given["run"])
    except Refusal as refusal:
        module.fail_json(msg=f"llama_variant: {refusal}")
    except OSError as error:
        module.fail_json(msg=f"llama_variant: {error.filename}: {error.strerror}: root and a writable disk are needed")
    module.exit_json(changed=True, unit=VARIANT % (given["kind"], given["service"]))


if __name__ == "__main__":
    main()
