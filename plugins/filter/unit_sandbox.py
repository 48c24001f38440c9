# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: unit_sandbox
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says what the process of a unit may do"
description:
  - Returns the directives of systemd's sandbox for a worker or a head, as lines for C([Service]).
positional: numa, rdma
options:
  _input:
    description: What the unit's program computes on, V(cpu) or V(cuda).
    type: str
    required: true
  numa:
    description: Whether numactl starts the program.
    type: bool
    default: false
  rdma:
    description: Whether the unit's program is built for RPC over RDMA.
    type: bool
    default: false
"""

EXAMPLES = """
sandbox: "{{ rpc_worker_accelerator | thefermisea.llama_cluster.unit_sandbox }}"
"""

RETURN = """
_value:
  description: The lines.
  type: list
  elements: str
"""

from ..plugin_utils._units.sandbox import unit_sandbox


class FilterModule:
    def filters(self):
        return {"unit_sandbox": unit_sandbox}
