# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes the lock of a node for this run and has a process keep it; documented in plugins/modules/run_lock.py."""

import multiprocessing
import os
import time
from datetime import datetime, timezone

from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ..module_utils._node import paths
from ..plugin_utils import _run_lock
from ..plugin_utils._progress import Progress

# The main process of the run, of which this may be a worker.
MAIN = getattr(multiprocessing.parent_process(), "pid", None) or os.getpid()
NOW = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
# Seconds between two tries, and two looks at the main process.
PATIENCE, LOOK = 2, 0.5


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = dict(super().run(tmp, task_vars), changed=False)
        _validation, arguments = self.validate_argument_spec(
            argument_spec={
                "path": {"type": "str", "default": paths.RUN_LOCK},
                "wait": {"type": "bool", "default": False},
            }
        )
        node = self._task.delegate_to or task_vars["inventory_hostname"]
        self.path = arguments["path"]
        self.own = _run_lock.this_run(MAIN, context.CLIARGS.get("args") or (), NOW)
        progress, ended = Progress(node, "waits for"), ""
        while True:
            try:
                answer = self._asked(_run_lock.TAKE, ended)
            except AnsibleError as error:
                # What is wrong with the way there, preflight says.
                return dict(result, taken=False, reason=str(error))
            if answer["rc"] != _run_lock.HELD:
                break
            held, told = _run_lock.holder(answer["stdout"])
            if _run_lock.has_ended(told, self.own):
                ended = held
            elif arguments["wait"]:
                progress.show(_run_lock.words(told))
                time.sleep(PATIENCE)
            else:
                return dict(result, failed=True, msg=_run_lock.refusal(node, told))
        taken = answer["rc"] == 0
        if taken:
            self._keep()
        return dict(result, taken=taken, reason="" if taken else (answer["stderr"] or answer["stdout"]).strip())

    def _asked(self, step, ended=""):
        return self._low_level_execute_command(_run_lock.script(step, self.path, self.own, ended))

    def _keep(self):
        """Starts a process that outlives every task and, for a moment, the run."""
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            os.setsid()
            if os.fork() == 0:
                nothing = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(nothing, stream)
                self._display.verbosity = 0
                self._watch()
        finally:
            os._exit(0)

    def _watch(self):
        renewed = time.monotonic()
        while _run_lock.lives(MAIN):
            time.sleep(LOOK)
            if time.monotonic() - renewed >= _run_lock.RENEW:
                renewed = time.monotonic()
                try:
                    if self._asked(_run_lock.RENEWED)["rc"] == _run_lock.HELD:
                        return  # it was away for so long that somebody else has it
                except AnsibleError:
                    pass  # tried again
        self._asked(_run_lock.RELEASED)
