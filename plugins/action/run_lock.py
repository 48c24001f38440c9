# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes the lock of a node for this run and has a process keep it; documented in plugins/modules/run_lock.py."""

import multiprocessing
import os
import signal
import time
from datetime import datetime, timezone

from ansible import context
from ansible.errors import AnsibleConnectionFailure, AnsibleError
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
        since = time.monotonic()
        while True:
            try:
                answer = self._asked(_run_lock.TAKE, ended)
            except AnsibleConnectionFailure as error:
                # Preflight reports why the node cannot be reached.
                return dict(result, taken=False, reason=str(error))
            except AnsibleError as error:
                answer = {"rc": 1, "stdout": "", "stderr": str(error)}
            if answer["rc"] != _run_lock.HELD:
                break
            held, holder = _run_lock.holder(answer["stdout"])
            if _run_lock.has_ended(holder, self.own):
                ended = held
            elif arguments["wait"] and time.monotonic() - since < _run_lock.WAIT:
                progress.show(_run_lock.words(holder))
                time.sleep(PATIENCE)
            else:
                return dict(result, failed=True, msg=_run_lock.refusal(node, holder))
        if answer["rc"] == 0:
            self._keep(node)
            variants = answer["stdout"].strip() == _run_lock.VARIANTS
            return dict(result, taken=True, reason="", variants=variants, id=self.own.id)
        # Each attempt printed the same line.
        reason = ", ".join(dict.fromkeys((answer["stderr"] or answer["stdout"]).strip().splitlines()))
        # Preflight reports a node of the play on which this run cannot become root.
        if answer["rc"] != _run_lock.CANNOT and node in task_vars.get("ansible_play_hosts", []):
            return dict(result, taken=False, reason=reason)
        return dict(result, failed=True, msg=_run_lock.unlockable(node, reason))

    def _asked(self, step, ended=""):
        return self._low_level_execute_command(_run_lock.script(step, self.path, self.own, ended))

    def _keep(self, node):
        """Starts a process that renews the lock until the run has ended, then releases it."""
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
                self._watch(node)
        finally:
            os._exit(0)

    def _watch(self, node):
        renewed = time.monotonic()
        while not _run_lock.has_ended(self.own._asdict(), self.own):
            time.sleep(LOOK)
            if time.monotonic() - renewed >= _run_lock.RENEW:
                renewed = time.monotonic()
                try:
                    if self._asked(_run_lock.RENEWED)["rc"] == _run_lock.HELD:
                        self._end(node)
                        return
                except AnsibleError:
                    pass  # tried again
        self._asked(_run_lock.RELEASED)

    def _end(self, node):
        """Ends the run: another one took the lock, and two runs must not change a node."""
        self._display.display(_run_lock.lost(node), color="red", stderr=True)
        time.sleep(LOOK)  # until that is shown
        if not _run_lock.has_ended(self.own._asdict(), self.own):
            os.kill(MAIN, signal.SIGTERM)
