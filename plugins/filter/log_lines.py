# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: log_lines
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: what all hosts have said, in the order of time"
description:
  - Merges what M(thefermisea.llama_cluster.journal_lines) has read on each host.
options:
  _input:
    description: C(hostvars), with what was read as C(logs_said).
    type: dict
    required: true
  hosts:
    description: The hosts that were to be asked, C(ansible_play_hosts_all).
    type: list
    elements: str
    required: true
  asked:
    description: Those that were, C(ansible_play_hosts).
    type: list
    elements: str
    required: true
positional: hosts, asked
"""

EXAMPLES = """
lines: "{{ hostvars | thefermisea.llama_cluster.log_lines(ansible_play_hosts_all, ansible_play_hosts) }}"
"""

RETURN = """
_value:
  description: One line for each that was said, and sentences about what is missing.
  type: list
  elements: str
"""

from ..plugin_utils._reports.logs import log_lines


class FilterModule:
    def filters(self):
        return {"log_lines": log_lines}
