# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: systemd_escape
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: makes a value one word of a systemd unit file"
description:
  - Returns the value so that systemd reads exactly it, whatever white space, quotes, backslashes, V(%)
    and V($) it has. A value without any of them is returned as it is.
positional: command
options:
  _input:
    description: A value, such as an argument of a program or V(NAME=value) of a variable.
    type: raw
    required: true
  command:
    description: Whether the line is a command, such as C(ExecStart), in which systemd replaces V($NAME) too.
    type: bool
    default: false
"""

EXAMPLES = """
line: "ExecStart=/usr/bin/printf {{ '100 % of $HOME' | thefermisea.llama_cluster.systemd_escape(command=true) }}"
"""

RETURN = """
_value:
  description: The word.
  type: str
"""

from ..plugin_utils._filters import one_sentence
from ..plugin_utils._units.systemd_escape import systemd_escape


class FilterModule:
    def filters(self):
        return {"systemd_escape": one_sentence(systemd_escape)}
