#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: llama_drain
short_description: "Internal: wait until a head works on no request"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Asks a head every two seconds whether it works, and prints a whole line of what it still does about every ten
  seconds.
options:
  url: {description: "Base address of the head, without C(/v1).", type: str, required: true}
  unit: {description: Its systemd unit., type: str, required: true}
  timeout: {description: The most seconds to wait., type: int, required: true}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  action: {support: full, description: Has an action plugin.}
"""

EXAMPLES = r"""
---
- name: Running requests end
  thefermisea.llama_cluster.llama_drain:
    url: http://10.0.0.31:8000
    unit: llama-head-reasoning.service
    timeout: 300
  become: true
"""

RETURN = r"""
---
drained: {description: Whether it works on no request now., type: bool, returned: success}
seconds: {description: How long the wait was., type: float, returned: success}
reason:
  description: "What the head does now, as M(thefermisea.llama_cluster.llama_health) says it."
  type: str
  returned: success
"""
