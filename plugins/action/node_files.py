# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders the templates of a list of files and has the node write them; documented in plugins/modules/node_files.py."""

import json

from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        common = self._task.args.get("vars", {})
        files = [self._rendered(entry, common, task_vars["ansible_search_path"]) for entry in self._task.args["files"]]
        if not files:
            return dict(result, changed=False, changed_paths=[])
        return dict(result, **self._execute_module(module_args={"files": files}, task_vars=task_vars))

    def _rendered(self, entry, common, search_path):
        """An entry with its content. The template sees only its own variables."""
        if not entry.get("template"):
            # JSON that comes by way of a variable, ansible-core 2.18 has made data of.
            data = isinstance(entry.get("content"), (dict, list))
            text = json.dumps(entry["content"], sort_keys=True) + "\n" if data else entry.get("content", "")
            return dict(entry, content=text)
        lookup = lookup_loader.get("ansible.builtin.template", loader=self._loader, templar=self._templar)
        variables = dict(common, **entry.get("vars", {}), ansible_search_path=list(search_path))
        content = lookup.run([entry["template"]], variables=variables)[0]
        return dict({name: value for name, value in entry.items() if name not in ("template", "vars")}, content=content)
