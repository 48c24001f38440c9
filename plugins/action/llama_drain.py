# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until a head has no running request and prints progress; documented in plugins/modules/llama_drain.py."""

import time

from ansible.plugins.action import ActionBase

from ..module_utils._text import duration
from ..plugin_utils._progress import Progress

POLL = 2
# Seconds between two lines.
EVERY = 10


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            argument_spec={
                "url": {"type": "str", "required": True},
                "unit": {"type": "str", "required": True},
                "timeout": {"type": "int", "required": True},
            }
        )
        asked = {"url": arguments["url"], "unit": arguments["unit"], "fail_on": []}
        progress = Progress(task_vars["inventory_hostname"], arguments["unit"])
        started, shown = time.monotonic(), None
        while True:
            health = self._execute_module(
                module_name="thefermisea.llama_cluster.llama_health", module_args=asked, task_vars=task_vars
            )
            if health.get("failed"):
                return dict(result, **health)
            waited = time.monotonic() - started
            busy = health["state"] == "busy"
            if not busy or waited >= arguments["timeout"] or self._task.check_mode:
                break
            if shown is None or time.monotonic() - shown >= EVERY:
                progress.show(f"{health['reason']}, waiting {duration(int(arguments['timeout'] - waited))} more")
                shown = time.monotonic()
            time.sleep(min(POLL, max(0, arguments["timeout"] - waited)))
        if busy and not self._task.check_mode:
            progress.show(f"{health['reason']}, {duration(arguments['timeout'])} is over: stopped nevertheless")
        return dict(result, changed=False, drained=not busy, seconds=round(waited, 1), reason=health["reason"])
