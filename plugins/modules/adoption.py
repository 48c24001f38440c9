#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: adoption
short_description: "Internal: take one step of replacing a deployment that was made by hand, or of putting it back"
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Acts on what M(thefermisea.llama_cluster.adoption_info) finds. The steps are apart because an order holds over all
    nodes, heads before workers on the way down and workers before heads on the way up; C(playbooks/adopt.yml) keeps it.
  - Each step looks at what is there and does what is missing, so a run that died is finished, or undone, by the next
    one.
options:
  step:
    description:
      - V(save) copies unit files, drop-ins and the links that enable them, and records what ran and how; nothing is
        stopped or changed.
      - V(stop) ends what was recorded of O(kind), units by systemd and processes by signals, and fails when something
        starts it again.
      - V(put_aside) removes the saved files of units and renames the directories in O(moved).
      - V(finish) notes that what took over serves.
      - V(put_back) restores files and directories with content, owner, mode and time.
      - V(start) starts what was recorded as running of O(kind), processes detached, with their arguments, directory and
        environment.
      - V(forget) removes the record.
    type: str
    required: true
    choices: [save, stop, put_aside, finish, put_back, start, forget]
  kind:
    description:
      - What V(stop) and V(start) act on.
    type: str
    choices: [head, worker]
  directory:
    description:
      - Where the record and the copies are kept, for root alone.
    type: path
    default: /var/lib/llama-cluster/adopted
  moved:
    description:
      - Directories that have to make room. They are too large to copy and are renamed beside their place, with
        C(.by-hand) added.
    type: list
    elements: path
    default: [/opt/llama.cpp/build]
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
attributes:
  check_mode:
    support: partial
    details:
      - A step is predicted from what is there; what an earlier step would have made is not.
  diff_mode:
    support: none
notes:
  - Variables of processes whose names look like secrets are named in the record and not kept; such a process starts
    without them.
  - A process outside of every unit is ended and started again when it is root's, its program and its directory are
    below directories of root alone. A log that others could exchange for another file is not written again.
"""

EXAMPLES = r"""
---
- name: Save what was made by hand
  thefermisea.llama_cluster.adoption:
    step: save
  become: true

- name: Stop its heads
  thefermisea.llama_cluster.adoption:
    step: stop
    kind: head
  become: true
"""

RETURN = r"""
actions:
  description: What was done, or would be in check mode.
  type: list
  elements: str
  returned: success
  sample: [stop llama-head.service]
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._adoption.steps import Adoption
from ..module_utils._node import paths
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "step": {
                "type": "str",
                "required": True,
                "choices": ["save", "stop", "put_aside", "finish", "put_back", "start", "forget"],
            },
            "kind": {"type": "str", "choices": ["head", "worker"]},
            "directory": {"type": "path", "default": paths.ADOPTED},
            "moved": {"type": "list", "elements": "path", "default": ["/opt/llama.cpp/build"]},
        },
        required_if=[("step", "stop", ["kind"]), ("step", "start", ["kind"])],
        supports_check_mode=True,
    )
    adoption = Adoption(module.params["directory"], module.params["moved"], module.check_mode)
    step = getattr(adoption, module.params["step"])
    try:
        step(module.params["kind"]) if module.params["step"] in ("stop", "start") else step()
    except Refusal as error:
        module.fail_json(msg=f"adoption: {error}")
    module.exit_json(changed=bool(adoption.actions), actions=adoption.actions)


if __name__ == "__main__":
    main()
