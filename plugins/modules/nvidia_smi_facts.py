#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: nvidia_smi_facts
short_description: Facts about the node's NVIDIA GPUs
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Runs C(nvidia-smi -q -x) and returns what it says as facts, and the Xid errors of the kernel's log. Reads the output
    of drivers from 418 on.
  - A node without GPU, tool or driver, and a driver that hangs, are answers,
    RV(ansible_facts.nvidia_smi.available=false) with a reason, and no error.
  - What a card or driver does not support is V(null).
options:
  deadline:
    description: Seconds C(nvidia-smi) may take before its driver counts as hung and the tool is killed with all that it
      started.
    type: float
    default: 10.0
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
  - thefermisea.llama_cluster.attributes.reads
attributes:
  facts:
    support: full
    description: Action returns an C(ansible_facts) dictionary that will update existing host facts.
notes:
  - Processes of other users are named for root only, and none are listed inside most containers.
  - Most kernels show their log to root only, and most containers have none.
"""

EXAMPLES = r"""
---
- name: Look at the GPUs
  thefermisea.llama_cluster.nvidia_smi_facts:

- name: Refuse a node without a GPU
  ansible.builtin.assert:
    that: ansible_facts.nvidia_smi.available
    fail_msg: "{{ inventory_hostname }}: {{ ansible_facts.nvidia_smi.reason }}"

