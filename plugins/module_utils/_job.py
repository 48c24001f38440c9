# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Long work that a controller follows through a file: what it has come to, whether it lives, whether anybody still
waits.

The state file holds one line of JSON, {pid, phase, ...}, replaced about every second; the last one has ``result``.
Its follower touches the lease file beside it; the job holds a lock on that file, so that there is one job per state
file. A job whose lease was not renewed for LEASE seconds stops: an interrupted controller leaves no transfer behind
for long.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import time
from typing import Any

from ._files import write_atomically
from ._text import duration, human, printable

LEASE = 60.0  # seconds
FOLDER = "~/.ansible_async"  # Ansible's own
_MOST = 1 << 20  # bytes of a state


def lease_path(path: str) -> str:
    """The lease beside a state file."""
    return path + ".lease"


def is_live(path: str) -> bool:
    """Whether a job that writes the state file ``path`` is running. The folder is made when it is not there."""
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    try:
        fd = _lock(path)
    except BlockingIOError:
        return True
    os.close(fd)
    return False


def claim(path: str) -> Any:
    """Remove what an ended job has left. -> the result that was not reported yet, or None.

    The name of Ansible's own record of the job, in the same folder, stands in the file PATH.jid.
    """
    result = None
    with contextlib.suppress(OSError, ValueError), open(path) as stream:
        result = json.load(stream).get("result")
    with contextlib.suppress(OSError), open(path + ".jid") as stream:
        os.unlink(os.path.join(os.path.dirname(path), os.path.basename(stream.read().strip())))
    for name in (path, path + ".jid", lease_path(path)):
        with contextlib.suppress(OSError):
            os.unlink(name)
    return result


def _lock(path: str) -> int:
    """A descriptor that holds the job's lock; BlockingIOError while another job has it."""
    fd = os.open(lease_path(path), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def running(kind: str, folder: str = FOLDER) -> list[dict[str, Any]]:
    """[{name, line}] of the jobs of this user whose state files begin with ``kind`` and that have a follower."""
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(os.path.expanduser(folder)), kind + "-*.json"))):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            with open(path) as stream:
                state = json.loads(stream.read(_MOST))
            followed = time.time() - os.stat(lease_path(path)).st_mtime < LEASE
            if followed and os.path.isdir("/proc/%d" % state["pid"]) and state["total"]:
                found.append({"name": printable(state["name"]), "line": progress_text(state)})
    return found


def progress_text(state: dict[str, Any]) -> str:
    """A job's state for a progress line: '34 % (26.3 GB of 77.3 GB), 412.1 MB/s, 2 min 03 s left'."""
    text = "%d %% (%s of %s)" % (100 * state["done"] // state["total"], human(state["done"]), human(state["total"]))
    if state["phase"] == "hash":
        text = "hashing " + text
    elif state["done"] == state["total"]:
        return text + ", hashing the rest"
    if state["rate"] < 1:
        return text + ", waiting for the source"
    left = duration(1 + int((state["total"] - state["done"]) / state["rate"]))
    return f"{text}, {human(int(state['rate']))}/s, {left} left"


class Job:
    """The writing side; BlockingIOError when another job writes this state file."""

    def __init__(self, path: str) -> None:
        self._held = _lock(path)
        self.path = path
        self._renewed: int | None = None  # the lease's time when it was seen to change
        self._seen = 0.0
        self.write({"phase": "start"})

    def write(self, state: dict[str, Any]) -> None:
        """Replace the state; readers see the old one or the new one."""
        # The folder is Ansible's, and a node that crashed has no job to follow.
        write_atomically(
            self.path, json.dumps(dict(state, pid=os.getpid())).encode("ascii"), anywhere=True, durable=False
        )

    def finish(self, result: dict[str, Any]) -> None:
        """Leave the final answer, the dictionary a module returns."""
        self.write({"phase": "end", "result": result})

    def abandoned(self) -> str | None:
        """A reason to stop if the lease was not renewed for LEASE seconds, else None. Clock changes do not
        matter."""
        now = time.monotonic()
        renewed: int | None = None
        with contextlib.suppress(OSError):
            renewed = os.stat(lease_path(self.path)).st_mtime_ns
        if renewed != self._renewed or not self._seen:
            self._renewed, self._seen = renewed, now
        if now - self._seen > LEASE:
            return "its controller is gone for %d seconds: run again, it continues" % LEASE
        return None
