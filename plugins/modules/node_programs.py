#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: node_programs
short_description: "Internal: install the programs that units of the cluster run"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Has O(prefix)C(/lib/llama_cluster) hold the node programs of this collection with what they import, and nothing
  else, and O(prefix)C(/bin/llama-program) run them with the Python that runs this module.
options:
  prefix: {description: Directory to install to., type: path, default: /opt/llama-cluster}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: full}}
"""

EXAMPLES = r"""
---
- name: Install the node programs
  thefermisea.llama_cluster.node_programs:
  register: programs
  become: true
"""

RETURN = r"""
---
digest:
  description: Stands for all that is installed; a unit that carries it is restarted when a program changes.
  type: str
  returned: success
programs: {description: Names that C(llama-program) runs., type: list, returned: success, elements: str}
"""

import sys

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._install import PYTHONS, choose_python, install, loaded_sources
from ..module_utils._node import paths
from ..module_utils._text import Refusal

# The imported package is installed.
from ..module_utils.programs import (
    backoff,
    doctor,
    gateway,
    llama_jobs,
    model_selector,
    monitor,
    registry_reader,
    registry_writer,
    rpc_seed,
    sampler,
    service_status,
    slurm_batch,
    slurm_keeper,
    slurm_task,
    trial,
    wait_for_workers,
    watchdog,
)

PROGRAMS = (
    *(backoff, doctor, gateway, model_selector, registry_reader, registry_writer, rpc_seed),
    *(monitor, sampler, service_status, slurm_batch, llama_jobs, slurm_keeper, slurm_task),
    *(trial, wait_for_workers, watchdog),
)


def main():
    module = AnsibleModule(
        argument_spec={"prefix": {"type": "path", "default": paths.PROGRAMS}}, supports_check_mode=True
    )
    prefix = module.params["prefix"]
    try:
        changes, digest = install(
            prefix, loaded_sources(), choose_python((sys.executable,) + PYTHONS), module.check_mode
        )
    except Refusal as error:
        module.fail_json(msg=f"node_programs: {error}")
    except OSError as error:
        module.fail_json(
            msg=f"node_programs: {error.filename or prefix}: cannot be written ({error.strerror}): run with become"
        )
    module.exit_json(
        changed=bool(changes),
        digest=digest,
        programs=[program.__name__.rpartition(".")[2] for program in PROGRAMS],
        diff=changes,
    )


if __name__ == "__main__":
    main()
