#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_fabric_facts
short_description: Facts about the interface that carries RPC
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Returns as facts which interface carries a node's C(llama_fabric_address), its link layer, rate, IPoIB mode, MTU and
    error counters.
  - Warns when RPC would leave the fabric, because the address is not on this node, because it is on another interface
    than the expected one, or because the kernel would send to a peer over another interface or from another address.
  - Asks sysfs and C(ip) and sends nothing.
options:
  address:
    description: The node's C(llama_fabric_address), IPv4.
    type: str
    required: true
  peers:
    description: The fabric addresses of the nodes that it speaks RPC with; O(address) itself is passed over.
    type: list
    elements: str
    default: []
  interface:
    description: The interface that O(address) is expected on; without it, any.
    type: str
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
  - thefermisea.llama_cluster.attributes.reads
attributes:
  facts:
    support: full
    description: Action returns an C(ansible_facts) dictionary that will update existing host facts.
notes:
  - llama.cpp's RPC speaks TCP. Over InfiniBand that is IPoIB, whose own limit is well below the rate of the link.
requirements:
  - C(ip) of iproute2
"""

EXAMPLES = r"""
---
- name: Look at the fabric
  thefermisea.llama_cluster.llama_fabric_facts:
    address: "{{ llama_fabric_address }}"
    peers: "{{ groups.llama_nodes | map('extract', hostvars, 'llama_fabric_address') | select('defined') }}"

- name: Refuse a node whose RPC would leave InfiniBand
  ansible.builtin.assert:
    that:
      - ansible_facts.llama_fabric.link_layer == 'InfiniBand'
      - ansible_facts.llama_fabric.warnings == []
    fail_msg: "{{ ansible_facts.llama_fabric.warnings | join('\n') }}"
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to the host's.
  type: dict
  returned: always
  contains:
    llama_fabric:
      description: The fabric as this node sees it. What an interface does not have or tell is V(null).
      type: dict
      returned: always
      contains:
        address:
          description: The address asked about.
          type: str
          returned: always
          sample: 10.100.0.31
        interface:
          description: The interface it is on; V(null) when it is on none.
          type: str
          returned: always
          sample: ib0
        link_layer:
          description: V(InfiniBand), V(Ethernet) or V(loopback).
          type: str
          returned: always
          sample: InfiniBand
        state:
          description: The kernel's operational state of the interface.
          type: str
          returned: always
          sample: up
        mtu:
          description: Largest packet in bytes.
          type: int
          returned: always
          sample: 2044
        rate_gbps:
          description: Rate of the link in Gbit/s; of the port on InfiniBand.
          type: float
          returned: always
          sample: 100.0
        ipoib_mode:
          description: V(datagram) or V(connected), on InfiniBand.
          type: str
          returned: always
          sample: datagram
        errors:
          description: Packets that the interface lost since it is there.
          type: dict
          returned: always
          sample: {"rx_errors": 0, "tx_errors": 0, "rx_dropped": 0, "tx_dropped": 4}
        port:
          description: The RDMA port under the interface, InfiniBand or RoCE.
          type: dict
          returned: always
          contains:
            device:
              description: The RDMA device.
              type: str
              returned: when there is a port
              sample: mlx5_0
            port:
              description: Its port, counted from 1.
              type: int
              returned: when there is a port
              sample: 1
            link_layer:
              description: V(InfiniBand) or V(Ethernet).
              type: str
              returned: when there is a port
              sample: InfiniBand
            state:
              description: State of the port.
              type: str
              returned: when there is a port
              sample: ACTIVE
            rate:
              description: Rate, width and generation, as the driver writes them.
              type: str
              returned: when there is a port
              sample: 100 Gb/sec (2X HDR)
            rate_gbps:
              description: Rate in Gbit/s.
              type: float
              returned: when there is a port
              sample: 100.0
            errors:
              description: Error counters of the port; V(null) for those that it does not have.
              type: dict
              returned: when there is a port
              sample:
                symbol_error: 0
                link_error_recovery: 0
                link_downed: 1
                local_link_integrity_errors: 0
                excessive_buffer_overrun_errors: 0
                port_rcv_errors: 0
                port_rcv_remote_physical_errors: 0
                port_rcv_constraint_errors: 0
                port_xmit_constraint_errors: 0
                port_xmit_discards: 0
        peers:
          description: How the kernel would send to each peer.
          type: list
          elements: dict
          returned: always
          contains:
            address:
              description: The peer's address.
              type: str
              returned: always
              sample: 10.100.0.32
            interface:
              description: The interface that it would send from.
              type: str
              returned: always
              sample: ib0
            source:
              description: The address that it would send from.
              type: str
              returned: always
              sample: 10.100.0.31
            on_fabric:
              description: Whether these are the fabric's.
              type: bool
              returned: always
              sample: true
            problem:
              description: What C(ip) says where there is no route.
              type: str
              returned: always
              sample: null
        warnings:
          description: What would take RPC off the fabric, one sentence each; they are shown as warnings too.
          type: list
          elements: str
          returned: always
          sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node.fabric import collect
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "required": True},
            "peers": {"type": "list", "elements": "str", "default": []},
            "interface": {"type": "str"},
        },
        supports_check_mode=True,
    )
    try:
        facts = collect(**module.params)
    except Refusal as error:
        module.fail_json(msg=f"llama_fabric_facts: {error}")
    for warning in facts["warnings"]:
        module.warn(warning)
    module.exit_json(changed=False, ansible_facts={"llama_fabric": facts})


if __name__ == "__main__":
    main()
