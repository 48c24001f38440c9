# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For simulated nodes: tasks run in the process of ansible-playbook, where Ansible starts one for each task of each
host.

A simulated node is a directory and its tasks take milliseconds: processes were more than half of what a run cost. The
tasks of all hosts are prepared before the first one runs, as they are where all of them run at once. What is replaced
is private to ansible-core 2.19; with another one nothing is.
"""

from __future__ import annotations

from ansible import __version__
from ansible.executor.process.worker import WorkerProcess
from ansible.executor.task_executor import TaskExecutor
from ansible.plugins.callback import CallbackBase
from ansible.plugins.strategy import StrategyBase

KNOWN = __version__.startswith("2.19.")
if KNOWN:
    from ansible._internal._task import TaskContext
    from ansible.executor.task_result import _RawTaskResult

DOCUMENTATION = r"""
name: one_process
type: aggregate
short_description: Run tasks without a process of their own
version_added: 1.0.0
author: The Fermi Sea (@thefermisea)
description:
  - For tests alone.
"""


def run(worker: WorkerProcess) -> None:
    """As WorkerProcess._run does, on copies of what it would change in a process of its own."""
    task = worker._task.copy(exclude_parent=True, exclude_tasks=True)
    task._parent = worker._task._parent
    with TaskContext(task):
        answer = TaskExecutor(
            worker._host,
            task,
            dict(worker._task_vars),
            worker._play_context,
            worker._loader,
            worker._shared_loader_obj,
            worker._final_q,
            worker._variable_manager,
        ).run()
        fields = task.dump_attrs()
    worker._final_q.send_task_result(
        _RawTaskResult(host=worker._host, task=task, return_data=answer, task_fields=fields)
    )


def tasks_in_this_process() -> None:
    waiting: list[WorkerProcess] = []
    wait = StrategyBase._wait_on_pending_results

    def start(worker):
        waiting.append(worker)

    def run_and_wait(self, iterator):
        while waiting:
            run(waiting.pop(0))
        return wait(self, iterator)

    WorkerProcess.start, StrategyBase._wait_on_pending_results = start, run_and_wait


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "one_process"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: object) -> None:
        if KNOWN:
            tasks_in_this_process()
