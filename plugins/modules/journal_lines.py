#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: journal_lines
short_description: "Internal: what the units of a host have said of late"
version_added: 0.1.0
author:
  - The Fermi Sea (@thefermisea)
description:
  - Reads what systemd said of the units whose names begin with C(llama-), and what they said themselves, from the
    journal. The newest lines are kept where there are too many.
  - Of a request to the gateway it tells service, model, the key's name, status and seconds, and nothing else.
options:
  seconds:
    description: How far back, by the host's clock.
    type: int
    required: true
  service:
    description: Only what is about this service.
    type: str
  lines:
    description: How many lines are returned at most.
    type: int
    default: 200
  all:
    description: Whether the lines that servers write while all is well are returned too; else they are counted.
    type: bool
    default: false
extends_documentation_fragment:
  - thefermisea.llama_cluster.attributes
  - thefermisea.llama_cluster.attributes.reads
notes:
  - Needs root, or a user who may read the system journal.
seealso:
  - module: thefermisea.llama_cluster.llama_timeline
"""

EXAMPLES = r"""
---
- name: Read what was said in the last ten minutes
  thefermisea.llama_cluster.journal_lines:
    seconds: 600
  become: true
  register: said
"""

RETURN = r"""
more:
  description: Whether older lines were left out.
  type: bool
  returned: success
  sample: false
lines:
  description: What was said, in order.
  type: list
  elements: dict
  returned: success
  contains:
    at:
      description: Seconds since 1970, to the microsecond.
      type: float
      returned: always
      sample: 1795292605.766978
    unit:
      description: Unit that said it, or of which systemd says it.
      type: str
      returned: always
      sample: llama-watchdog.service
    text:
      description: What was said, of 500 characters at most; empty where lines of a server are counted.
      type: str
      returned: always
      sample: "worker chat: does not answer: restarting it"
    folded:
      description: How many lines of a server this one stands for; 0 where it is a line itself.
      type: int
      returned: always
      sample: 0
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node.journal import known_units, recent
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "seconds": {"type": "int", "required": True},
            "service": {"type": "str"},
            "lines": {"type": "int", "default": 200},
            "all": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        since = time.time() - given["seconds"]
        result = recent(since, given["service"], given["lines"], given["all"], known_units())
    except Refusal as error:
        module.fail_json(msg=f"journal_lines: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
