#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: remove_managed
short_description: "Internal: remove from a node the files and units that the collection manages, and nothing else"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Removes unit files that carry E(LLAMA_CLUSTER_DIGEST), builds and models by the record beside them, and the node's
  other files by what they say.
options:
  stopped: {description: Names or globs of units that are stopped and disabled., type: list, elements: str, default: []}
  units: {description: Names or globs of units whose files are removed., type: list, elements: str, default: []}
  units_kept: {description: Names of units that stay as they are., type: list, elements: str, default: []}
  builds: {description: Where llama.cpp builds are installed., type: path}
  builds_kept:
    description: Directories of releases that stay; with any of them the links to the builds stay too.
    type: list
    elements: path
    default: []
  model: {description: "A model, by the path of its (first) file, with what was being fetched of it.", type: path}
  retired: {description: "A model that is not wanted any more, by the path of its (first) file.", type: path}
  models: {description: A directory of models., type: path}
  firewall: {description: Whether to remove the files of the firewall., type: bool, default: false}
  gateway:
    description: "Whether to remove the files of a gateway, its site of nginx and its units too."
    type: bool
    default: false
  node_files:
    description: >-
      Whether to remove what else the roles write on a node, below C(/etc/llama-cluster), C(/opt/llama-cluster),
      C(/var/lib/llama-cluster) and C(/run/llama-cluster).
    type: bool
    default: false
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: none}}
"""

EXAMPLES = r"""
---
- name: Remove the models that were fetched
  thefermisea.llama_cluster.remove_managed:
    models: /opt/models
  become: true
"""

RETURN = r"""
---
removed: {description: "What was removed, stopped or disabled, or would be.", type: list, returned: success,
  elements: str}
stopped:
  description: The units of O(stopped) as they were, as M(thefermisea.llama_cluster.llama_unit_info) returns them.
  type: list
  returned: success
  elements: dict
recorded:
  description: What the record of O(retired) says of its files.
  type: list
  returned: success
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._removal.removal import MARKED, Removal
from ..module_utils._text import Refusal


def main():
    module = AnsibleModule(
        argument_spec={
            **{name: {"type": "list", "elements": "str", "default": []} for name in ("stopped", "units", "units_kept")},
            "builds": {"type": "path"},
            "builds_kept": {"type": "list", "elements": "path", "default": []},
            "model": {"type": "path"},
            "retired": {"type": "path"},
            "models": {"type": "path"},
            **{part: {"type": "bool", "default": False} for part in MARKED},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    removal = Removal(module.check_mode)
    recorded = []
    try:
        stopped = [unit._asdict() for unit in removal.stop(wanted["stopped"], wanted["units_kept"])]
        removal.units(wanted["units"], wanted["units_kept"])
        if wanted["builds"]:
            removal.builds(wanted["builds"], wanted["builds_kept"])
        if wanted["model"]:
            removal.model(wanted["model"])
        if wanted["retired"]:
            recorded = removal.retire(wanted["retired"])
        if wanted["models"]:
            removal.models(wanted["models"])
        for part in filter(wanted.get, MARKED):
            removal.marked(part)
    except Refusal as refusal:
        module.fail_json(msg=str(refusal))
    except OSError as error:
        module.fail_json(msg=f"remove_managed: {error.filename}: cannot be removed ({error.strerror}): run with become")
    module.exit_json(changed=bool(removal.removed), removed=removal.removed, recorded=recorded, stopped=stopped)


if __name__ == "__main__":
    main()
