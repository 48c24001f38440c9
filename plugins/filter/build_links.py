# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: build_links
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: says what becomes of the links to a build that is made current"
description:
  - Compares the links and releases below O(prefix) with what making O(release) current leaves.
positional: _input, prefix, release, others
options:
  _input:
    description: The fact C(llama_node) with units and build.
    type: dict
    required: true
  prefix:
    description: Where builds are installed.
    type: str
    required: true
  release:
    description: The name of the release.
    type: str
    required: true
  others:
    description: The names of other releases that stay.
    type: list
    elements: str
    default: []
"""

EXAMPLES = """
links: "{{ ansible_facts.llama_node | thefermisea.llama_cluster.build_links('/opt/llama.cpp', 'b11434-cpu-97356f97') }}"
"""

RETURN = """
_value:
  description: C(wanted) and C(current), what C(current) shall point to and does; C(strange), links that are not ours;
    C(linked), whether the path that operators know is there; C(used), the releases that stay; C(settled), whether
    nothing is to be done.
  type: dict
"""

from ..plugin_utils._units.links import build_links


class FilterModule:
    def filters(self):
        return {"build_links": build_links}
