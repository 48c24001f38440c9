#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: firewalld_rules
short_description: "Internal: have firewalld let in who is wanted, where it filters"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: Has each wanted rule in the zone of its interface.
options:
  record:
    description: "The record of added rules, in a directory that only root can write."
    type: path
    required: true
  rules: {description: "The interface that packets come in on, for each rich rule.", type: dict}
  peers:
    description: >-
      C(ADDRESS:PORT) of each host to let in, in the zone of the interface that leads to it; the port is this
      node's.
    type: list
    elements: str
  timeout:
    description: "How long firewalld keeps what is added, such as V(6h), and then in no configuration."
    type: str
    default: ""
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: full}}
"""

EXAMPLES = r"""
---
- name: Let the heads in by firewalld
  thefermisea.llama_cluster.firewalld_rules:
    peers: ["10.1.0.32:50052"]
    record: /var/lib/llama-cluster/rpc-rules
  become: true
"""

RETURN = r"""
---
calls:
  description: "The commands for firewalld, in check mode too."
  type: list
  returned: success
  elements: str
left:
  description: >-
    Rules of earlier runs that are not wanted any more and stay, because firewalld does not run.
  type: list
  returned: success
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node.firewalld import apply, peer_rules
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            "record": {"type": "path", "required": True},
            "rules": {"type": "dict"},
            "peers": {"type": "list", "elements": "str"},
            "timeout": {"type": "str", "default": ""},
        },
        required_one_of=[("rules", "peers")],
        mutually_exclusive=[("rules", "peers")],
        supports_check_mode=True,
    )
    record, timeout = module.params["record"], module.params["timeout"]
    try:
        rules = module.params["rules"]
        rules = peer_rules(module.params["peers"]) if rules is None else rules
        actions = apply(record, rules, timeout, module.check_mode)
    except Refusal as refusal:
        module.fail_json(msg=f"firewalld_rules: {refusal}")
    except OSError as error:
        module.fail_json(
            msg="firewalld_rules: %s: %s, root and a disk that can be written are needed: run with become"
            % (error.filename or record, error.strerror)
        )
    if actions.left:
        module.warn(
            "%s of %s: %d rules that earlier runs added to the configuration of firewalld stay, with the file, "
            "since firewalld does not run: start it and run the playbook again"
            % (record, os.uname().nodename, len(actions.left))
        )
    calls = [" ".join(call) for call in actions.calls]
    module.exit_json(
        changed=bool(calls) and not timeout,
        calls=calls,
        left=actions.left,
        diff={"prepared": "".join(call + "\n" for call in calls)},
    )


if __name__ == "__main__":
    main()
