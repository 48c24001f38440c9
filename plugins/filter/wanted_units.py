# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: wanted_units
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: Names the units that each node should have
description:
  - Every head and worker of the services that systemd runs.
positional: groups
extends_documentation_fragment:
  - thefermisea.llama_cluster.intent.groups
options:
  _input:
    description: The services, as in C(llama_services).
    type: dict
    required: true
"""

EXAMPLES = """
wanted: "{{ llama_services | thefermisea.llama_cluster.wanted_units(groups) }}"
"""

RETURN = """
_value:
  description: For each node the names of its units.
  type: dict
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._units.changes import wanted_units


class FilterModule:
    def filters(self):
        return {"wanted_units": one_sentence(wanted_units)}
