# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a node for what is not known of it in this run; documented in plugins/modules/node_facts.py."""

import uuid

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ..plugin_utils._known import merged, missing

# Ansible loads an action plugin before the first worker process of a run begins, so all of a run have this one. Facts
# that a cache of Ansible's kept from another run are not believed; a strategy that loads it later asks more often.
RUN = uuid.uuid4().hex


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        asked = dict(self._task.args)
        known = task_vars.get("ansible_facts", {}).get("llama_node") or {}
        if boolean(asked.pop("forget", False)):
            return dict(result, changed=False, ansible_facts={"llama_node": {}})
        # The facts are recorded for the host that delegates.
        again = boolean(asked.pop("again", False)) or bool(self._task.delegate_to)
        wanted = missing(known, asked, RUN, again)
        if not wanted:
            return dict(result, changed=False)
        answer = self._execute_module(module_args=wanted, task_vars=task_vars)
        facts = answer.get("ansible_facts", {})
        if "llama_node" in facts:
            facts["llama_node"] = merged(known, wanted, facts["llama_node"], RUN)
        return dict(result, **answer)
