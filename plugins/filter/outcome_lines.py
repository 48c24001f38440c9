# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: outcome_lines
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: the lines that a playbook ends with"
description:
  - Decides what a change of what serves has come to, from the facts that the nodes have, and words it.
options:
  _input:
    description: C(hostvars), with the facts that role C(apply) and the playbook have left.
    type: dict
    required: true
  ending:
    description: What came of it; V(drill) before one begins.
    type: str
    choices: [drill, held, model_kept, model_switched, model_switch_failed, rolled_back, served, silent, status,
      upgrade_failed, upgraded]
    required: true
  hosts:
    description: The nodes that are left, C(ansible_play_hosts); where a model was switched, those of its heads.
    type: list
    elements: str
    required: true
  run:
    description: What the playbook knows of its run, as C(plugin_utils/_reports/outcome.py) says for each ending.
    type: dict
    default: {}
positional: ending, hosts, run
"""

EXAMPLES = """
lines: "{{ hostvars | thefermisea.llama_cluster.outcome_lines('held', ansible_play_hosts, {'node': 'node2', 'services':
  llama_services}) }}"
"""

RETURN = """
_value:
  description: Sentences, each one line.
  type: list
  elements: str
"""

from ..plugin_utils._reports.outcome import outcome_lines


class FilterModule:
    def filters(self):
        return {"outcome_lines": outcome_lines}
