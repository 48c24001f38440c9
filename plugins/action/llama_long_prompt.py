# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends a long prompt part by part and prints how far it is; documented in plugins/modules/llama_long_prompt.py."""

import time

from ansible.plugins.action import ActionBase

from ..module_utils._serving.long_prompt import PARTS
from ..module_utils._text import duration
from ..plugin_utils._progress import Progress


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            argument_spec={
                "url": {"type": "str", "required": True},
                "unit": {"type": "str"},
                "timeout": {"type": "int", "default": 3600},
            }
        )
        progress = Progress(task_vars["inventory_hostname"], arguments.get("unit") or arguments["url"])
        started, found, seconds = time.monotonic(), {}, 0.0
        why = f"its {duration(arguments['timeout'])} are over"
        for part in range(1, PARTS + 1):
            left = int(arguments["timeout"] - (time.monotonic() - started))
            if left < 1:
                break
            answer = self._execute_module(
                module_name="thefermisea.llama_cluster.llama_long_prompt",
                module_args=dict(arguments, timeout=left, part=part),
                task_vars=task_vars,
            )
            if answer.get("failed"):
                return dict(result, **answer)
            if not answer["tokens"]:
                why = answer["reason"]
                break
            found, seconds = answer, seconds + answer["seconds"]
            ahead = progress.left(part, PARTS)
            progress.show(
                "has read %d of %d tokens%s"
                % (found["tokens"], found["whole"], ", %s left" % duration(ahead) if ahead else "")
            )
        tokens, slot = found.get("tokens", 0), found.get("slot", 0)
        said = "%d of the %d tokens of a slot read in %s" % (tokens, slot, duration(seconds)) if tokens else "not read"
        if tokens < found.get("whole", 1):
            said = f"{said}, then given up: {why}"
        return dict(result, changed=False, tokens=tokens, slot=slot, seconds=round(seconds, 1), said=said)
