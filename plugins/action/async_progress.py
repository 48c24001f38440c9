# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for an async job and prints how far its log has come; documented in plugins/modules/async_progress.py."""

import re
import shlex
import time

from ansible.plugins.action import ActionBase

from ..module_utils._text import duration
from ..plugin_utils._progress import Progress, async_result

# ninja's [done/total] or make's [percent%].
STEP = re.compile(r"\[ *(\d+)(?:/(\d+)|%)\]")
POLL = 5
# A line at least every half minute, however slow the work.
EVERY = 30


class ActionModule(ActionBase):
    _requires_connection = True
    _supports_check_mode = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            argument_spec={
                "jid": {"type": "str", "required": True},
                "log": {"type": "path", "required": True},
                "what": {"type": "str", "required": True},
            }
        )
        progress = Progress(task_vars["inventory_hostname"], arguments["what"])
        started = shown = time.monotonic()
        while True:
            status = async_result(self, arguments["jid"], task_vars)
            if status.get("finished"):
                break
            if status.get("failed"):
                return dict(
                    result,
                    failed=True,
                    msg="%s: %s" % (arguments["what"], status.get("msg", "the job's state cannot be read")),
                )
            steps = STEP.findall(self._tail(arguments["log"], 4096))
            if steps and time.monotonic() - shown >= EVERY:
                done, total = (int(number or 100) for number in steps[-1])
                left = progress.left(done, total)
                progress.show("%d %%%s" % (100 * done // total, ", %s left" % duration(left) if left else ""))
                shown = time.monotonic()
            time.sleep(POLL)
        result["changed"] = bool(status.get("changed"))
        result["seconds"] = round(time.monotonic() - started)
        result["job"] = status
        if status.get("failed") or status.get("rc", 0):
            return dict(
                result,
                failed=True,
                msg="%s: failed with status %s, the whole log is %s on %s; it ends with:\n%s"
                % (
                    arguments["what"],
                    status.get("rc", "unknown"),
                    arguments["log"],
                    task_vars["inventory_hostname"],
                    self._tail(arguments["log"], 2000),
                ),
            )
        progress.show(f"done in {duration(result['seconds'])}")
        return result

    def _tail(self, path, size):
        return self._low_level_execute_command("tail -c %d %s" % (size, shlex.quote(path)))["stdout"]
