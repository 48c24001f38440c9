#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_trial
short_description: "Internal: have a service's head go back to what it was, unless that is kept"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Records the files of a head as they were before a switch and as they are now, and has a timer of systemd put them
  back and restart the head at a moment of the wall clock.
options:
  state:
    description: "V(started) begins a trial, while the snapshot of the switch is open."
    type: str
    required: true
    choices: [started, ended, settled]
  service: {description: The service., type: str}
  quant: {description: What is on trial., type: str}
  was: {description: The quant that comes back., type: str}
  model: {description: "The file of that, without which nothing is put back.", type: path}
  seconds: {description: How long the trial is., type: int}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: full}}
"""

EXAMPLES = r"""
---
- name: Begin a trial of twelve hours
  thefermisea.llama_cluster.llama_trial:
    state: started
    service: chat
    quant: Q8_0
    was: Q4_K_M
    model: /opt/models/m.Q4_K_M.gguf
    seconds: 43200
  become: true
"""

RETURN = r"""
---
trials:
  description: >-
    The trials that began or ended, as C(trials) of M(thefermisea.llama_cluster.llama_unit_info) has them.
  type: list
  returned: success
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node.trials import REPORTED, Trials
from ..module_utils._text import Refusal


def main():
    needed = ["service", "quant", "was", "model", "seconds"]
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["started", "ended", "settled"], "required": True},
            "service": {"type": "str"},
            "quant": {"type": "str"},
            "was": {"type": "str"},
            "model": {"type": "path"},
            "seconds": {"type": "int"},
        },
        required_if=[("state", "started", needed)],
        supports_check_mode=True,
    )
    state, service = module.params["state"], module.params["service"]
    trials = Trials()
    try:
        before = {one["service"]: one for one in trials.report()}
        if state == "started":
            changed, record = trials.start(*[module.params[key] for key in needed], check=module.check_mode)
            records = [record]
        else:
            names = trials.settle(module.check_mode) if state == "settled" else [service] if service else list(before)
            found = [trials.end(name, module.check_mode) for name in names] if state == "ended" else []
            records = [record for record in found if record] or [before[name] for name in names if name in before]
            changed = bool(records)
    except Refusal as refusal:
        module.fail_json(msg=f"llama_trial: {refusal}")
    except OSError as error:
        module.fail_json(msg=f"llama_trial: {error.filename}: {error.strerror}: root and a writable disk are needed")
    reported = [{key: record[key] for key in REPORTED} for record in records]
    lines = "".join(f"{one['service']}: {one['quant']} until {one['until']}, then {one['was']}\n" for one in reported)
    diff = {"before": "" if state == "started" else lines, "after": lines if state == "started" else ""}
    module.exit_json(changed=changed, trials=reported, diff=dict(diff, header="trials") if changed else {})


if __name__ == "__main__":
    main()
