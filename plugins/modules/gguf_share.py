#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: gguf_share
short_description: "Internal: share model files with other nodes over the fabric"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Starts a small HTTP server on a node that has a model, for the time that other nodes need to copy it with
  M(thefermisea.llama_cluster.gguf_fetch) and its O(thefermisea.llama_cluster.gguf_fetch#module:copy_of).
options:
  state:
    description: V(present) starts the server; one that an interrupted run has left at O(port) is ended first.
    type: str
    default: present
    choices: [present, absent]
  port: {description: The port it listens on., type: int, default: 50099}
  address: {description: The address of the node that it listens on., type: str}
  files: {description: "The files it serves, each under its own name.", type: list, elements: path}
  peers: {description: The addresses that it answers., type: list, elements: str}
  idle: {description: Seconds without a request after which it ends by itself., type: int, default: 600}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: none}}
"""

EXAMPLES = r"""
---
- name: Share a model with two other nodes
  thefermisea.llama_cluster.gguf_share:
    address: 10.100.0.31
    files: [/opt/models/OR1-Behemoth.Q8_0.gguf]
    peers: [10.100.0.32, 10.100.0.33]
"""

RETURN = r"""
---
url: {description: Where the files are; their names follow., type: str, returned: "success, with O(state=present)"}
pid: {description: "The server's process.", type: int, returned: "success, with O(state=present), not in check mode"}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._fetch.share import base_url, is_running, names, start, stop
from ..module_utils._text import Refusal

OPTIONS = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "port": {"type": "int", "default": 50099},
    "address": {"type": "str"},
    "files": {"type": "list", "elements": "path"},
    "peers": {"type": "list", "elements": "str"},
    "idle": {"type": "int", "default": 600},
}


def run(module):
    """-> what the module returns; raises Refusal."""
    port, address, files = (module.params[name] for name in ("port", "address", "files"))
    if module.params["state"] == "absent":
        return {"changed": is_running(port) if module.check_mode else stop(port)}
    done = {"changed": True, "url": base_url(address, port)}
    if module.check_mode:
        names(files)
        return done
    return dict(done, pid=start(address, port, files, module.params["peers"], module.params["idle"]))


def main():
    module = AnsibleModule(
        argument_spec=OPTIONS,
        required_if=[("state", "present", ("address", "files", "peers"))],
        supports_check_mode=True,
    )
    try:
        done = run(module)
    except Refusal as error:
        module.fail_json(msg=f"gguf_share: {error}")
    module.exit_json(**done)


if __name__ == "__main__":
    main()
