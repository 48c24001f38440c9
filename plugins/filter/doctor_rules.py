# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: doctor_rules
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: the rules of the doctor, as roles bring them"
description:
  - Reads C(observed/doctor/) of every role of the collection, without the fixtures of the rules.
options:
  _input:
    description: Whose evidence they judge, that of one node or that of all nodes together.
    type: str
    choices: [node, cluster]
    required: true
"""

EXAMPLES = """
rules: "{{ 'node' | thefermisea.llama_cluster.doctor_rules }}"
"""

RETURN = """
_value:
  description: Rules, each with its C(name), C(when), C(severity) and sentences.
  type: list
  elements: dict
"""

from ..plugin_utils._doctor.rules import doctor_rules


class FilterModule:
    def filters(self):
        return {"doctor_rules": doctor_rules}
