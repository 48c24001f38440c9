#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: run_lock
short_description: "Internal: hold the lock of a node for a run"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Takes the lock of a node for this run of C(ansible-playbook), whose tasks share it. Refuses if another run holds it.
options:
  path: {description: The file., type: str, default: /run/llama-cluster/run.lock}
  wait:
    description: Waits for the other run to end for up to 12 hours instead of refusing.
    type: bool
    default: false
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: none}
  diff_mode: {support: none}
  action: {support: full, description: Has an action plugin.}
"""

EXAMPLES = r"""
---
- name: Take the lock of the node
  thefermisea.llama_cluster.run_lock:
    wait: "{{ wait | default(false) }}"
  become: true
"""

RETURN = r"""
---
taken: {description: Whether this run holds the lock., type: bool, returned: success}
variants:
  description: Whether a run of tune.yml that died left what M(thefermisea.llama_cluster.llama_variant) ends.
  type: bool
  returned: when this run holds the lock
id: {description: What the lock names this run., type: str, returned: when this run holds the lock}
reason: {description: Why it does not hold it., type: str, returned: success}
"""
