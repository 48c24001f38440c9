#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: async_progress
short_description: "Internal: wait for an async job and show how far it is"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Waits for a job that a task started with C(async) and C(poll=0), and prints a whole line of progress about every
  half minute.
options:
  jid: {description: "The job's id, C(ansible_job_id) of the task that started it.", type: str, required: true}
  log: {description: The file on the node that the job writes to., type: path, required: true}
  what: {description: "What the job does, for the lines of progress and the error.", type: str, required: true}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: none}
  diff_mode: {support: none}
  action: {support: full, description: Has an action plugin.}
"""

EXAMPLES = r"""
---
- name: Wait for it
  thefermisea.llama_cluster.async_progress:
    jid: "{{ compiler.ansible_job_id }}"
    log: /var/tmp/build/build.log
    what: compiling
"""

RETURN = r"""
---
job: {description: What the job itself has returned., type: dict, returned: when the job has finished}
seconds: {description: How long the wait was., type: int, returned: when the job has finished}
"""
