#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: slurm_jobs
short_description: "Internal: what the jobs of services do"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Reads C(state.json) of the keeper of jobs and SLURM's queue, on the host where jobs are submitted. It fails neither
  without SLURM nor without a keeper.
options:
  user: {description: "The user whose jobs they are, by default that of the keeper's configuration.", type: str}
  services:
    description: "Service to digest, of those that RV(unsettled) is about and O(resume) resumes."
    type: dict
    default: {}
  resume:
    description: "Whether to have the keeper resume O(services) that are held, or wait after jobs that failed."
    type: bool
    default: false
  since: {description: "The RV(at) of an earlier call, since which jobs are RV(ended).", type: float}
  facts: {description: "Whether to read SLURM's configuration, nodes and accounts.", type: bool, default: false}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
---
- name: Wait for a job
  thefermisea.llama_cluster.slurm_jobs:
    services: {reasoning: 0123456789abcdef}
  become: true
  register: jobs
  until: jobs.unsettled | length == 0
  retries: 60
"""

RETURN = r"""
---
services: {description: "The entries of C(state.json), by service.", type: dict, returned: always}
sentences: {description: "What the job of each service does, in words.", type: dict, returned: always}
slurm: {description: "Why SLURM does not respond, or an empty text.", type: str, returned: always}
keeper: {description: "Why C(state.json) is not believed, or an empty text.", type: str, returned: always}
jobs:
  description: "The jobs of services that SLURM has, C({job_id, service, state})."
  type: list
  elements: dict
  returned: always
unsettled:
  description: "Those of O(services) whose job neither serves nor waits for SLURM, or is another one, and is not held."
  type: list
  elements: str
  returned: always
ended:
  description: >-
    Why the last job of a service of O(services) ended, if it has ended since O(since) by its own fault or before it
    served.
  type: dict
  returned: always
at: {description: "Seconds since 1970, by this host's clock.", type: float, returned: always}
resumed: {description: "The services that are resumed.", type: list, elements: str, returned: always}
uid: {description: "The number of the user, or null.", type: int, returned: with O(facts)}
config: {description: "C(scontrol show config), or null.", type: dict, returned: with O(facts)}
partitions: {description: "C(scontrol show partition), by name, or null.", type: dict, returned: with O(facts)}
nodes: {description: "C(scontrol show node), by name, or null.", type: dict, returned: with O(facts)}
qos:
  description: "C({priority, grace_time, preempt, preempt_mode}) of each QoS, or null."
  type: dict
  returned: with O(facts)
associations:
  description: "C({user, account, partition, qos}) of the user, or null."
  type: list
  elements: dict
  returned: with O(facts)
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node import paths
from ..module_utils._slurm import facts, state
from ..module_utils._text import Refusal


def configured():
    """The keeper's configuration and when it was written; None and 0 without one."""
    try:
        return state.configuration(paths.KEEPER_CONFIG), os.stat(paths.KEEPER_CONFIG).st_mtime
    except FileNotFoundError:
        return None, 0.0


def main():
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str"},
            "services": {"type": "dict", "default": {}},
            "resume": {"type": "bool", "default": False},
            "since": {"type": "float"},
            "facts": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wanted, now = module.params["services"], time.time()
    since = module.params["since"]
    result = {"resumed": [], "at": now}
    try:
        config, written = configured()
        user = module.params["user"] or (config.user if config else "")
        directory = config.directory if config else paths.KEEPER
        if module.params["resume"] and user:
            result["resumed"] = facts.resume(user, wanted, directory, now, module.check_mode)
        content = state.read(directory)
        result["slurm"], result["jobs"] = facts.queue(user) if user else ("", [])
        result["services"] = content.get("services", {})
        result["sentences"] = facts.sentences(content, now)
        result["keeper"] = facts.mistrust(content, now)
        result["unsettled"] = facts.unsettled(wanted, content, directory, written, now)
        result["ended"] = {} if since is None else facts.ended(wanted, content, since)
        if module.params["facts"]:
            result.update(facts.facts(user), uid=facts.uid_of(user))
    except (Refusal, OSError) as error:
        module.fail_json(msg=f"slurm_jobs: {error}")
    module.exit_json(changed=bool(result["resumed"]), **result)


if __name__ == "__main__":
    main()
