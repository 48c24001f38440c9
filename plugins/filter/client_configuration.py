# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: client_configuration
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: makes the configuration of a client of the gateway"
description:
  - Returns the C(text) of the configuration, the name of its C(file), and the C(url) at which the gateway answers the
    same. Of no client it returns the list of all of them.
options:
  _input:
    description: The configuration of the gateway.
    type: dict
    required: true
  client:
    description: The client.
    type: str
    default: ""
positional: client
"""

EXAMPLES = """
file: "{{ gateway_config | thefermisea.llama_cluster.client_configuration('opencode') }}"
"""

RETURN = """
_value:
  description: C(url), C(file) and C(text).
  type: dict
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._gateway.client_files import client_file


class FilterModule:
    def filters(self):
        return {"client_configuration": one_sentence(client_file)}
