#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: adoption
short_description: "Internal: take one step of replacing a deployment of the operators, or of restoring it"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description:
  - Finds, saves, stops and restores units that start llama.cpp and are not managed by the collection, a gateway of
    nginx and an updater, or jobs of SLURM with the units that submit them. Each step does what is missing, so the next
    run finishes, or undoes, one that died.
options:
  part:
    description: What the step is about.
    type: str
    choices: [servers, gateway, jobs]
    default: servers
  step:
    description:
      - V(look) reports what there is, V(read) only what is recorded. V(save) copies and records files. V(stop) stops
        units. V(put_aside) removes files and renames directories. V(finish) records that the replacement serves.
        V(put_back) restores files. V(start) starts what ran. V(forget) removes the record.
    type: str
    required: true
    choices: [look, read, save, stop, put_aside, finish, put_back, start, forget]
  kind:
    description: The servers that V(stop) and V(start) act on.
    type: str
    choices: [head, worker]
  ports:
    description: The ports of the managed gateway.
    type: list
    elements: int
    default: []
  jobs:
    description: C(name) and C(script) of each managed job, and its C(user).
    type: list
    elements: dict
    default: []
  directory:
    description: >-
      Where the record and the copies are, V(/var/lib/llama-cluster/adopted), V(adopted-gateway) or V(adopted-jobs).
    type: path
  moved:
    description: Directories that make room for managed ones, renamed with C(.by-hand) added.
    type: list
    elements: path
    default: [/opt/llama.cpp/build]
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode:
    support: partial
    details: A step is predicted from what is there; the result of an earlier step is not.
  diff_mode: {support: none}
"""

EXAMPLES = r"""
---
- name: Stop heads
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
recorded:
  description: The record after the step, with C(created), C(finished) and the C(heads) that ran; V(null) without one.
  type: dict
  returned: success
needed:
  description: Whether there is anything to take over or to continue with.
  type: bool
  returned: with O(step=look)
lines:
  description: What was found, as lines to print.
  type: list
  elements: str
  returned: with O(step=look)
units:
  description: Names of the units of servers. With these come C(pids), every process that ends with them, and
    C(clients), the addresses and ports of clients connected to their heads.
  type: list
  elements: str
  returned: with O(step=look) and O(part=servers)
jobs:
  description: The jobs to cancel, C(job_id) and C(nodes).
  type: list
  elements: dict
  returned: with O(step=look) and O(part=jobs)
sites:
  description: Sites that nginx loads. With these come C(keyless), whether none of them requires a key, and C(tailnet),
    the addresses of connected clients in a tailnet.
  type: list
  elements: str
  returned: with O(step=look) and O(part=gateway)
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._adoption.gateway import HERE, find_gateway, load_sites
from ..module_utils._adoption.gateway import look as look_at_gateway
from ..module_utils._adoption.servers import find
from ..module_utils._adoption.servers import look as look_at_servers
from ..module_utils._adoption.steps import Adoption
from ..module_utils._node import paths
from ..module_utils._slurm import ask, earlier
from ..module_utils._text import Refusal

STEPS = ["look", "read", "save", "stop", "put_aside", "finish", "put_back", "start", "forget"]


def servers(options, check):
    """-> (adoption, a function that returns what step look reports)"""
    directory = options["directory"] or paths.ADOPTED
    adoption = Adoption(directory, lambda: (find()[0], [], []), options["moved"], check)
    return adoption, lambda: look_at_servers(*find(), options["moved"])


def gateway(options, check):
    directory = options["directory"] or paths.ADOPTED_GATEWAY

    def found():
        seen = find_gateway(options["ports"])
        return seen.units, seen.files, seen.sites

    adoption = Adoption(directory, found, check=check, load=load_sites)
    return adoption, lambda: look_at_gateway(find_gateway(options["ports"]), options["ports"], directory)


def jobs(options, check):
    known = options["jobs"]
    names, scripts = [one["name"] for one in known], [one["script"] for one in known]

    def found():
        return earlier.find(known[0]["user"] if known else "root", names, scripts, HERE)

    adoption = earlier.JobsAdoption(options["directory"] or paths.ADOPTED_JOBS, found, check, ask.run)
    return adoption, lambda: earlier.look(found())


PARTS = {"servers": servers, "gateway": gateway, "jobs": jobs}


def main():
    module = AnsibleModule(
        argument_spec={
            "part": {"type": "str", "choices": list(PARTS), "default": "servers"},
            "step": {"type": "str", "required": True, "choices": STEPS},
            "kind": {"type": "str", "choices": ["head", "worker"]},
            "ports": {"type": "list", "elements": "int", "default": []},
            "jobs": {"type": "list", "elements": "dict", "default": []},
            "directory": {"type": "path"},
            "moved": {"type": "list", "elements": "path", "default": ["/opt/llama.cpp/build"]},
        },
        supports_check_mode=True,
    )
    step = module.params["step"]
    adoption, look = PARTS[module.params["part"]](module.params, module.check_mode)
    result = {}
    try:
        if step == "look":
            result = look()
        elif step in ("stop", "start"):
            getattr(adoption, step)(module.params["kind"])
        else:
            getattr(adoption, step)()
        recorded = adoption.summary()
    except Refusal as error:
        module.fail_json(msg=f"adoption: {error}")
    if step == "look":
        result["needed"] = bool(result["lines"] or recorded and not recorded["finished"])
    module.exit_json(changed=bool(adoption.actions), actions=adoption.actions, recorded=recorded, **result)


if __name__ == "__main__":
    main()
