# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The task of a job that clients talk to: a head or a router. Private to the collection."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import threading
import time

from .._llama import handshake
from .._node import sockets
from .._text import Refusal
from .._watchdog.actions import Repair, Serves
from .._watchdog.rounds import HeadRounds
from . import ask
from .job import Job, Task
from .process import PATH, exit_code, program, start
from .reasons import AGAIN, EARLY
from .task import HEAD_LEFT, Runner

# Seconds for the workers to come up; for one to answer after its head has crashed; without work until the head ends,
# in which the gateway reads that it drains; then of looks one after the other, since with pauses shorter than a second
# llama-server (b11434) does not notice that a client has left; for the registry's file to be removed; between two
# starts of its writer.
WORKERS, ANSWER, QUIET, HURRY, REMOVED, WRITER_AGAIN = 600, 5, 0.5, 1.5, 4.0, 5
LOOK_AT = "the log of its task"
# A line of llama.cpp when the connection to a worker breaks.
BROKEN = "Remote RPC server crashed"


class Head(Runner):
    """restarts: how often the job was started before; ends_at: when SLURM ends it, None if unknown."""

    def __init__(self, job: Job, task: Task, job_id: int, step: str, restarts: int, ends_at: float | None) -> None:
        super().__init__(job, task, job_id)
        self._step, self._job_id = step, job_id
        self._marker: str | None = None
        self._marker_name = f"served-{restarts}"
        self._ends_at = ends_at
        self._writer: subprocess.Popen[bytes] | None = None
        self._write_after = 0.0
        self._rounds: HeadRounds | None = None
        self._last_look: float | None = None  # when the last look since the request to end was asked for

    def asked_words(self) -> str:
        if self._writer is not None:
            self._writer.send_signal(signal.SIGUSR1)
        return f"drains, ends in {self.until - (self.asked or 0):.0f} s at the latest"

    def wait(self) -> None:
        super().wait()
        self._keep_writer()
        if self._ends_at is not None and time.time() >= self._ends_at - EARLY:
            self._at_walltime()
        if self._marker and self.log.mark(self._marker):
            self._marker = None

    def run(self) -> int:
        placed = self.placed()
        if self.task.endpoints and not self.has_rules():
            return 0
        if not self.port_is_free():
            return 0
        if self.task.endpoints:
            failed = self._wait_for_workers()
            if failed is not None:
                return failed
        subject = self.start(placed)
        self._rounds = HeadRounds(subject, self._config(), self.task.role == "router", self.say)
        while True:
            self.wait()
            if self.running.poll() is not None:
                return self._ended()
            now = self.now()
            if self.asked is not None:
                if self._is_idle(now) or now >= self.until:
                    return self._end()
                continue
            for action in self.due(self._rounds):
                if isinstance(action, Repair):
                    self.say(f"{action.reason}: it is ended")
                    self.kill_server()
                    self._end_writer()
                    return AGAIN if action.fact else exit_code(self.running.returncode)
                if isinstance(action, Serves):
                    self.say(f"serves (loaded in {action.seconds:.1f} s)")
                    self._marker = self._marker_name

    def close(self) -> None:
        if self._rounds is not None:
            self._rounds.stop()
        self._end_writer()
        self._tell_workers()
        super().close()

    def _config(self) -> dict[str, object]:
        task = self.task
        return {
            "url": f"http://{task.address}:{task.port}",
            "api_key_file": None,
            "rpc_endpoints": task.endpoints,
            "ubatch": task.ubatch,
            "embeddings": task.embeddings,
            "reranking": task.reranking,
        }

    # Its workers

    def _wait_for_workers(self) -> int | None:
        """Until all workers answer -> the exit code of a task that ends before."""
        asking = functools.partial(handshake.ask, look_at=LOOK_AT)
        build = handshake.number_of(self.task.build)
        waiting = threading.Thread(
            target=handshake.wait,
            args=(self.task.endpoints, build, self.say),
            kwargs={"asking": asking},
            daemon=True,
        )
        until = self.now() + WORKERS
        waiting.start()
        while waiting.is_alive():
            self.wait()
            if self.asked is not None:
                return 0
            if self.now() > until:
                self.say(f"has waited {WORKERS} s for its workers: the job is started again")
                return AGAIN
        return None

    def _lost_worker(self) -> str:
        """The worker that a head which has crashed has lost, else empty. It serves no other, so it may be asked."""
        build = handshake.number_of(self.task.build)
        for endpoint in self.task.endpoints:
            try:
                handshake.ask(endpoint, build, lambda _text: None, patience=ANSWER, look_at=LOOK_AT)
            except Refusal as error:
                return f"{endpoint}: {error}"
        return ""

    def _tell_workers(self) -> None:
        """Asks the workers to end, as SLURM does when it ends the step. Without an answer srun's --wait does."""
        if len(self.job.tasks) > 1 and not self.signalled:
            with contextlib.suppress(Refusal):
                ask.run(["scancel", "--signal=USR1", f"{self._job_id}.{self._step}"])

    # The end

    def _at_walltime(self) -> None:
        """Asks SLURM once more: the time of a job may have been extended."""
        ends_at, self._ends_at = self._ends_at or 0.0, None
        try:
            later = ask.moment(ask.show_job(self._job_id).get("EndTime", ""))
        except Refusal as error:
            self.say(f"{error}; the end of its time is taken for the one that SLURM said at its start")
            later = None
        if later is not None and later > ends_at + 1:
            self._ends_at = later
            return
        self.end_by(max(1.0, ends_at - time.time() - HEAD_LEFT), "the time of the job ends soon")

    def _is_idle(self, now: float) -> bool:
        """Whether a look since the request to end shows no work."""
        if self._rounds is None or self.asked is None:
            return False
        process = self._rounds.subject.look(now)
        if process is None:
            return True
        if now < self.asked + QUIET:
            return False
        looker = self._rounds.looker
        look = looker.of(process)
        seen = look is not None and self._last_look is not None and look["at"] >= self._last_look
        if look is not None and seen and not (look["slots"] or look["requests"] or look["silent"]):
            return True
        # One at a time: with a request for metrics under way llama-server (b11434) does not end at SIGINT.
        if seen or self._last_look is None:
            self._last_look = now
            (looker.hurries.set if now < self.asked + QUIET + HURRY else looker.hurries.clear)()
            looker.ask(process, may_sleep=False)
        return False

    def _end(self) -> int:
        idle = self.now() < self.until
        self.say("nothing runs any more: ends" if idle else "requests still run, its time is over: ends")
        if self._writer is not None:
            self._writer.send_signal(signal.SIGINT)
        self.end_server()
        return 0

    def _ended(self) -> int:
        """The server has ended by itself."""
        self._end_writer()
        code = self.say_crash()
        if self.asked is not None:
            return 0
        lost = self._lost_worker()
        if not lost and self.pump is not None and any(BROKEN in line for line in self.pump.last(10)):
            lost = "the connection to it broke"
        if lost:
            self.say(f"lost an RPC worker: {lost}")
            return AGAIN
        return code

    # The registry's file

    def _start_writer(self) -> None:
        """The writer drains by itself at SLURM's SIGUSR1, and leaves its end to this task."""
        registry = self.job.registry
        if registry is None:
            return
        self._write_after = self.now() + WRITER_AGAIN
        given = {name: os.environ[name] for name in ("PYTHONPATH", "SLURM_JOB_ID") if name in os.environ}
        self._writer = start(
            [*program("registry_writer"), "/dev/stdin"],
            dict(given, PATH=PATH),
            blocked=(signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2),
            ignored=(signal.SIGTERM,),
            at_death=signal.SIGINT,
            stdin=subprocess.PIPE,
        )
        if self._writer.stdin:
            with self._writer.stdin as stream, contextlib.suppress(OSError):
                stream.write(json.dumps(registry._asdict()).encode("utf-8"))

    def _listens(self) -> bool:
        """Whether it is the server itself that listens at its address."""
        if self.server is None:
            return False
        with contextlib.suppress(Refusal, OSError):
            ends = sockets.resolve(f"{self.task.address}:{self.task.port}")
            found = list(filter(None, map(sockets.listener, ends)))
            return bool(found) and all(sockets.is_of(one, self.server.pid) for one in found)
        return False

    def _keep_writer(self) -> None:
        # The gateway sends requests to what is in the registry, and the port is free to all until the server has it.
        if self._writer is None and self.asked is None and self.job.registry is not None and self._listens():
            self._start_writer()
        elif self._writer is not None and self._writer.poll() is not None and self.now() > self._write_after:
            self.say(f"the writer of its endpoint has ended ({exit_code(self._writer.returncode)}): starts it again")
            self._start_writer()
            if self.asked is not None:
                self._writer.send_signal(signal.SIGUSR1)

    def _end_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.send_signal(signal.SIGINT)
        try:
            writer.wait(REMOVED)
        except subprocess.TimeoutExpired:
            writer.kill()