- name: Refuse a node whose cards had an Xid error
  ansible.builtin.assert:
    that: ansible_facts.nvidia_smi.xids == []
    fail_msg: "{{ inventory_hostname }}: {{ ansible_facts.nvidia_smi.xids_reason or ansible_facts.nvidia_smi.xids }}"
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to the host's.
  type: dict
  returned: always
  contains:
    nvidia_smi:
      description: What C(nvidia-smi) says.
      type: dict
      returned: always
      contains:
        available:
          description: Whether there is a GPU and a driver that answers.
          type: bool
          returned: always
          sample: true
        reason:
          description: Why not, in one sentence; V(null) when available.
          type: str
          returned: always
          sample: null
        warning:
          description: What C(nvidia-smi) said beside its answer, for example that one of the cards is lost; V(null) for
            nothing.
          type: str
          returned: always
          sample: "WARNING: infoROM is corrupted at gpu 0000:3B:00.0"
        xids:
          description:
            - Xid errors in the kernel's log, as far back as its ring buffer goes, one entry for each card and number;
              V(null) when the log cannot be read.
            - They are there for cards that C(nvidia-smi) does not list any more, and for a driver that hangs.
          type: list
          elements: dict
          returned: always
          contains:
            gpu:
              description: RV(ansible_facts.nvidia_smi.gpus[].index) of the card; V(null) when it is not listed.
              type: int
              returned: always
              sample: 0
            pci_slot:
              description: PCI address, as the kernel writes it.
              type: str
              returned: always
              sample: "0000:3b:00"
            xid:
              description: Number of the error; NVIDIA's documentation of Xid errors explains it.
              type: int
              returned: always
              sample: 79
            count:
              description: How often it is in the log.
              type: int
              returned: always
              sample: 1
            seconds_ago:
              description: Seconds since the latest one.
              type: int
              returned: always
              sample: 412
            message:
              description: Text of the latest one.
              type: str
              returned: always
              sample: GPU has fallen off the bus.
        xids_reason:
          description: Why the kernel's log cannot be read and what is needed, in one sentence; V(null) when it was
            read.
          type: str
          returned: always
          sample: null
        driver:
          description: Version of the driver.
          type: str
          returned: always
          sample: 535.183.01
        cuda:
          description: Newest CUDA version the driver runs.
          type: str
          returned: always
          sample: "12.2"
        gpus:
          description: The GPUs in nvidia-smi's order, by PCI address.
          type: list
          elements: dict
          returned: always
          contains:
            index:
              description: Number in nvidia-smi; CUDA uses the same only with E(CUDA_DEVICE_ORDER=PCI_BUS_ID), which
                units of accelerator C(cuda) have.
              type: int
              returned: always
              sample: 0
            name:
              description: Name of the product.
              type: str
              returned: always
              sample: Tesla V100S-PCIE-32GB
            uuid:
              description: UUID of the GPU.
              type: str
              returned: always
              sample: GPU-00000000-1111-2222-3333-444444444444
            pci_bus_id:
              description: PCI address.
              type: str
              returned: always
              sample: 00000000:3B:00.0
            numa_node:
              description: NUMA node of the card's slot.
              type: int
              returned: always
              sample: 0
            compute_cap:
              description: CUDA compute capability.
              type: str
              returned: always
              sample: "7.0"
            compute_mode:
              description: Which processes may compute on the card; V(Prohibited) for none.
              type: str
              returned: always
              sample: Default
            memory_total_mib:
              description: Memory in MiB; V(null) for a card that works in the machine's main memory.
              type: int
              returned: always
              sample: 32768
            memory_reason:
              description: What C(nvidia-smi) prints in place of the memory, for example V(N/A); V(null) where it tells
                it.
              type: str
              returned: always
              sample: null
            memory_used_mib:
              description: Memory in use, in MiB.
              type: int
              returned: always
              sample: 22574
            memory_free_mib:
              description: Free memory in MiB; what the driver keeps for itself is neither free nor used.
              type: int
              returned: always
              sample: 9876
            utilization:
              description: Share of time with a kernel running, in percent.
              type: int
              returned: always
              sample: 31
            temperature_c:
              description: Temperature in degrees Celsius.
              type: int
              returned: always
              sample: 41
            power_w:
              description: Power drawn, in watts.
              type: float
              returned: always
              sample: 97.42
            mig:
              description: Whether the card is divided into MIG instances; V(null) where it cannot be.
              type: bool
              returned: always
              sample: false
            mig_devices:
              description: MIG instances.
              type: list
              elements: dict
              returned: always
              contains:
                index:
                  description: Number on this GPU.
                  type: int
                  returned: always
                  sample: 0
                uuid:
                  description: What E(CUDA_VISIBLE_DEVICES) calls it.
                  type: str
                  returned: always
                  sample: MIG-00000000-aaaa-5555-6666-777777777777
                gpu_instance_id:
                  description: GPU instance.
                  type: int
                  returned: always
                  sample: 1
                compute_instance_id:
                  description: Compute instance of the GPU instance.
                  type: int
                  returned: always
                  sample: 0
                memory_total_mib:
                  description: Memory in MiB.
                  type: int
                  returned: always
                  sample: 40192
                memory_used_mib:
                  description: Memory in use, in MiB.
                  type: int
                  returned: always
                  sample: 37
                memory_free_mib:
                  description: Free memory in MiB.
                  type: int
                  returned: always
                  sample: 40155
            ecc:
              description: Memory errors since the driver was loaded.
              type: dict
              returned: always
              contains:
                volatile_uncorrected:
                  description: Errors not corrected.
                  type: int
                  returned: always
                  sample: 0
            throttle_reasons:
              description: What holds the clocks down now, an idle card apart; V(null) when the card does not tell.
              type: list
              elements: str
              returned: always
              sample: [sw_power_cap]
            processes:
              description: Processes on the GPU.
              type: list
              elements: dict
              returned: always
              contains:
                pid:
                  description: Process id.
                  type: int
                  returned: always
                  sample: 4711
                type:
                  description: V(C) for compute, V(G) for graphics, V(C+G) for both.
                  type: str
                  returned: always
                  sample: C
                name:
                  description: Program.
                  type: str
                  returned: always
                  sample: /opt/llama.cpp/current/bin/ggml-rpc-server
                memory_used_mib:
                  description: Memory in use, in MiB.
                  type: int
                  returned: always
                  sample: 22574
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node.nvidia_smi import DEADLINE, collect


def main():
    module = AnsibleModule(argument_spec={"deadline": {"type": "float", "default": DEADLINE}}, supports_check_mode=True)
    facts = collect(deadline=module.params["deadline"])
    module.exit_json(changed=False, ansible_facts={"nvidia_smi": facts})


if __name__ == "__main__":
    main()
