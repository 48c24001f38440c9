#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_timeline
short_description: "Internal: tell what happened to units and when, to the microsecond"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Reads what systemd, the watchdog and the programs around a server wrote to the journal since a time, and when the
  processes that run now were started.
options:
  units: {description: "systemd units, by their full names.", type: list, elements: str, required: true}
  since:
    description: "Seconds since 1970 by the node's clock; only what happened later is returned."
    type: float
    required: true
  fault:
    description: "What was broken at O(since), for C(noticed_at)."
    type: dict
    suboptions:
      kind: {description: How it shows., type: str, required: true, choices: [restart, start, away, firewall]}
      says:
        description: "The line that names the fault, where it is not the end of a process."
        type: str
        default: ""
extends_documentation_fragment: [thefermisea.llama_cluster.attributes, thefermisea.llama_cluster.attributes.reads]
"""

EXAMPLES = r"""
---
- name: See what happened in the last ten minutes
  thefermisea.llama_cluster.llama_timeline:
    units: [llama-rpc-reasoning.service]
    since: "{{ now().timestamp() - 600 }}"
  become: true
  register: timeline
"""

RETURN = r"""
---
now: {description: "The node's clock when the journal had been read.", type: float, returned: success}
noticed_at:
  description: "When O(fault) was first noticed, in seconds since 1970; V(null) where it was not."
  type: float
  returned: when O(fault) is given
events: {description: "What happened, in order.", type: list, returned: success, elements: dict}
units: {description: "How the units are now, by name.", type: dict, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node.timeline import noticed, timeline
from ..module_utils._text import Refusal


def main():
    fault = {
        "kind": {"type": "str", "required": True, "choices": ["restart", "start", "away", "firewall"]},
        "says": {"type": "str", "default": ""},
    }
    module = AnsibleModule(
        argument_spec={
            "units": {"type": "list", "elements": "str", "required": True},
            "since": {"type": "float", "required": True},
            "fault": {"type": "dict", "options": fault},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        result = timeline(given["units"], given["since"])
    except Refusal as error:
        module.fail_json(msg=f"llama_timeline: {error}")
    if given["fault"]:
        result["noticed_at"] = noticed(result["events"], given["fault"], given["since"])
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
