# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_batch: the batch part of a job. It runs slurm_task on each node, and has the job started again if that is due.

SLURM starts a preempted job again only if its batch script runs until the end of the grace time, which a server that
ends cleanly does not wait for. So this program asks SLURM whether the job was preempted, and only then requeues it: a
job that a user cancels ends. SIGTERM, which SLURM also sends when the grace time is over, is only counted.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping

from .._node import paths
from .._node.notify import say
from .._slurm import ask, logs, reasons
from .._slurm.job import VARIABLE, Job, parse
from .._slurm.pump import stamp
from .._slurm.task import ENDS_AT
from .._text import Refusal, printable

# Seconds for SLURM to say whether it has preempted the job; for its controller to come back when the job is to be
# requeued; to wait for the end that follows; between two tries.
SEEN, OUTAGE, GONE, PAUSE = 30, 600, 60, 1.0
# Seconds beside the grace time for the other tasks to end after the first.
REST = 10
# A job that lost a worker is started again this often, and always after a run of so many seconds: else its keeper
# submits another, later and later.
MOST_STARTS, LONG = 3, 600


class Batch:
    def __init__(self, job: Job, environment: Mapping[str, str]) -> None:
        self._job, self._environment = job, environment
        self._id = ask.moment(environment.get("SLURM_JOB_ID", "")) or 0
        self._restarts = ask.moment(environment.get("SLURM_RESTART_COUNT", "")) or 0
        self._terms = 0
        self._started = int(time.time())
        self._ends_at: int | None = None

    def say(self, text: str) -> None:
        say(f"{stamp(time.time())} job {self._id}: {text}")

    def _count(self, number: int, _frame: object) -> None:
        self._terms += number == signal.SIGTERM

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            signal.signal(number, self._count)
        nodes = ", ".join(sorted(self._job.tasks))
        self.say(f"start {self._restarts + 1} of service {self._job.service} on {nodes}, digest {self._job.digest}")
        try:
            shown = ask.show_job(self._id)
            self._ends_at = ask.moment(shown.get("EndTime", ""))
            self._started = ask.moment(shown.get("StartTime", "")) or self._started
            with contextlib.suppress(OSError):
                logs.remove_older(shown.get("StdOut", ""), self._id, logs.KEPT)
        except Refusal as error:
            self.say(f"{error}; the end of its time is not known, it does not drain before")
        try:
            code = self._step()
        except OSError as error:
            self.say(
                f"srun: it cannot be run ({error.strerror}), SLURM's commands are needed on this node: install them"
            )
            return 1
        shown = self._shown()
        if (ask.moment(shown.get("Restarts", "")) or 0) > self._restarts:
            self.say("requeued by SLURM: a node failed, the grace time was over, or a user has asked for it")
            return code
        preempted = is_preempted(shown)
        again = preempted or (code == reasons.AGAIN and self._may_again())
        self.say(f"{self._why(code, preempted).words}{': starts again' if again else ''}")
        return self._requeue(code) if again else code

    def _step(self) -> int:
        """Runs the tasks -> the highest of their exit codes. Errors: OSError."""
        words = ["srun", "--ntasks-per-node=1", "--kill-on-bad-exit=0", f"--wait={self._job.grace + REST}"]
        # Since 22.05 a step no longer has the CPUs of its job by itself.
        cpus = self._environment.get("SLURM_CPUS_PER_TASK", "")
        words += [f"--cpus-per-task={cpus}"] if cpus else []
        environment = dict(self._environment, **({ENDS_AT: str(self._ends_at)} if self._ends_at else {}))
        step = subprocess.Popen(
            [*words, "--export=ALL", paths.PROGRAM, "slurm_task"], env=environment, stdin=subprocess.DEVNULL
        )
        status = step.wait()
        return 128 - status if status < 0 else status

    def _may_again(self) -> bool:
        return self._restarts < MOST_STARTS or time.time() - self._started >= LONG

    def _shown(self) -> dict[str, str]:
        """The job as SLURM's controller has it; empty if it does not say so in time."""
        until = time.monotonic() + SEEN
        while True:
            try:
                return ask.show_job(self._id)
            except Refusal as error:
                if error.code != ask.AWAY or time.monotonic() > until:
                    self.say(f"{error}; the job counts as not preempted")
                    return {}
                time.sleep(PAUSE)

    def _why(self, code: int, preempted: bool) -> reasons.Why:
        """As far as it is known here: sacct knows the rest later."""
        now = int(time.time())
        state = "COMPLETED" if not code else "FAILED"
        if preempted:
            state = "PREEMPTED"
        elif self._terms:
            over = self._ends_at is not None and now >= self._ends_at - reasons.LATE
            state = "TIMEOUT" if over else "CANCELLED"
        limit = self._ends_at - self._started if self._ends_at else None
        return reasons.why(
            ask.Ended(self._id, state, exit_code=code, step_code=code, start=self._started, end=now, limit=limit)
        )

    def _requeue(self, code: int) -> int:
        """Has SLURM start the job again, and waits for the end that this means."""
        until = time.monotonic() + OUTAGE
        terms = self._terms
        while True:
            try:
                ask.run(["scontrol", "requeue", str(self._id)])
                break
            except Refusal as error:
                time.sleep(PAUSE)
                # SLURM ends the command that requeues the job, too.
                if terms != self._terms:
                    break
                if error.code != ask.AWAY or time.monotonic() > until:
                    self.say(f"{error}; the job ends")
                    return code or reasons.AGAIN
        until = time.monotonic() + GONE
        while terms == self._terms and time.monotonic() < until:
            time.sleep(0.1)
        return code


def is_preempted(shown: Mapping[str, str]) -> bool:
    """Whether SLURM has preempted this run of a job: the time of an earlier preemption does not count."""
    preempted, started = (ask.moment(shown.get(name, "")) for name in ("PreemptTime", "StartTime"))
    return preempted is not None and preempted >= (started or 0)


def check_user(job: Job) -> None:
    """Refusal for a job of another user: its files in the registry would not count."""
    try:
        seen = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        seen = "user id %d" % os.geteuid()
    if seen != job.user:
        raise Refusal(f"{VARIABLE}.user: {printable(seen)} seen, {job.user} is needed: run sbatch as {job.user}")


def close_log() -> None:
    """SLURM has made the job's log, open to all by the user's umask; it has the last lines of a server that crashed."""
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.fstat(1).st_mode):
            os.fchmod(1, 0o640)


def main(arguments: list[str]) -> int | str:
    if arguments:
        return "usage: slurm_batch, in a job of SLURM"
    try:
        job = parse(os.environ.get(VARIABLE, ""))
        check_user(job)
        close_log()
    except Refusal as error:
        return f"slurm_batch: {error}"
    return Batch(job, os.environ).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
