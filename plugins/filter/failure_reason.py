# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = """
name: failure_reason
author: The Fermi Sea (@thefermisea)
version_added: 0.1.0
short_description: "Internal: why a task failed, in one line"
description:
  - In a rescue, the message of the task that failed, or of the first of its items that failed.
options:
  _input:
    description: C(ansible_failed_result); nothing on a node that only shares the failure of another one.
    type: dict
    required: true
"""

EXAMPLES = """
reason: "{{ ansible_failed_result | thefermisea.llama_cluster.failure_reason }}"
"""

RETURN = """
_value:
  description: The message without line breaks.
  type: str
"""

from ..plugin_utils._reports.failures import failure_reason


class FilterModule:
    def filters(self):
        return {"failure_reason": failure_reason}
