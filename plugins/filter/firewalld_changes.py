# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: firewalld_changes
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: decides what firewalld has to be told so that it lets heads and clients in"
description:
  - Returns commands after which each wanted rule is in its zone, and none that an earlier run added is in another one.
  - To the configuration of a firewalld that does not run nothing is added.
  - A rule that was there before is never recorded, so it is never removed.
positional: listed, wanted, timeout
options:
  _input:
    description: Rules that earlier runs added, C(PLACE ZONE RULE) each; the place is V(running) or V(permanent).
    type: list
    elements: str
    required: true
  listed:
    description:
      - What C(firewall-cmd --list-all-zones) says of each place. Of a firewalld that does not run, as V(stopped), what
        C(firewall-offline-cmd --list-all-zones) says, or V(none) where there is no such command.
    type: dict
    required: true
  wanted:
    description: The zone of each rule that is wanted.
    type: dict
    required: true
  timeout:
    description: How long firewalld keeps what is added, such as V(6h). Empty means for ever.
    type: str
    default: ""
"""

EXAMPLES = """
told: >-
  {{ recorded
     | thefermisea.llama_cluster.firewalld_changes({'running': zones.stdout}, {rule: 'internal'}, '6h') }}
"""

RETURN = """
_value:
  description: C(calls), the commands, a list of words for each; C(before) and C(after), the lines to record before and
    after them; C(left), those of them that are not wanted any more and could not be removed.
  type: dict
"""

from ..plugin_utils._access.firewalld import changes


class FilterModule:
    def filters(self):
        return {"firewalld_changes": changes}
