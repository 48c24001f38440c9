#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: link_capacity
short_description: "Internal: measure how much the link between two nodes carries"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: "Runs C(iperf3) with eight streams over TCP, a server on one node and a client on the other."
options:
  state:
    description: V(serving) starts the server for one measurement; it listens when the module returns.
    type: str
    required: true
    choices: [serving, measured, absent]
  address: {description: "The address of the server, IPv4.", type: str}
  port: {description: Its port., type: int}
  peer: {description: "The address of the client, IPv4.", type: str}
  seconds: {description: How long is sent., type: int, default: 10}
  reverse: {description: Have the server send., type: bool, default: false}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: none}}
"""

EXAMPLES = r"""
---
- name: Start the server
  thefermisea.llama_cluster.link_capacity:
    state: serving
    address: 10.100.0.32
    port: 50098
    peer: 10.100.0.31
  become: true
  delegate_to: vllm-node2
"""

RETURN = r"""
---
gbit_per_second:
  description: The received data.
  type: float
  returned: "success, with O(state=measured), not in check mode"
retransmits:
  description: Segments that were sent again; V(null) if the system does not count them.
  type: int
  returned: "success, with O(state=measured), not in check mode"
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._bench.link import end, measure, serve
from ..module_utils._text import Refusal


def main():
    needed = ("address", "port", "peer")
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["serving", "measured", "absent"], "required": True},
            "address": {"type": "str"},
            "port": {"type": "int"},
            "peer": {"type": "str"},
            "seconds": {"type": "int", "default": 10},
            "reverse": {"type": "bool", "default": False},
        },
        required_if=[("state", "serving", needed), ("state", "measured", needed)],
        supports_check_mode=True,
    )
    try:
        found = {} if module.check_mode else reach(**module.params)
    except Refusal as error:
        module.fail_json(msg=f"link_capacity: {error}")
    module.exit_json(changed=False, **found)


def reach(state, address, port, peer, seconds, reverse):
    """-> the measurement, empty in other states."""
    if state == "measured":
        return measure(peer, address, port, seconds, reverse)
    if state == "serving":
        serve(address, port, peer, seconds)
    else:
        end()
    return {}


if __name__ == "__main__":
    main()
