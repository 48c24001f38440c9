#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_load_info
short_description: Read what a running head put on which device
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Reads from the journal of a head's unit how many MiB of weights, KV cache and compute buffers its running process put where.
  - The head has to log at verbosity 4 or higher (builds up to b7772 do at their default of 3).
options:
  unit:
    description:
      - The head's systemd unit.
    type: str
    required: true
attributes:
  check_mode:
    support: full
    description: Can run in check_mode and return changed status prediction without modifying target.
    details:
      - Reads only.
  diff_mode:
    support: none
    description: Will return details on what has changed (or possibly needs changing in check_mode), when in diff mode.
notes:
  - Needs root to read the journal of system units.
"""

EXAMPLES = r"""
---
- name: See where the model went
  thefermisea.llama_cluster.llama_load_info:
    unit: llama-head-reasoning.service
  register: load
  become: true

- name: Every worker holds weights
  ansible.builtin.assert:
    that: load.endpoints['10.100.0.32:50052'].model_mib > 0
"""

RETURN = r"""
buffers:
  description: Every buffer, sorted by device.
  type: list
  elements: dict
  returned: success
  contains:
    device:
      description: Name of the device in the log.
      type: str
      returned: always
      sample: RPC0[10.100.0.32:50052]
    endpoint:
      description: The worker's address and port; V(null) for a device of the head.
      type: str
      returned: always
      sample: 10.100.0.32:50052
    kind:
      description: What it holds, V(model), V(kv), V(compute) or V(output).
      type: str
      returned: always
      sample: model
    mib:
      description: Its size in MiB.
      type: float
      returned: always
      sample: 31.71
endpoints:
  description: For each worker its C(model_mib), C(kv_mib) and C(compute_mib).
  type: dict
  returned: success
  sample: {"10.100.0.32:50052": {"model_mib": 31.71, "kv_mib": 45.0, "compute_mib": 43.05}}
layers_offloaded:
  description: Layers on devices, the output layer counted as one; V(null) where the log does not say.
  type: int
  returned: success
  sample: 31
layers_total:
  description: Layers of the model, the output layer counted as one; V(null) where the log does not say.
  type: int
  returned: success
  sample: 31
kv_cells:
  description: Cells of the KV cache, one per token of context; V(null) where the log does not say.
  type: int
  returned: success
  sample: 4096
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._load_log import LoadLogError, parse, unit_log


def main():
    module = AnsibleModule(argument_spec={"unit": {"type": "str", "required": True}}, supports_check_mode=True)
    try:
        module.exit_json(changed=False, **parse(unit_log(module.params["unit"])))
    except LoadLogError as error:
        module.fail_json(msg="llama_load_info: %s" % error)


if __name__ == "__main__":
    main()
