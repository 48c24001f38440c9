#!/usr/bin/python
# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
---
module: bundle_seal
short_description: "Internal: write the record and the checksums of a bundle"
version_added: 0.1.0
author: [The Fermi Sea (@thefermisea)]
description: >-
  Has C(bundle.json) and C(SHA256SUMS) in a bundle say what its directories C(models), C(builds) and C(source) hold.
options:
  path: {description: "The bundle, a directory on the controller.", type: path, required: true}
  models:
    description: >-
      The models in it, as M(thefermisea.llama_cluster.gguf_fetch) returned them in a loop over C(model_items),
      each with its C(item).
    type: list
    elements: dict
    required: true
  builds: {description: Names of the archives of built trees in it., type: list, elements: str, default: []}
  source: {description: Names of the source archives in it., type: list, elements: str, default: []}
extends_documentation_fragment: [thefermisea.llama_cluster.attributes]
attributes: {check_mode: {support: full}, diff_mode: {support: none}}
"""

EXAMPLES = r"""
---
- name: Their record
  thefermisea.llama_cluster.bundle_seal:
    path: /media/disk/llama-bundle
    models: "{{ fetched.results }}"
    source: [llama.cpp-b11434.tar.gz]
"""

RETURN = r"""
---
lines: {description: "What is in the bundle, as lines to print.", type: list, returned: success, elements: str}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._fetch.bundle import lines, seal

OPTIONS = {
    "path": {"type": "path", "required": True},
    "models": {"type": "list", "elements": "dict", "required": True},
    "builds": {"type": "list", "elements": "str", "default": []},
    "source": {"type": "list", "elements": "str", "default": []},
}


def main():
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    path = module.params["path"]
    try:
        record, changed = seal(
            path, module.params["models"], module.params["builds"], module.params["source"], module.check_mode
        )
    except OSError as error:
        module.fail_json(
            msg="bundle_seal: %s: cannot be used (%s): run playbooks/bundle.yml again"
            % (error.filename or path, error.strerror)
        )
    module.exit_json(changed=changed, lines=lines(path, record))


if __name__ == "__main__":
    main()
