# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""registry_writer CONFIG: keeps one endpoint's file in a shared directory, and removes it at the end.

CONFIG: {directory, suffix, url: of the llama-server, record: the content of its file}. A job's number is in
SLURM_JOB_ID. SIGUSR1: the endpoint drains; SIGUSR2: it no longer drains; SIGINT, SIGTERM: the end. As under nohup, a
SIGTERM that is ignored when it starts stays ignored. Only a child waits for a hanging share.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from .._node.disposable import Disposable
from .._node.notify import say
from .._registry import files, writer
from .._text import Refusal

# Seconds to wait for the file to be removed at the end, between two tries after a write that failed, and between two
# rounds.
END, AGAIN, ROUND = 3.0, 2.0, 0.5


class Program:
    def __init__(self, settings: writer.Settings, job_id: int) -> None:
        self._settings, self._job_id, self._started = settings, job_id, time.time()
        self._name = files.file_name(job_id, settings.suffix)
        self._server = writer.Server(settings.url)
        self._child = Disposable(writer.DEADLINE)
        self._draining = False
        self._written = ""  # the state that was written last
        self._look_at = self._write_at = 0.0
        self._trouble = ""

    def round(self, now: float) -> None:
        """Waits at most writer.ANSWER for the server and writer.DEADLINE for the share."""
        if now >= self._look_at:
            self._look_at = now + writer.LOOK
            self._server.look()
        state = files.DRAINING if self._draining and self._server.state == files.READY else self._server.state
        if now < self._write_at and self._written == state:
            return
        self._written = state
        data = files.encode(writer.full(self._settings.record, self._job_id, state, self._started))
        error = self._child.run(lambda: writer.write(self._settings.directory, self._name, data)).error
        # A write that hung may replace a later one: after it the file is written once more.
        self._write_at = now + (AGAIN if error else 0.0 if self._trouble else files.HEARTBEAT)
        if error != self._trouble:
            self._trouble = error
            say(f"{self._settings.directory}/{self._name}: {error or 'is written again'}")

    def drain(self, on: bool) -> None:
        self._draining = on

    def end(self) -> None:
        """Removes the file. On a share that hangs it ends by its time to live."""
        self._child.deadline = END
        self._child.run(lambda: writer.remove(self._settings.directory, self._name))


def main(arguments: list[str]) -> int | str:
    if len(arguments) != 1:
        return "usage: registry_writer CONFIG"
    try:
        with open(arguments[0]) as stream:
            settings = writer.settings_of(stream.read())
    except (OSError, Refusal) as error:
        return f"registry_writer: {arguments[0]}: {error}"
    job = os.environ.get("SLURM_JOB_ID", "")
    record = settings.record
    job_id = int(job) if job.isdigit() else files.job_number(str(record["host"]), str(record["service"]))
    program = Program(settings, job_id)
    ends = [signal.SIGINT] + [signal.SIGTERM] * (signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN)
    awaited = [signal.SIGUSR1, signal.SIGUSR2, *ends]
    # Blocked, and waited for below: a signal to drain is in the file at once.
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    while True:
        program.round(time.monotonic())
        seen = signal.sigtimedwait(awaited, ROUND)
        if seen and seen.si_signo in ends:
            program.end()
            return 0
        if seen:
            program.drain(seen.si_signo == signal.SIGUSR1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
