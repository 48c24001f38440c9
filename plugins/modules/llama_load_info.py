#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_load_info
short_description: "Internal: tell what a running head put on which device"
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Reads the journal of the current run of a head up to the end of its load and returns the buffers it allocated, per
    device and per worker, the layers and the KV cache.
  - With several layouts in the log (llama.cpp lays a model out without memory first, to fit it) the last one is
    returned.
  - From b11434 on llama-server logs buffers at C(-lv 4) and above only.
options:
  unit:
    description: systemd unit of the head, or of the router.
    type: str
    required: true
  model:
    description: The model of a router whose last load is told.
    type: str
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
  - thefermisea.llama_cluster.attributes.reads
notes:
  - Needs root, or a user who may read the system journal.
"""

EXAMPLES = r"""
---
- name: See what the head put where
  thefermisea.llama_cluster.llama_load_info:
    unit: llama-head-reasoning.service
  become: true
  register: load

- name: Refuse a head that keeps layers on its CPU
  ansible.builtin.assert:
    that: load.layers_offloaded == load.layers_total
    fail_msg: "{{ load.reason or (load.layers_offloaded ~ ' of ' ~ load.layers_total ~ ' layers are on GPUs') }}"
"""

RETURN = r"""
unit:
  description: Name of the unit, aliases resolved.
  type: str
  returned: success
  sample: llama-head-reasoning.service
reason:
  description: Why buffers or layers are missing, in one sentence; V(null) when they are there.
  type: str
  returned: success
  sample: null
build:
  description: Build number the head reports; V(null) when it does not.
  type: int
  returned: success
  sample: 11434
commit:
  description: Commit the head reports; V(null) when it reports no build.
  type: str
  returned: success
  sample: unknown
buffers:
  description: Sum of the buffers of one kind on one device.
  type: list
  elements: dict
  returned: success
  contains:
    device:
      description: llama.cpp's name of the device; the number of an RPC device counts at its endpoint.
      type: str
      returned: always
      sample: RPC0
    endpoint:
      description: Worker the device belongs to; V(null) for the head's own.
      type: str
      returned: always
      sample: 10.100.0.32:50052
    kind:
      description: V(model), V(KV) (caches and recurrent states), V(compute) or V(output).
      type: str
      returned: always
      sample: model
    mib:
      description: Size in MiB.
      type: float
      returned: always
      sample: 24576.25
devices:
  description: The same by device.
  type: list
  elements: dict
  returned: success
  contains:
    device:
      description: llama.cpp's name of the device.
      type: str
      returned: always
      sample: RPC0
    endpoint:
      description: Worker the device belongs to; V(null) for the head's own.
      type: str
      returned: always
      sample: 10.100.0.32:50052
    model_mib:
      description: Weights in MiB.
      type: float
      returned: always
      sample: 24576.25
    kv_mib:
      description: KV caches and recurrent states in MiB.
      type: float
      returned: always
      sample: 432.0
    compute_mib:
      description: Compute buffer in MiB.
      type: float
      returned: always
      sample: 312.5
    output_mib:
      description: Output buffer in MiB.
      type: float
      returned: always
      sample: 0.0
    total_mib:
      description: Sum in MiB.
      type: float
      returned: always
      sample: 25320.75
    layers:
      description:
        - Transformer blocks on the device, from the log at C(-lv 5), else from the shares of the KV cache.
        - V(null) when neither tells (models with recurrent layers or layers of different size).
      type: int
      returned: always
      sample: 27
endpoints:
  description: Sum in MiB per worker, by endpoint.
  type: dict
  returned: success
  sample: {"10.100.0.32:50052": 25320.75, "10.100.0.33:50052": 25320.75}
layers_offloaded:
  description: Layers on GPUs and workers, the output counted as one; V(null) when not logged.
  type: int
  returned: success
  sample: 81
layers_total:
  description: Layers of the model, the output counted as one; V(null) when not logged.
  type: int
  returned: success
  sample: 81
kv_caches:
  description: KV caches of the model, two for models with sliding windows.
  type: list
  elements: dict
  returned: success
  contains:
    cells:
      description: Tokens it holds per sequence stream.
      type: int
      returned: always
      sample: 4096
    layers:
      description: Layers it serves.
      type: int
      returned: always
      sample: 80
    mib:
      description: Size over all devices in MiB.
      type: float
      returned: always
      sample: 1280.0
    k_type:
      description: Type of the keys.
      type: str
      returned: always
      sample: f16
    v_type:
      description: Type of the values.
      type: str
      returned: always
      sample: f16
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._llama.load_log import load_info
from ..module_utils._text import Refusal


def main():
    spec = {"unit": {"type": "str", "required": True}, "model": {"type": "str"}}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        result = load_info(module.params["unit"], module.params["model"])
    except Refusal as error:
        module.fail_json(msg=f"llama_load_info: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
