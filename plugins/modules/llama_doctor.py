#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_doctor
short_description: "Internal: gather evidence of a node and judge it"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Looks at units, their journals, cards, disks, models, fabric, firewall and clock of the node, each for a bounded
  time, and says which rules hold over what it saw.
options:
  rules: {description: What filter C(doctor_rules) says., type: list, elements: dict, default: []}
  since: {description: "How far back journals are read, such as V(10m), V(6h) or V(2d).", type: str, default: 6h}
  explain:
    description: Unit or service whose last failure on this node is returned instead.
    type: str
    default: ""
  now: {description: "The controller's clock in seconds since 1970, which the node's is held against.", type: float}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes, thefermisea.llama_cluster.attributes.reads]
"""

EXAMPLES = r"""
---
- name: Look at the node
  thefermisea.llama_cluster.llama_doctor:
    rules: "{{ 'node' | thefermisea.llama_cluster.doctor_rules }}"
  become: true
  register: doctor_node
"""

RETURN = r"""
---
since: {description: "From when on journals were read, in seconds since 1970.", type: float, returned: success}
evidence:
  description: "What was seen, by the names that rules use; C(failed) has what could not be looked at, and why."
  type: dict
  returned: without O(explain)
findings:
  description: "The rules that hold, the worst first."
  type: list
  returned: without O(explain)
  elements: dict
events:
  description: "What happened, as M(thefermisea.llama_cluster.node_history) returns it."
  type: list
  returned: with O(explain)
  elements: dict
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._doctor import evidence, explain
from ..module_utils._doctor.judge import judge
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "rules": {"type": "list", "elements": "dict", "default": []},
            "since": {"type": "str", "default": "6h"},
            "explain": {"type": "str", "default": ""},
            "now": {"type": "float"},
        },
        supports_check_mode=True,
    )
    given, now = module.params, time.time()
    node = os.uname()[1]
    try:
        since = explain.since_of(given["since"], now)
        if given["explain"]:
            module.exit_json(changed=False, since=since, events=explain.events_of(given["explain"], since, node))
        seen = evidence.collect(given["rules"], since, node)
    except Refusal as error:
        module.fail_json(msg=f"llama_doctor: {error}")
    if given["now"] is not None:
        seen["ahead"] = round(now - given["now"], 1)
    module.exit_json(changed=False, since=since, evidence=seen, findings=judge(given["rules"], seen))


if __name__ == "__main__":
    main()
