# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_task: one node's part of a job: its head, its router or a worker, by the name that SLURM has for the node.

srun starts one on each node, with the job in LLAMA_JOB and the end of its time in LLAMA_JOB_ENDS, if that is known. Its
exit code is 0 after a request to end, 75 if a worker was lost or did not come up, else that of the server.
"""

from __future__ import annotations

import os
import sys

from .._slurm.ask import moment
from .._slurm.head import Head
from .._slurm.job import VARIABLE, Job, Task, parse
from .._slurm.process import set_limits
from .._slurm.task import ENDS_AT, Runner, Worker
from .._text import Refusal, printable


def task_of(job: Job, node: str) -> Task:
    """The task of a node, which SLURM may know with or without its domain. Errors: Refusal."""
    found = job.tasks.get(node)
    if found is None:
        short = [task for name, task in job.tasks.items() if name.partition(".")[0] == node.partition(".")[0]]
        if not node or len(short) != 1:
            raise Refusal(
                f"SLURMD_NODENAME: {printable(node, 60) or 'nothing'} seen, one of {', '.join(sorted(job.tasks))} is "
                "needed: run sbatch with the script as it is"
            )
        found = short[0]
    return found


def runner_of(job: Job) -> Runner:
    """Errors: Refusal."""
    task = task_of(job, os.environ.get("SLURMD_NODENAME", ""))
    job_id = moment(os.environ.get("SLURM_JOB_ID", "")) or 0
    if task.role == "rpc":
        return Worker(job, task, job_id)
    restarts = moment(os.environ.get("SLURM_RESTART_COUNT", "")) or 0
    return Head(job, task, job_id, os.environ.get("SLURM_STEP_ID", ""), restarts, moment(os.environ.get(ENDS_AT, "")))


def main(arguments: list[str]) -> int | str:
    if arguments:
        return "usage: slurm_task, in a job of SLURM"
    try:
        runner = runner_of(parse(os.environ.get(VARIABLE, "")))
    except Refusal as error:
        return f"slurm_task: {error}"
    set_limits()
    try:
        return runner.run()
    except (Refusal, OSError) as error:
        runner.say(str(error))
        return 1
    finally:
        runner.kill_server()
        runner.close()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
