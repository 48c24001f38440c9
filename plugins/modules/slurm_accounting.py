#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: slurm_accounting
short_description: "Internal: have QoS and associations in SLURM's accounting"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Has the QoS and associations that are named, with C(sacctmgr), in the cluster of this host. All others, and what is
  not named of these, stay as they are.
options:
  state:
    description: "V(absent) removes the QoS and associations; accounts stay."
    type: str
    default: present
    choices: [present, absent]
  qos:
    description: >-
      Name to C({priority, grace_time in seconds, preempt, preempt_mode}); a key that is not given stays as it is.
    type: dict
    default: {}
  associations:
    description: "Users of accounts. The account is made if it is missing."
    type: list
    elements: dict
    default: []
    suboptions:
      user: {description: The user., type: str, required: true}
      account: {description: The account., type: str, required: true}
      qos: {description: "QoS that the user gets, beside those that it has.", type: list, elements: str, default: []}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: full}}
"""

EXAMPLES = r"""
---
- name: Write the QoS and the association of jobs that give up their cards
  thefermisea.llama_cluster.slurm_accounting:
    qos:
      ai_opportunistic: {priority: 100, grace_time: 30, preempt_mode: requeue}
      vasp_priority: {priority: 1000, preempt: [ai_opportunistic]}
    associations:
      - {user: llama, account: ai, qos: [ai_opportunistic]}
  become: true
"""

RETURN = r"""
---
calls: {description: "The commands, in check mode too.", type: list, returned: success, elements: str}
created:
  description: "What did not exist before, C({qos: names, associations: [{user, account}]}); in check mode too."
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._slurm import accounting
from ..module_utils._text import Refusal


def main():
    association = {
        "user": {"type": "str", "required": True},
        "account": {"type": "str", "required": True},
        "qos": {"type": "list", "elements": "str", "default": []},
    }
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "qos": {"type": "dict", "default": {}},
            "associations": {"type": "list", "elements": "dict", "options": association, "default": []},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        wanted = accounting.wanted(given["qos"], given["associations"])
        change = accounting.absent if given["state"] == "absent" else accounting.present
        changes = change(accounting.look(), *wanted)
        if not module.check_mode:
            accounting.apply(changes.calls)
    except Refusal as refusal:
        module.fail_json(msg=f"slurm_accounting: {refusal}")
    module.exit_json(
        changed=bool(changes.calls),
        calls=[" ".join(call) for call in changes.calls],
        created=changes.created,
        diff={
            "before": "".join(line + "\n" for line in changes.before),
            "after": "".join(line + "\n" for line in changes.after),
        },
    )


if __name__ == "__main__":
    main()
