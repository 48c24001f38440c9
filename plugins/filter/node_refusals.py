# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: node_refusals
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says what keeps a node from being deployed to"
description:
  - Returns one sentence for each thing that is missing or in the way, of what it is asked about. Asked about
    nothing it judges the system.
options:
  _input:
    description: The facts of the node, with those of M(thefermisea.llama_cluster.node_facts).
    type: dict
    required: true
  host:
    description: The name of the node.
    type: str
    required: true
  contact:
    description:
      - Whether Ansible can work there, the node's C(variables), and the results of a task without root and without
        Python (C(login)), with root (C(root)) and of a module (C(python)).
    type: dict
  accounts:
    description: The accounts of heads and workers, with C(option), C(name), C(id_option) and C(id).
    type: list
    elements: dict
  services:
    description:
      - C(heads) and C(workers) of the node, its C(address) on the fabric, and what will have made room, C(ending)
        and C(leaving).
    type: dict
  units:
    description:
      - The C(instances) of the node, of P(thefermisea.llama_cluster.node_rpc#filter) or
        P(thefermisea.llama_cluster.node_serving#filter), their C(kind), V(rpc) or V(head), whether
        earlier tasks have really installed builds
        and models (C(deployed)), and what builds say of their flags (C(told)), by release.
    type: dict
  trials:
    description:
      - Whether a service on trial is in the way; of a switch the C(service), its C(quant), and whether it is a C(trial)
        itself.
    type: dict
  gateway:
    description:
      - What nginx is to listen on (C(here), of P(thefermisea.llama_cluster.gateway_host#filter), and C(addresses)),
        and what C(nginx -T) says (C(configuration), and its C(status)).
    type: dict
  doors:
    description: The results of curl at the gateway's doors.
    type: list
    elements: dict
positional: host, contact, accounts, services, units, trials, gateway, doors
"""

EXAMPLES = """
refused: "{{ ansible_facts | thefermisea.llama_cluster.node_refusals(inventory_hostname) }}"
"""

RETURN = """
_value:
  description: The sentences; empty where nothing is wrong.
  type: list
  elements: str
"""

from ..plugin_utils._access.node import node_refusals


class FilterModule:
    def filters(self):
        return {"node_refusals": node_refusals}
