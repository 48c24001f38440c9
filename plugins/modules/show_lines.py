#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: show_lines
short_description: "Internal: print lines, and fail with what is refused"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Prints lines to the controller's terminal without quoting or folding them, so that a command in them can be
  copied.
options:
  lines: {description: The lines., type: list, elements: str, default: []}
  warnings:
    description: "Lines that are printed before, each as a warning of Ansible's."
    type: list
    elements: str
    default: []
  refused: {description: "Sentences, of which any fails the task.", type: list, elements: str, default: []}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  action: {support: full, description: Has an action plugin.}
"""

EXAMPLES = r"""
---
- name: Say how to ask
  thefermisea.llama_cluster.show_lines:
    lines:
      - "curl -sS http://10.0.0.31:8000/v1/models"
"""

RETURN = r"""
---
lines: {description: The lines as they were printed., type: list, returned: always, elements: str}
"""
