# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A task of a job on its node, whatever its role, and as a worker. Private to the collection.

The main thread waits for signals only: SIGTERM and SIGUSR1 ask the task to end, SIGCHLD says that a process did.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

from .._node import sockets
from .._node.notify import say
from .._text import Refusal, printable
from .._watchdog import samples
from .._watchdog.actions import Action, Repair
from .._watchdog.rounds import HeadRounds, JobProcess, WorkerRounds
from .job import Job, Placed, Task
from .process import ASKING, environment_of, exit_code, how_it_ended, start, too_little_locked
from .pump import LogFile, Pump, stamp
from .reasons import AGAIN, LAST_LINES

# Seconds before the end of the grace time at which a head ends, and its workers, which a head that ends still needs;
# then for a server to end before it is killed.
HEAD_LEFT, WORKER_LEFT, END = 5, 3, 2.0
# Seconds between two rounds, and while the task is to end.
ROUND, ENDING = 0.5, 0.1
# The end of the time of a job, for its tasks.
ENDS_AT = "LLAMA_JOB_ENDS"
# The question for the rules of RPC that a job's user may ask, and seconds for the answer.
RULES, ANSWER = ("systemctl", "is-active", "--quiet", "llama-firewall.service"), 5
# The part of a file system below which tensors are deleted, and seconds in which a file may have been cut short.
LEAST_FREE, YOUNG = 0.05, 60


