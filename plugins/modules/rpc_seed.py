#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: rpc_seed
short_description: "Internal: fill the tensor cache of a worker before a head loads the model"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description:
  - Copies the tensors of a worker's layers from the node that has the model, where
    M(thefermisea.llama_cluster.gguf_share) serves it, into C(/var/cache/llama-cluster/rpc-SERVICE). ggml-rpc-server of
    the worker's own build names and writes them, in a unit without a network.
  - Tensors of other models and layers are deleted. What an interrupted run has copied is kept.
options:
  service: {description: The name of the service., type: str, required: true}
  files:
    description: RV(thefermisea.llama_cluster.gguf_fetch#module:files) of the model. Without them it is not there yet.
    type: list
    elements: dict
    default: []
  layers:
    description: "The worker's first layer, and the one after its last."
    type: list
    elements: int
    required: true
  output: {description: Whether the worker has the output layer too., type: bool, required: true}
  program: {description: "C(ggml-rpc-server) of the worker's build.", type: path, required: true}
  user: {description: The user of workers., type: str, required: true}
  url:
    description: Where the files are, RV(thefermisea.llama_cluster.gguf_share#module:url). Not needed in check mode.
    type: str
    default: ""
  log: {description: A file for lines of progress., type: path}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
"""

EXAMPLES = r"""
---
- name: Seed the tensor cache
  thefermisea.llama_cluster.rpc_seed:
    service: reasoning
    files: "{{ model.files }}"
    layers: [0, 40]
    output: false
    program: /opt/llama.cpp/current/bin/ggml-rpc-server
    user: llama-rpc
    url: http://10.100.0.31:50099/
"""

RETURN = r"""
msg: {description: What was done., type: str, returned: success}
seeded: {description: Whether the cache had everything before this run., type: bool, returned: success}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._seed.seed import Wanted, is_done, seed
from ..module_utils._text import Refusal

OPTIONS = {
    "service": {"type": "str", "required": True},
    "files": {"type": "list", "elements": "dict", "default": []},
    "layers": {"type": "list", "elements": "int", "required": True},
    "output": {"type": "bool", "required": True},
    "program": {"type": "path", "required": True},
    "user": {"type": "str", "required": True},
    "url": {"type": "str", "default": ""},
    "log": {"type": "path"},
}


def run(module):
    """-> what the module returns; raises Refusal, OSError."""
    given = module.params
    wanted = Wanted(**{name: given[name] for name in Wanted._fields})
    if is_done(wanted):
        return {"changed": False, "seeded": True, "msg": f"{wanted.folder()}: all tensors are there"}
    done = {"changed": True, "seeded": False, "msg": f"{wanted.folder()}: tensors would be copied"}
    if module.check_mode:
        return done
    if not given["log"]:
        return dict(done, msg=seed(wanted, given["url"], lambda line: None))
    # Only root may write there.
    os.makedirs(os.path.dirname(given["log"]), 0o755, exist_ok=True)
    with open(given["log"], "w", buffering=1) as log:
        try:
            done["msg"] = seed(wanted, given["url"], lambda line: log.write(f"{line}\n"))
        except Refusal as refusal:
            # For whom the job's log is shown, instead of its progress.
            log.seek(0)
            log.truncate()
            log.write(f"{refusal}\n")
            raise
    os.unlink(given["log"])
    return done


def main():
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    try:
        done = run(module)
    except (Refusal, OSError) as error:
        module.fail_json(msg=f"rpc_seed: {error}")
    module.exit_json(**done)


if __name__ == "__main__":
    main()
