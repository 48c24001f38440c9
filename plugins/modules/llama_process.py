#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_process
short_description: "Internal: what the process of a unit really runs, holds and listens on"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Reads from the kernel and from nvidia-smi what the process of a unit runs, how much memory it holds and where it
  listens.
options:
  unit: {description: The systemd unit., type: str, required: true}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes, thefermisea.llama_cluster.attributes.reads]
"""

EXAMPLES = r"""
---
- name: Read what the worker holds
  thefermisea.llama_cluster.llama_process:
    unit: llama-rpc-reasoning.service
  become: true
  register: worker
"""

RETURN = r"""
---
pid:
  description: "The unit's process; V(null) where it does not run, and then nothing else is returned."
  type: int
  returned: success
release:
  description: The release whose program it runs; V(null) for a program of elsewhere.
  type: str
  returned: success
build:
  description: >-
    C(identity), C(sha256), C(intact) and C(broken) of that release, as
    M(thefermisea.llama_cluster.llama_unit_info) has them; empty for a program of elsewhere.
  type: dict
  returned: success
foreign:
  description: >-
    Programs and libraries of llama.cpp that it runs from elsewhere, or that were exchanged since its start.
  type: list
  returned: success
  elements: str
resident_mib: {description: "Main memory that it holds, without files that it maps.", type: float, returned: success}
cards_mib:
  description: "Memory that it holds on each card, by nvidia-smi's index or by PCI slot; V(null) without cards."
  type: dict
  returned: success
machine: {description: "What it computes on, its cards or the node's processor.", type: str, returned: success}
devices:
  description: >-
    Names of the devices that a worker computes on, as it logged at its start, such as V(Vulkan0) or V(CPU); empty if
    unknown, and for other units.
  type: list
  returned: success
  elements: str
listens: {description: Where it listens., type: list, returned: success, elements: str}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._llama.load_log import worker_devices
from ..module_utils._node import paths
from ..module_utils._node.build import build_info
from ..module_utils._node.running import running
from ..module_utils._node.units import number, parse_show, systemctl_show, unit_kind
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(argument_spec={"unit": {"type": "str", "required": True}}, supports_check_mode=True)
    try:
        shown = parse_show(systemctl_show([module.params["unit"]]))
        pid = number(shown[0], "MainPID") if shown else 0
        result = dict(running(pid), pid=pid) if pid else {"pid": None}
        if pid:
            build = build_info(paths.BUILDS, result["release"]) if result["release"] else {}
            is_worker = unit_kind(module.params["unit"])[0] == "rpc"
            result["devices"] = worker_devices(module.params["unit"]) if is_worker else []
            names = ("identity", "sha256", "intact", "broken")
            result["build"] = {name: build["build_" + name] for name in names} if build else {}
    except Refusal as error:
        module.fail_json(msg=f"llama_process: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
