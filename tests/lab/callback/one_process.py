# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For the tests: tasks run in the process of ansible-playbook. Ansible itself starts a process for each task of each
host.

A simulated node is a directory and its tasks take milliseconds: processes were more than half of the cost of a run, and
a third with the nodes of a lab. Modules that several nodes of a lab run at once keep their processes. The tasks of all
hosts are prepared before the first one runs, as in Ansible; hostvars, which do not change meanwhile, are computed once
for all of them. The replaced code is private to ansible-core 2.19; other versions are left as they are.
"""

from __future__ import annotations

from ansible import __version__, context
from ansible.executor.process.worker import WorkerProcess
from ansible.executor.task_executor import TaskExecutor
from ansible.plugins.callback import CallbackBase
from ansible.plugins.strategy import StrategyBase
from ansible.vars.hostvars import HostVars, HostVarsVars

KNOWN = __version__.startswith("2.19.")
if KNOWN:
    from ansible._internal._task import TaskContext
    from ansible._internal._templating._utils import TemplateContext
    from ansible.executor.task_result import _RawTaskResult

DOCUMENTATION = r"""
name: one_process
type: aggregate
short_description: Run tasks without a process of their own
version_added: 1.0.0
author: The Fermi Sea (@thefermisea)
description:
  - For tests only.
"""

# They run on the controller, or ask a node for milliseconds.
LIGHT = {"ansible.builtin." + name for name in ("assert", "debug", "fail", "include_role", "include_tasks", "set_fact")}
LIGHT |= {"thefermisea.llama_cluster." + name for name in ("node_facts", "node_files", "show_lines")}
LAB = ("community.docker.docker", "entered_node", "ssh")


def run(worker: WorkerProcess) -> None:
    """Runs a task as WorkerProcess._run does, on copies of the values that it may change."""
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


def in_parallel(workers: list[WorkerProcess]) -> bool:
    """Whether nodes of a lab run a module at once: then each of them needs a process."""
    first = workers[0]
    return len(workers) > 1 and first._task.action not in LIGHT and first._task_vars.get("ansible_connection") in LAB


class Hosts:
    """The variables of hosts while one task runs on all of its hosts."""

    def __init__(self) -> None:
        self.known: dict[str, HostVarsVars] | None = None

    def __enter__(self) -> None:
        self.known = {}

    def __exit__(self, *_problem: object) -> None:
        self.known = None

    def keep(self) -> None:
        of_host, of_key = HostVars.__getitem__, HostVarsVars.__getitem__

        def host_once(hostvars, host):
            known = self.known
            if known is None or host not in hostvars:
                return of_host(hostvars, host)
            if host not in known:
                known[host] = of_host(hostvars, host)
                known[host]._known = {}
            return known[host]

        def value_once(variables, key):
            known = vars(variables).get("_known")
            if known is None:
                return of_key(variables, key)
            # The result of a template is finalized, a value within a template is lazy.
            place = (key, TemplateContext.current(optional=True) is None)
            if place not in known:
                known[place] = of_key(variables, key)
            return known[place]

        HostVars.__getitem__, HostVarsVars.__getitem__ = host_once, value_once


def tasks_in_this_process() -> None:
    waiting: list[WorkerProcess] = []
    hosts = Hosts()
    hosts.keep()
    start, is_alive, wait = WorkerProcess.start, WorkerProcess.is_alive, StrategyBase._wait_on_pending_results

    def start_or_postpone(worker):
        if worker._task.throttle:
            run(worker)
            return
        waiting.append(worker)
        # Ansible waits for a place.
        if len(waiting) >= context.CLIARGS["forks"]:
            run_waiting()

    def run_waiting():
        workers = waiting.copy()
        waiting.clear()
        with hosts:
            for worker in workers:
                (start if in_parallel(workers) else run)(worker)

    def run_and_wait(self, iterator):
        run_waiting()
        return wait(self, iterator)

    WorkerProcess.start, StrategyBase._wait_on_pending_results = start_or_postpone, run_and_wait
    # A waiting worker keeps its place: Ansible gives the place of an ended process to the next task.
    WorkerProcess.is_alive = lambda worker: worker in waiting or is_alive(worker)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "one_process"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: object) -> None:
        if KNOWN:
            tasks_in_this_process()
