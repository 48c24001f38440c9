#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: slurm_reservation
short_description: "Internal: keep SLURM from nodes whose cards units use"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Says which nodes have cards that SLURM gives to jobs, and has the reservation C(llama_cluster) of all of them that are
  named. Without a node it removes that one; without one to reserve it does not fail where SLURM does not respond.
options:
  shared: {description: Nodes whose cards units use., type: list, elements: str, default: []}
  reserved: {description: "Those of O(shared) that are reserved as a whole.", type: list, elements: str, default: []}
  keep: {description: Whether nodes that are reserved and not named stay reserved., type: bool, default: false}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: full}}
"""

EXAMPLES = r"""
---
- name: Keep SLURM from a node
  thefermisea.llama_cluster.slurm_reservation:
    shared: [vasp-02]
    reserved: [vasp-02]
  become: true
"""

RETURN = r"""
---
scheduled:
  description: The nodes of O(shared) whose cards SLURM gives to jobs.
  type: list
  elements: str
  returned: success
slurm: {description: "Why SLURM does not respond, or an empty text.", type: str, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._slurm import reservation
from ..module_utils._text import Refusal


def main():
    names = {"type": "list", "elements": "str", "default": []}
    keep = {"type": "bool", "default": False}
    module = AnsibleModule(argument_spec={"shared": names, "reserved": names, "keep": keep}, supports_check_mode=True)
    given = module.params
    try:
        scheduled = reservation.scheduled(given["shared"]) if given["shared"] else []
        wanted = [node for node in scheduled if node in given["reserved"]]
        done = reservation.have(wanted, module.check_mode, given["keep"])
    except Refusal as refusal:
        if given["reserved"]:
            module.fail_json(msg=f"slurm_reservation: {refusal}")
        module.exit_json(changed=False, scheduled=[], slurm=str(refusal))
    module.exit_json(
        changed=done["changed"],
        scheduled=scheduled,
        slurm="",
        diff={name: "".join(f"reserved: {node}\n" for node in done[name]) for name in ("before", "after")},
    )


if __name__ == "__main__":
    main()
