#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: node_history
short_description: "Internal: read what happened to the units of a host"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: Reads the journal, and the times at which files changed.
options:
  part:
    description: >-
      V(events) returns starts, ends and repairs of units. V(lines) returns what units and systemd logged.
      V(manual_change) returns the last change of a file, or start of a unit, that was not systemd's own restart.
    type: str
    required: true
    choices: [events, lines, manual_change]
  units: {description: "systemd units, by their full names.", type: list, elements: str, default: []}
  since:
    description: "For V(events): seconds since 1970 by the node's clock."
    type: float
    default: 0
  fault:
    description: "For V(events): what was broken at O(since), for C(noticed_at)."
    type: dict
    suboptions:
      kind: {description: How it shows., type: str, required: true, choices: [restart, start, away, firewall]}
      says: {description: The line that names the fault instead of the end of a process., type: str, default: ""}
  seconds: {description: "For V(lines): how far back.", type: int, default: 600}
  service: {description: "For V(lines): only what is about this service.", type: str}
  lines: {description: How many lines are returned at most., type: int, default: 200}
  all:
    description: Whether the lines that servers write while all is well are returned too; else they are counted.
    type: bool
    default: false
extends_documentation_fragment: [thefermisea.llama_cluster.attributes, thefermisea.llama_cluster.attributes.reads]
"""

EXAMPLES = r"""
---
- name: See what happened in the last ten minutes
  thefermisea.llama_cluster.node_history:
    part: events
    units: [llama-rpc-reasoning.service]
    since: "{{ now().timestamp() - 600 }}"
  become: true
"""

RETURN = r"""
---
now: {description: "The node's clock; with V(events) and V(manual_change).", type: float, returned: success}
events: {description: "What happened, in order; with it come the C(units) as they are.", type: list, returned: success}
noticed_at: {description: When O(fault) was first noticed., type: float, returned: when O(fault) is given}
lines: {description: "What was logged, in order; C(more) says whether older lines were left out.", type: list,
  returned: success}
at:
  description: >-
    When the last manual change was, with C(what); C(recovered), the last start that was systemd's own, and C(restart),
    when systemd restarts each unit.
  type: float
  returned: success
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node.journal import known_units, recent
from ..module_utils._node.manual_change import last_manual_change
from ..module_utils._node.timeline import noticed, timeline
from ..module_utils._text import Refusal


def history(part, units, since, fault, seconds, service, lines, all):
    if part == "lines":
        return recent(time.time() - seconds, service, lines, all, known_units())
    if part == "manual_change":
        return last_manual_change(units)
    found = timeline(units, since)
    return dict(found, noticed_at=noticed(found["events"], fault, since)) if fault else found


def main():
    fault = {
        "kind": {"type": "str", "required": True, "choices": ["restart", "start", "away", "firewall"]},
        "says": {"type": "str", "default": ""},
    }
    module = AnsibleModule(
        argument_spec={
            "part": {"type": "str", "required": True, "choices": ["events", "lines", "manual_change"]},
            "units": {"type": "list", "elements": "str", "default": []},
            "since": {"type": "float", "default": 0},
            "fault": {"type": "dict", "options": fault},
            "seconds": {"type": "int", "default": 600},
            "service": {"type": "str"},
            "lines": {"type": "int", "default": 200},
            "all": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        result = history(**module.params)
    except Refusal as error:
        module.fail_json(msg=f"node_history: {error}")
    except OSError as error:
        module.fail_json(msg=f"node_history: {error.filename}: {error.strerror}: root is needed")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
