# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: did_you_mean
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: words a hint for a mistyped name"
description:
  - Names the known name that is nearest to what was typed, for the end of a sentence that refuses it.
positional: _input, known
options:
  _input:
    description: The name as it was typed.
    type: str
    required: true
  known:
    description: The names that there are.
    type: list
    elements: str
    required: true
"""

EXAMPLES = """
# node rtx7, did you mean rtx1?
message: "node {{ node }}{{ node | thefermisea.llama_cluster.did_you_mean(groups.llama_nodes) }}"
"""

RETURN = """
_value:
  description: The end of a sentence, or an empty text where no known name is near.
  type: str
"""

from ..plugin_utils._intent.values import near


class FilterModule:
    def filters(self):
        return {"did_you_mean": near}
