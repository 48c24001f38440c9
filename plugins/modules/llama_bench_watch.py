#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_bench_watch
short_description: "Internal: sample a node while a service is measured"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Looks once a second at processors, cards and the interface of an address, until a file appears or the time is
  over, and tells what figures of this node depend on.
options:
  stop: {description: The file whose appearance ends it., type: path, required: true}
  seconds: {description: The most seconds., type: int, default: 5400}
  address: {description: "IPv4 address of the node, whose interface is counted.", type: str, default: ""}
  prefix: {description: Where builds are installed., type: path, required: true}
  release: {description: "The build of the service, a directory of C(releases).", type: str}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: none}}
"""

EXAMPLES = r"""
---
- name: Watch the node
  thefermisea.llama_cluster.llama_bench_watch:
    stop: /run/llama-cluster/bench-reasoning.stop
    address: 10.100.0.31
    prefix: /opt/llama.cpp
  async: 5500
  poll: 0
"""

RETURN = r"""
---
samples:
  description: "For each second C(at), C(cpu), C(rx_bytes), C(tx_bytes) and C(cards)."
  type: list
  returned: success
  elements: dict
machine:
  description: "C(kernel), C(driver), C(cards), C(cpu), C(cores), C(build) and C(link)."
  type: dict
  returned: success
"""

import contextlib
import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._bench.machine import fingerprint, watch
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "stop": {"type": "path", "required": True},
            "seconds": {"type": "int", "default": 5400},
            "address": {"type": "str", "default": ""},
            "prefix": {"type": "path", "required": True},
            "release": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        samples = []
        if not module.check_mode:
            samples = watch(params["seconds"], lambda: os.path.exists(params["stop"]), params["address"])
        # Afterwards: the files of a build are hashed for it, which takes a processor for a while.
        machine = fingerprint(params["address"], params["prefix"], params["release"])
    except Refusal as error:
        module.fail_json(msg=f"llama_bench_watch: {error}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(params["stop"])
    module.exit_json(changed=False, samples=samples, machine=machine)


if __name__ == "__main__":
    main()
