#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: journal_lines
short_description: "Internal: what the units of a host have said of late"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Reads what systemd said of the units whose names begin with C(llama-), and what they said themselves, from the
  journal.
options:
  seconds: {description: "How far back, by the host's clock.", type: int, required: true}
  service: {description: Only what is about this service., type: str}
  lines: {description: How many lines are returned at most., type: int, default: 200}
  all:
    description: Whether the lines that servers write while all is well are returned too; else they are counted.
    type: bool
    default: false
extends_documentation_fragment: [thefermisea.llama_cluster.attributes, thefermisea.llama_cluster.attributes.reads]
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
---
more: {description: Whether older lines were left out., type: bool, returned: success}
lines: {description: "What was said, in order.", type: list, returned: success, elements: dict}
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
