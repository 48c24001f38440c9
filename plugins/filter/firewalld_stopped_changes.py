# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: firewalld_stopped_changes
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: decides which rules leave the configuration of a firewalld that does not run"
description:
  - Returns calls of C(firewall-offline-cmd) after which no rule that an earlier run added,
    and that is not wanted any more, comes back with firewalld.
positional: listed, wanted
options:
  _input:
    description: Rules that earlier runs added, C(PLACE ZONE RULE) each; the place is V(running) or V(permanent).
    type: list
    elements: str
    required: true
  listed:
    description: What C(firewall-offline-cmd --list-all-zones) says; V(none) where there is no such command.
    type: str
    required: true
  wanted:
    description: The rules that are wanted.
    type: list
    elements: str
    required: true
"""

EXAMPLES = """
told: "{{ recorded | thefermisea.llama_cluster.firewalld_stopped_changes(zones.stdout, []) }}"
"""

RETURN = """
_value:
  description: >-
    C(calls), the arguments of C(firewall-offline-cmd), a list for each call; C(after), the lines to record; C(left),
    those of them that are not wanted any more and could not be removed.
  type: dict
"""

from ..plugin_utils._access.firewalld import stopped_changes


class FilterModule:
    def filters(self):
        return {"firewalld_stopped_changes": stopped_changes}
