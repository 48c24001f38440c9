#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_load_info
short_description: "Internal: report what a running head put on which device"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Reads the journal of the current run of a head, or the log of its job, up to the end of its load and returns the
  buffers it allocated, per device and per worker, the layers and the KV cache.
options:
  unit: {description: "systemd unit of the head, or of the router.", type: str}
  log: {description: The log of a head or router that is a job of SLURM., type: path}
  user: {description: The user whose job it is., type: str}
  model: {description: The model of a router whose last load is read., type: str}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes, thefermisea.llama_cluster.attributes.reads]
"""

EXAMPLES = r"""
---
- name: See what the head put where
  thefermisea.llama_cluster.llama_load_info:
    unit: llama-head-reasoning.service
  become: true
  register: load
"""

RETURN = r"""
---
unit: {description: "Name of the unit, aliases resolved; the log of a job.", type: str, returned: success}
reason:
  description: "Why buffers or layers are missing, in one sentence; V(null) when they are there."
  type: str
  returned: success
build: {description: Build number the head reports; V(null) when it does not., type: int, returned: success}
commit: {description: Commit the head reports; V(null) when it reports no build., type: str, returned: success}
buffers: {description: Sum of the buffers of one kind on one device., type: list, returned: success, elements: dict}
devices: {description: The same by device., type: list, returned: success, elements: dict}
endpoints: {description: "Sum in MiB per worker, by endpoint.", type: dict, returned: success}
layers_offloaded:
  description: "Layers on GPUs and workers, the output counted as one; V(null) when not logged."
  type: int
  returned: success
layers_total:
  description: "Layers of the model, the output counted as one; V(null) when not logged."
  type: int
  returned: success
divided:
  description: >-
    Whether each device has a part of every layer (C(--split-mode tensor)); the log then has only the size of the
    largest part, which stands for each.
  type: bool
  returned: success
width: {description: "Numbers that pass from layer to layer; V(null) when not logged.", type: int, returned: success}
kv_caches:
  description: "KV caches of the model, two for models with sliding windows."
  type: list
  returned: success
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._llama.load_log import load_info
from ..module_utils._slurm.logs import load_of
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str"},
            "log": {"type": "path"},
            "user": {"type": "str"},
            "model": {"type": "str"},
        },
        required_by={"log": ["user"]},
        required_one_of=[("unit", "log")],
        mutually_exclusive=[("unit", "log")],
        supports_check_mode=True,
    )
    unit, log, user, model = (module.params[name] for name in ("unit", "log", "user", "model"))
    try:
        result = load_of(log, user, model) if log else load_info(unit, model)
    except Refusal as error:
        module.fail_json(msg=f"llama_load_info: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
