# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: gateway_host
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says what a host of the gateway listens on"
description:
  - Returns whether the C(engine) runs there, the C(tiers) that services name with C(service), C(port) and C(endpoints)
    of each, the C(ports) of nginx, the C(rules) of firewalld for its clients, the C(urls) that clients are told, how
    the host reaches itself (C(local)), and the C(questions), each with C(url) and C(model), that show that all of it
    answers.
options:
  _input:
    description: What the gateway is told, as P(thefermisea.llama_cluster.gateway_config#filter) returns it.
    type: dict
    required: true
  host:
    description:
      - Of the host C(os_family), C(major) (of its distribution), the C(address) that clients reach it at, C(port),
        C(addresses) that nginx listens on, whether there is C(tls), C(tiers) with their ports, the networks of
        C(clients), and what C(ip) says of the C(interface) that has the address.
    type: dict
    required: true
positional: host
"""

EXAMPLES = """
here: "{{ gateway_config | thefermisea.llama_cluster.gateway_host(host) }}"
"""

RETURN = """
_value:
  description: See above.
  type: dict
"""

from ..plugin_utils._access.gateway import gateway_host


class FilterModule:
    def filters(self):
        return {"gateway_host": gateway_host}
