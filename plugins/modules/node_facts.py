#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: node_facts
short_description: "Internal: ask a node once in a run for what preflight and the roles want to know"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: Answers the subsets that are asked for as the fact C(llama_node).
options:
  again: {description: Whether to ask for what is known too., type: bool, default: false}
  forget:
    description: "Whether to ask for nothing and forget what is known, which earlier tasks have changed."
    type: bool
    default: false
  accounts:
    description: Asks for accounts and groups.
    type: dict
    suboptions:
      names: {description: "Names of accounts, and of their groups.", type: list, elements: str, required: true}
      ids: {description: Ids of accounts; V(0) is skipped., type: list, elements: str, default: []}
  real:
    description: "Paths, of which C(ansible_facts.llama_node.real) has where they lead to."
    type: list
    elements: path
  writable:
    description: >-
      Directories, of which C(ansible_facts.llama_node.writable) has those that others than root may write.
    type: list
    elements: path
  packages: {description: The command that asks the package database., type: list, elements: str}
  selinux: {description: Asks whether SELinux is enabled., type: bool, default: false}
  machine:
    description: "Asks for main memory, cores and addresses."
    type: dict
    suboptions:
      numa: {description: Whether to ask for the NUMA node of each core., type: bool, default: false}
  gpus:
    description: >-
      Asks for what M(thefermisea.llama_cluster.nvidia_smi_facts) returns, as the fact of that name, and for the
      graphics cards of the kernel as the fact C(llama_drm).
    type: bool
    default: false
  vulkan:
    description: >-
      Asks for C(ansible_facts.llama_node.vulkan), the devices that llama.cpp uses through Vulkan, in its order:
      C({available, reason, warning, gpus}). C(reason) says why there is no device. Each of C(gpus) has C(index), which
      E(GGML_VK_VISIBLE_DEVICES) takes, C(name), C(memory_total_mib), C(memory_used_mib) and C(processes) as in
      M(thefermisea.llama_cluster.nvidia_smi_facts), C(slot), C(driver), C(source), C(unified) if it works in main
      memory, C(own_mib) of its memory that is no main memory, and C(largest_tensor), the bytes of one tensor that it
      can hold.
    type: dict
    suboptions:
      program: {description: The llama-server of a build for Vulkan if there is one., type: path}
      environment: {description: The environment of the units., type: dict, required: true}
  fabric:
    description: "Asks for what M(thefermisea.llama_cluster.llama_fabric_facts) returns, as the fact of that name."
    type: dict
    suboptions:
      address: {description: "The node's address on the fabric.", type: str, required: true}
      peers: {description: Those of the other nodes., type: list, elements: str, default: []}
      interface: {description: The interface that O(fabric.address) is expected on., type: str}
  units:
    description: "Asks for the units of the cluster, and for the chat templates of their services."
    type: bool
    default: false
  listeners: {description: Asks for the listening sockets., type: bool, default: false}
  plans: {description: Services whose memory plans are asked for., type: list, elements: str}
  build:
    description: Asks for builds of llama.cpp.
    type: dict
    suboptions:
      prefix: {description: Where builds are installed., type: path, required: true}
      releases:
        description: The builds; the empty name is for the one that C(current) names.
        type: list
        elements: str
        required: true
  firewalls:
    description: "Asks for the kernel's rules, whether firewalld runs, and the rules that earlier runs added to it."
    type: bool
    default: false
  interfaces:
    description: "Addresses or names of this node, whose interfaces are asked for."
    type: list
    elements: str
  records: {description: Files that list rules of firewalld., type: list, elements: path}
  watched: {description: Asks for the files that say what the watchdog watches., type: bool, default: false}
  files: {description: Files whose size and time are asked for., type: list, elements: path}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  facts: {support: full, description: Returns facts of the host.}
  action: {support: full, description: Has an action plugin.}
"""

EXAMPLES = r"""
---
- name: Ask for units and accounts
  thefermisea.llama_cluster.node_facts:
    units: true
    accounts: {names: [llama, llama-rpc]}
  become: true
"""

RETURN = r"""
---
ansible_facts: {description: "Facts to add to the host's.", type: dict, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node.facts import collect
from ..module_utils._text import Refusal

STRINGS = {"type": "list", "elements": "str"}
PATHS = {"type": "list", "elements": "path"}
FLAG = {"type": "bool", "default": False}
# Facts of their own, under the names that they have elsewhere.
PUBLIC = ("nvidia_smi", "llama_drm", "llama_fabric")


def main():
    fabric = {
        "address": {"type": "str", "required": True},
        "peers": dict(STRINGS, default=[]),
        "interface": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "again": FLAG,
            "forget": FLAG,
            "accounts": {
                "type": "dict",
                "options": {"names": dict(STRINGS, required=True), "ids": dict(STRINGS, default=[])},
            },
            "real": PATHS,
            "writable": PATHS,
            "packages": STRINGS,
            "selinux": FLAG,
            "machine": {"type": "dict", "options": {"numa": FLAG}},
            "gpus": FLAG,
            "vulkan": {
                "type": "dict",
                "options": {"program": {"type": "path"}, "environment": {"type": "dict", "required": True}},
            },
            "fabric": {"type": "dict", "options": fabric},
            "units": FLAG,
            "listeners": FLAG,
            "plans": STRINGS,
            "build": {
                "type": "dict",
                "options": {"prefix": {"type": "path", "required": True}, "releases": dict(STRINGS, required=True)},
            },
            "firewalls": FLAG,
            "interfaces": STRINGS,
            "records": PATHS,
            "watched": FLAG,
            "files": PATHS,
        },
        supports_check_mode=True,
    )
    try:
        facts = collect(module.params)
    except Refusal as error:
        module.fail_json(msg=f"node_facts: {error}")
    public = {name: facts.pop(name) for name in PUBLIC if name in facts}
    # An address that no interface has is refused by role preflight.
    for warning in (
        public.get("llama_fabric", {}).get("warnings", []) if public.get("llama_fabric", {}).get("interface") else []
    ):
        module.warn(warning)
    if facts.get("vulkan", {}).get("warning"):
        module.warn(f"vulkan: {facts['vulkan']['warning']}")
    module.exit_json(changed=False, ansible_facts=dict(public, llama_node=facts))


if __name__ == "__main__":
    main()
