# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: switch_state
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: what the nodes of a switch have noted so far, and what follows from it"
description:
  - Reads the facts that role C(apply) leaves on the nodes, and those that a playbook notes of what failed. A node that
    is gone counts as one that failed.
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
  service:
    description: The one that it is about; empty for all.
    type: str
    default: ""
positional: hosts, left, service
"""

EXAMPLES = """
state: "{{ hostvars | thefermisea.llama_cluster.switch_state(ansible_play_hosts_all, ansible_play_hosts) }}"
"""

RETURN = """
_value:
  description:
    - RV(_value.failures), the reasons; RV(_value.idle) and RV(_value.undone), whether no node has anything to do, and
      whether every node is as it was.
    - RV(_value.opened), the snapshot that an earlier run left open, and RV(_value.last), the last one that was closed,
      each the name or empty; RV(_value.old_build), what served.
    - RV(_value.snapshot), what becomes of the open snapshot, V(closed), V(dropped), or V(opened) where something is
      still to be undone; RV(_value.retired), the nodes whose old model is removed.
  type: dict
"""

from ..plugin_utils._reports.outcome import switch_state


class FilterModule:
    def filters(self):
        return {"switch_state": switch_state}
