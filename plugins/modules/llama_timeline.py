#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_timeline
short_description: "Internal: tell what happened to units and when, to the microsecond"
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Reads what systemd, the watchdog and the programs around a server wrote to the journal since a time, and when the
    processes that run now were started.
options:
  units:
    description: systemd units, by their full names.
    type: list
    elements: str
    required: true
  since:
    description: Seconds since 1970 by the node's clock; only what happened later is returned.
    type: float
    required: true
  fault:
    description: What was broken at O(since), for RV(noticed_at).
    type: dict
    suboptions:
      kind:
        description:
          - How it shows. A process ends or is repaired (V(restart)); a process that was started after it ends
            (V(start)); a head notices that a worker is away (V(away)); the rules are put back (V(firewall)).
        type: str
        choices: [restart, start, away, firewall]
        required: true
      says:
        description: The line that names the fault, where it is not the end of a process.
        type: str
        default: ""
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
  - thefermisea.llama_cluster.attributes.reads
notes:
  - Needs root, or a user who may read the system journal.
seealso:
  - module: thefermisea.llama_cluster.llama_recovery
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
now:
  description: The node's clock when the journal had been read.
  type: float
  returned: success
  sample: 1795292607.06
noticed_at:
  description: When O(fault) was first noticed, in seconds since 1970; V(null) where it was not.
  type: float
  returned: when O(fault) is given
  sample: 1795292605.766978
events:
  description: What happened, in order.
  type: list
  elements: dict
  returned: success
  contains:
    at:
      description: Seconds since 1970.
      type: float
      returned: always
      sample: 1795292605.766978
    unit:
      description: Unit it happened to; V(null) for the firewall.
      type: str
      returned: always
      sample: llama-rpc-reasoning.service
    kind:
      description:
        - V(exited), V(failed), V(scheduled), V(started) and V(stopped) are systemd's; V(repair), V(refused), V(serves)
          and V(firewall) the watchdog's.
        - V(says) is a line of a program that runs before or after the server.
      type: str
      returned: always
      sample: exited
    text:
      description: The message, without the unit's name.
      type: str
      returned: always
      sample: code=killed, status=9/KILL
units:
  description: How the units are now, by name.
  type: dict
  returned: success
  contains:
    active_state:
      description: systemd's word for it.
      type: str
      returned: always
      sample: active
    sub_state:
      description: systemd's finer word.
      type: str
      returned: always
      sample: running
    result:
      description: How the last run ended; V(success) as long as none has failed.
      type: str
      returned: always
      sample: success
    main_pid:
      description: Its main process, 0 where there is none.
      type: int
      returned: always
      sample: 818
    restarts:
      description: How often systemd has restarted it since it was started by hand.
      type: int
      returned: always
      sample: 1
    started_at:
      description: Start of its last main process in seconds since 1970.
      type: float
      returned: always
      sample: 1795292607.058912
  sample: {llama-rpc-reasoning.service: {active_state: active, main_pid: 818, restarts: 1, result: success, started_at:
    1795292607.06, sub_state: running}}
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
