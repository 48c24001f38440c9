# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: switch_state
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: what the nodes of a switch have noted so far"
description:
  - Nodes note the facts C(switch_failure), C(switch_idle) and C(switch_undone). A node that is gone counts as one that
    failed.
options:
  _input:
    description: C(hostvars).
    type: dict
    required: true
  hosts:
    description: The nodes of the play, C(ansible_play_hosts_all).
    type: list
    elements: str
    required: true
  left:
    description: Those that can still be worked on, C(ansible_play_hosts).
    type: list
    elements: str
    required: true
positional: hosts, left
"""

EXAMPLES = """
switch: "{{ hostvars | thefermisea.llama_cluster.switch_state(ansible_play_hosts_all, ansible_play_hosts) }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.failures), the reasons, RV(_value.idle), whether no node has anything to do, and RV(_value.undone),
      whether every node is as it was.
  type: dict
"""

from ..plugin_utils._reports.outcome import switch_state


class FilterModule:
    def filters(self):
        return {"switch_state": switch_state}
