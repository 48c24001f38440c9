# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that a task of a job starts, and what they share with it. Private to the collection.

SLURM sends its signals to every process of a step. A server is to end after its requests, so it starts with these
signals blocked: they stay pending, whatever handlers it sets, and SIGINT ends it. None of them outlives the task.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import IO, Any, Union

Pipe = Union[int, IO[Any]]
# Signals by which SLURM, or who asks it to, wants a task to end.
ASKING = frozenset((signal.SIGTERM, signal.SIGUSR1))
KEPT = ASKING | {signal.SIGUSR2}
# For programs that a server starts; the job's own may name directories of a share.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# SLURM's choice of cards for the step; for Vulkan a TaskProlog's, without which only its devices cgroup decides.
CARDS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")
FILES = 65535
PR_SET_PDEATHSIG = 1
# Not looked up after a fork: another thread may hold the lock of the dynamic linker.
PRCTL = ctypes.CDLL(None).prctl


def start(
    words: Sequence[str],
    environment: Mapping[str, str],
    blocked: Collection[int] = KEPT,
    ignored: Sequence[int] = (),
    at_death: int = signal.SIGKILL,
    stdin: Pipe = subprocess.DEVNULL,
    output: Pipe | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a process, from the main thread: the kernel sends it at_death when the thread that started it ends.

    Errors: OSError.
    """
    parent = os.getpid()

    def prepare() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        end_with(parent, at_death)

    # SIGPIPE stays ignored: a worker or client that vanishes must not end a server.
    return subprocess.Popen(
        words,
        env=dict(environment),
        cwd="/",
        stdin=stdin,
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        restore_signals=False,
        preexec_fn=prepare,  # noqa: PLW1509 - it runs before any thread is started
    )


def end_with(parent: int, number: int) -> None:
    """Has the kernel send this process a signal when its parent ends."""
    PRCTL(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def environment_of(given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server: nothing of the user's or of SLURM's but its choice of cards."""
    cards = {name: os.environ[name] for name in CARDS if name in os.environ}
    return {"PATH": PATH, **cards, **given}


def program(name: str) -> list[str]:
    """The words that run another program of this package."""
    package = __name__.rpartition("._slurm.")[0]
    return [sys.executable, "-S", "-B", "-m", f"{package}.programs.{name}"]


def set_limits() -> None:
    """As a unit has them, as far as SLURM allows: many files, locked memory, no core."""
    for kind, soft, hard in (
        (resource.RLIMIT_NOFILE, FILES, None),
        (resource.RLIMIT_MEMLOCK, resource.RLIM_INFINITY, None),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        most = resource.getrlimit(kind)[1]
        wanted = most if soft == resource.RLIM_INFINITY or 0 <= most < soft else soft
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (wanted, most if hard is None else hard))


def too_little_locked(words: Sequence[str]) -> str:
    """A sentence where a process is to lock its memory and may not, else empty."""
    most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if most == resource.RLIM_INFINITY or not any("mlock" in word for word in words):
        return ""
    return (
        f"its model cannot be locked in memory: {most >> 10} KiB allowed, no limit is needed: set "
        "LimitMEMLOCK=infinity for slurmd, and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf"
    )


def exit_code(status: int) -> int:
    """A process's returncode as a shell shows it."""
    return 128 - status if status < 0 else status


def how_it_ended(status: int) -> str:
    """'exit code 1' or 'SIGABRT'."""
    try:
        return signal.Signals(-status).name if status < 0 else f"exit code {status}"
    except ValueError:
        return f"signal {-status}"
