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
  jobs:
    description: "For V(lines): the jobs of SLURM with a part on this node, whose logs are read too."
    type: list
    elements: dict
    default: []
    suboptions:
      service: {description: Its service., type: str, required: true}
      name: {description: The name of the job., type: str, required: true}
      log_dir: {description: "The directory of the logs of its processes, JOBID/ROLE-NODE.log.", type: path,
        required: true}
      user: {description: The user whose jobs they are., type: str, required: true}
      local_log_dir: {description: "The directory of its own log, NAME-JOBID.log.", type: path, required: true}
  node: {description: "The name of this node in SLURM.", type: str, default: ""}
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
lines: {description: "What was logged, in order; C(more) says whether older lines were left out, C(missing) why logs of
    jobs were not read.", type: list, returned: success}
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
from ..module_utils._slurm import logs
from ..module_utils._text import Refusal


def history(part, units, since, fault, seconds, service, lines, all, jobs, node):
    if part == "lines":
        begin = time.time() - seconds
        found = dict(recent(begin, service, lines, all, known_units()), missing="")
        own = [one for one in jobs if service in (None, one["service"])]
        return logs.added(found, own, node, begin, lines, all) if own else found
    if part == "manual_change":
        return last_manual_change(units)
    found = timeline(units, since)
    return dict(found, noticed_at=noticed(found["events"], fault, since)) if fault else found


def main():
    fault = {
        "kind": {"type": "str", "required": True, "choices": ["restart", "start", "away", "firewall"]},
        "says": {"type": "str", "default": ""},
    }
    job = {name: {"type": "str", "required": True} for name in ("service", "name", "user")}
    job.update({name: {"type": "path", "required": True} for name in ("log_dir", "local_log_dir")})
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
            "jobs": {"type": "list", "elements": "dict", "default": [], "options": job},
            "node": {"type": "str", "default": ""},
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