class Runner:
    """A task. say(text): for the job's log."""

    left = HEAD_LEFT

    def __init__(self, job: Job, task: Task, job_id: int) -> None:
        self.job, self.task = job, task
        self.words = f"{task.role} {task.node}"
        signal.pthread_sigmask(signal.SIG_BLOCK, [*ASKING, signal.SIGCHLD])
        self.log = LogFile(f"{job.log_dir}/{job_id}", f"{task.role}-{task.node}.log", self._print)
        self.server: subprocess.Popen[bytes] | None = None
        self.pump: Pump | None = None
        self.asked: float | None = None  # when it was to end
        self.until = 0.0  # when it ends, whatever runs
        self.signalled = False  # as all tasks are, where SLURM asks them to end
        self._complaint = ""
        self._said_lost = False

    def _print(self, text: str) -> None:
        say(f"{stamp(time.time())} {self.words}: {text}")

    def say(self, text: str) -> None:
        self._print(text)
        self.log.write(f"llama-task: {text}")

    @staticmethod
    def now() -> float:
        return time.monotonic()

    # The end

    def end_by(self, seconds: float, why: str) -> None:
        """Notes that the task is to end, in that many seconds at the latest. Said once; a second time it may only be
        sooner."""
        now = self.now()
        self.until = min(self.until, now + seconds) if self.asked is not None else now + seconds
        if self.asked is None:
            self.asked = now
            self.say(f"{why}: {self.asked_words()}")

    def asked_words(self) -> str:
        """Words for the way to its end."""
        raise NotImplementedError

    def run(self) -> int:
        """The exit code of the task. Errors: Refusal, OSError."""
        raise NotImplementedError

    def wait(self) -> None:
        """Until the next round is due, or a signal comes."""
        seen = signal.sigtimedwait([*ASKING, signal.SIGCHLD], ENDING if self.asked is not None else ROUND)
        if seen and seen.si_signo in ASKING:
            self.signalled = True
            self.end_by(max(1, self.job.grace - self.left), signal.Signals(seen.si_signo).name)
        if self.log.lost and not self._said_lost:
            self._said_lost = True
            self._print("its log is not written: the share hangs or is full, lines are lost")

    # The server

    def placed(self) -> Placed:
        """The words of the server, whose files are in a directory of this task. Errors: Refusal."""
        folder = f"{self.job.state_dir}/task-{self.job.service}-{self.task.node}"
        placed = self.task.placed(folder)
        try:
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder, 0o700)
            for path, text in placed.files.items():
                if text is None:
                    os.mkdir(path, 0o700)
                else:
                    with open(path, "x", encoding="utf-8") as stream:
                        stream.write(text)
        except OSError as error:
            raise Refusal(
                f"{folder}: {error.strerror} seen, a directory of {self.job.user} is needed: run site.yml with --tags "
                "slurm"
            ) from None
        return placed

    def has_rules(self) -> bool:
        """Waits for the firewall: no rules, no RPC. False when the task is to end before."""
        said = False
        while self.asked is None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if not subprocess.run(RULES, stdin=subprocess.DEVNULL, timeout=ANSWER, check=False).returncode:
                    return True
            if not said:
                said = True
                unit = RULES[-1]
                self.say(f"waits for {unit}, without which others reach a worker or act as one: see systemctl status")
            self.wait()
        return False

    def port_is_free(self) -> bool:
        """Waits until the server's port is free, says who listens there. False when the task is to end before."""
        said = ""
        while self.asked is None:
            holder = holder_of(self.task.address, self.task.port)
            if not holder:
                return True
            if holder != said:
                said = holder
                self.say(f"waits for port {self.task.port}: {holder} listens there")
            self.wait()
        return False

    def start(self, placed: Placed) -> JobProcess:
        """Errors: Refusal."""
        reading, writing = os.pipe()
        try:
            self.server = start(placed.argv, environment_of(placed.environment), output=writing)
        except OSError as error:
            raise Refusal(
                f"{placed.argv[0]}: it cannot be run ({error.strerror}), the release is needed on this node: run "
                "site.yml with --tags build,slurm"
            ) from None
        finally:
            os.close(writing)
        self.pump = Pump(reading, self.log)
        self.pump.start()
        locked = too_little_locked(placed.argv)
        if locked:
            self.say(locked)
        self.say(f"starts {os.path.basename(self.program())}, process {self.server.pid}")
        return JobProcess(self.server.pid)

    def program(self) -> str:
        """The program of the server, behind numactl and stdbuf."""
        words = [word for word in self.task.argv if word.startswith("/")]
        return next((word for word in words if "llama" in word or "rpc" in word), words[0])

    def end_server(self) -> None:
        """Ends the server, after END seconds with SIGKILL."""
        if self.server is None:
            return
        self.server.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.server.wait(END)
            return
        self.kill_server()

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The server, after start()."""
        if self.server is None:
            raise ValueError("the server is not started yet")
        return self.server

    def due(self, rounds: HeadRounds | WorkerRounds) -> Sequence[Action]:
        """The decisions of a judge now."""
        try:
            return rounds.actions(self.now())
        except (OSError, Refusal, ValueError) as error:
            # A name that does not resolve, for one.
            if str(error) != self._complaint:
                self._complaint = str(error)
                self.say(f"cannot be watched: {error}")
            return []

    def kill_server(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server.wait()

    def say_crash(self) -> int:
        """Says how the server ended, and its last lines -> the exit code of the task."""
        if self.pump is not None:
            self.pump.join(END)
        status = self.running.returncode
        self.say(f"{os.path.basename(self.program())} ended by itself: {how_it_ended(status)}; its last lines:")
        for line in self.pump.last(LAST_LINES) if self.pump is not None else ():
            self._print(f"  {line}")
        code = exit_code(status)
        # 0 would be a drain, AGAIN a worker that was lost.
        return 1 if code in (0, AGAIN) else code

    def close(self) -> None:
        if self.pump is not None:
            self.pump.join(END)
        if self.log.lost:
            self._print(f"{self.log.lost} lines of its log are lost")
        self.log.close()


class Worker(Runner):
    """An RPC worker: it outlives the request to end as long as its head is there."""

    left = WORKER_LEFT

    def asked_words(self) -> str:
        return f"ends when its head has gone, in {self.until - (self.asked or 0):.0f} s at the latest"

    def run(self) -> int:
        self._prepare_cache()
        if not self.has_rules() or not self.port_is_free():
            return 0
        subject = self.start(self.placed())
        end = (socket.gethostbyname(self.task.address), self.task.port)
        rounds = WorkerRounds(subject, end[0], end[1], self._head())
        served = False
        while True:
            self.wait()
            connected = is_connected(end)
            served = served or connected
            if self.running.poll() is not None:
                code = self.say_crash()
                # Without a head so far it would only crash again.
                return 0 if self.asked is not None else AGAIN if served else code
            if self.asked is not None:
                if connected and self.now() < self.until:
                    continue
                self.say("its time is over: ends" if connected else "no head is connected: ends")
                self.end_server()
                return 0
            for repair in self.due(rounds):
                if isinstance(repair, Repair):
                    self.say(f"{repair.reason}: it is ended")
                    self.kill_server()
                    return AGAIN

    def close(self) -> None:
        self._clean_cache()
        super().close()

    def _head(self) -> sockets.End | None:
        head = self.job.head
        return (head.address, head.port) if head.node != self.task.node else None

    def _prepare_cache(self) -> None:
        """Llama.cpp serves every file with a tensor's name later: a full disk would cut them short. The cache of
        earlier jobs goes when this one has none."""
        if not self.task.cache:
            shutil.rmtree(f"{self.job.state_dir}/rpc-{self.job.service}", ignore_errors=True)
            return
        with contextlib.suppress(OSError):
            os.makedirs(self.task.cache, 0o700, exist_ok=True)
            seen = os.statvfs(self.task.cache)
            if seen.f_bavail < LEAST_FREE * seen.f_blocks:
                self.say(f"{self.task.cache}: less than 5 % of its file system is free, it is emptied")
                shutil.rmtree(f"{self.task.cache}/rpc", ignore_errors=True)

    def _clean_cache(self) -> None:
        """Deletes files that its end may have cut short."""
        if not self.task.cache:
            return
        for folder, _folders, names in os.walk(self.task.cache):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    if os.lstat(path).st_mtime > time.time() - YOUNG:
                        os.unlink(path)


def is_connected(end: sockets.End) -> bool:
    """Whether a client is connected to what listens there, accepted or not."""
    here = sockets.entries(samples.read(samples.TCP), end)
    return any(entry.local == end and entry.state == sockets.ESTABLISHED for entry in here)


def holder_of(address: str, port: int) -> str:
    """The process that listens there, in words; empty without one. Processes of other users have only that user."""
    found = next(filter(None, map(sockets.listener, sorted(sockets.resolve(f"{address}:{port}")))), None)
    if not found:
        return ""
    with contextlib.suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(Refusal):
                if found.inode in sockets.socket_inodes([int(pid)]):
                    return f"{printable(samples.read(f'/proc/{pid}/comm').strip())}, process {pid}, of this user"
    try:
        return f"a process of user {pwd.getpwuid(found.user).pw_name}"
    except KeyError:
        return f"a process of user id {found.user}"
