#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: node_files
short_description: "Internal: have many directories, files and links in one call"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: Works through O(files) in their order.
options:
  files:
    description: "What is to be there, and what is not."
    type: list
    elements: dict
    required: true
    suboptions:
      path: {description: The path., type: path, required: true}
      state: {description: What it is., type: str, default: file, choices: [file, directory, link, absent]}
      content: {description: The text of a file., type: str, default: ""}
      template: {description: "A template of the role, instead of O(files[].content).", type: str}
      vars: {description: "Variables of the template, beside O(vars).", type: dict, default: {}}
      target: {description: The target of a link., type: str}
      mode:
        description: "The mode of a file or a directory in octal digits, C(0644) or C(0755) if not given."
        type: str
      owner: {description: The owner of a file or a directory., type: str, default: root}
      group: {description: The group of a file or a directory., type: str, default: root}
      validate:
        description: "A program that reads the file before it gets its name, in words; C(%s) is the file."
        type: list
        elements: str
      mark:
        description: "A text that a file which is there has to have, or it is somebody else's and the task fails."
        type: str
      hidden: {description: Whether a diff shows nothing of it., type: bool, default: false}
      kept: {description: Whether a directory that is there stays as it is., type: bool, default: false}
  vars: {description: Variables of all templates., type: dict, default: {}}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  action: {support: full, description: Has an action plugin.}
"""

EXAMPLES = r"""
---
- name: Write what the watchdog watches
  thefermisea.llama_cluster.node_files:
    files:
      - {path: /etc/llama-cluster, state: directory}
      - {path: /etc/llama-cluster/plan-chat.json, content: "[]\n"}
  become: true
"""

RETURN = r"""
---
changed_paths: {description: "What was changed, or would be.", type: list, returned: success, elements: str}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._node.files import Files
from ..module_utils._text import Refusal

ENTRY = {
    "path": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["file", "directory", "link", "absent"], "default": "file"},
    "content": {"type": "str", "default": ""},
    "template": {"type": "str"},
    "vars": {"type": "dict", "default": {}},
    "target": {"type": "str"},
    "mode": {"type": "str"},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
    "validate": {"type": "list", "elements": "str"},
    "mark": {"type": "str"},
    "hidden": {"type": "bool", "default": False},
    "kept": {"type": "bool", "default": False},
}


def main():
    module = AnsibleModule(
        argument_spec={
            "files": {"type": "list", "elements": "dict", "required": True, "options": ENTRY},
            "vars": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
        no_log=True,  # contents do not belong into the node's log
    )
    files = Files(module.check_mode, module.tmpdir)
    try:
        for entry in module.params["files"]:
            files.apply(entry)
    except Refusal as error:
        module.fail_json(msg=f"node_files: {error}")
    except OSError as error:
        module.fail_json(msg=f"node_files: {error.filename}: {error.strerror}: root and a writable disk are needed")
    module.exit_json(changed=bool(files.paths), changed_paths=files.paths, diff=files.changes)


if __name__ == "__main__":
    main()
