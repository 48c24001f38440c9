# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that nobody's unit started: what identifies them, how they end and start again. Private to the
collection."""

import contextlib
import os
import re
import signal
import time
from typing import Any

from .. import _files
from .._text import Refusal
from .handmade import Process, describe

SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
# Variables that name code for root to load.
LOADER = re.compile(r"(LD_\w+|GCONV_PATH|PYTHON\w*|GGML_BACKEND_PATH)\Z")
# Seconds that a server made by hand has to end by itself.
PATIENCE = 20


def process_record(process: Process) -> Process:
    """A process as find() gives it -> what it takes to start it again; variables that look like secrets or name code
    are named, not kept."""
    kept = {name: value for name, value in safe_environment(process).items() if not SECRET.search(name)}
    left_out = sorted(set(process["environment"]) - set(kept))
    names = ("pid", "kind", "executable", "argv", "cwd", "outputs")
    return dict({name: process[name] for name in names}, environment=kept, left_out=left_out, serves=describe(process))


def safe_environment(process: Process) -> dict[str, str]:
    """The variables of a process without those that name code; of LD_LIBRARY_PATH the directories that nobody else can
    exchange or write."""
    kept = {name: value for name, value in process["environment"].items() if not LOADER.match(name)}
    libraries = process["environment"].get("LD_LIBRARY_PATH")
    folders = []
    for entry in re.split("[:;]", libraries) if libraries else []:
        # Empty and relative ones are meant from where it was started.
        folder = os.path.join(process["cwd"], entry)
        with contextlib.suppress(OSError, Refusal), _files.directory(folder):
            folders.append(folder)
    return dict(kept, LD_LIBRARY_PATH=":".join(folders)) if folders else kept


def identity(process: Process) -> list[Any]:
    """Two processes of one identity are the same server, started twice."""
    return [process["argv"], process["cwd"]]


def command_name(pid: int, proc: str = "/proc") -> str:
    try:
        with open(os.path.join(proc, str(pid), "comm"), encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return "gone"


def end(pid: int) -> None:
    """SIGTERM, and SIGKILL for what does not heed it."""
    for number, seconds in ((signal.SIGTERM, PATIENCE), (signal.SIGKILL, PATIENCE)):
        deadline = time.monotonic() + seconds
        try:
            os.kill(pid, number)
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                if is_zombie(pid):
                    return
                time.sleep(0.05)
        except ProcessLookupError:
            return
    raise Refusal(
        "process %d: it does not end, not even killed: see what it waits for in /proc/%d/stack, or reboot the node"
        % (pid, pid)
    )


def is_zombie(pid: int, proc: str = "/proc") -> bool:
    """Whether only its parent has not noticed yet that it ended."""
    try:
        with open(os.path.join(proc, str(pid), "stat"), encoding="utf-8", errors="replace") as stream:
            return stream.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def start_detached(process: Process) -> None:
    """Starts a recorded process as nohup would: a child of init in a session of its own, hang-ups ignored, output where
    it went before.

    Only what was root's was recorded. Whether its program, libraries and logs are still root's is looked at again.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setsid()
            if os.fork():
                os._exit(0)
            become(process)
            os.execve(process["executable"], process["argv"], safe_environment(process))
        except (OSError, Refusal) as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(1)
    os.close(writer)
    os.waitpid(child, 0)
    # Closed without a word by a successful execve.
    with open(reader, "rb") as stream:
        problem = stream.read().decode("utf-8", "replace")
    if problem:
        raise Refusal(
            f"{process['executable']}: it cannot be started again in {process['cwd']} ({problem}): start it by hand"
        )


def become(process: Process) -> None:
    """Gives this process what a recorded one had: directory and outputs."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.close(_files.open_file(process["executable"]))
    with _files.directory(process["cwd"]) as folder:
        os.fchdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(open_log(process["outputs"].get(name, os.devnull)), number)


def open_log(path: str) -> int:
    """-> descriptor to append to. Where others can say what the name stands for the log is lost, not what they made it
    stand for."""
    try:
        return _files.open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except (OSError, Refusal):
        return os.open(os.devnull, os.O_WRONLY)
