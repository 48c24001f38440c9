# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs probes, each with a time limit, none of them fatal. Private to the collection."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Any, Callable

from .._node.facts import environment
from .._text import Refusal


class Slow(Refusal):
    """A program did not finish in time."""


def output_of(command: Sequence[str], deadline: float, most: int = 64 << 20) -> tuple[int, str]:
    """(status, output) of a program; status 127 if it is missing. Errors: Slow."""
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,
        )
    except OSError:
        return 127, ""
    try:
        output = process.communicate(timeout=deadline)[0]
    except subprocess.TimeoutExpired:
        # No wait: a process that hangs in the kernel survives SIGKILL.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise Slow(f"{command[0]} gave no answer in {deadline:g} s: run it on the node") from None
    return process.returncode, output[-most:].decode("utf-8", "replace")


def gather(probes: dict[str, tuple[float, Callable[[], Any]]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Runs {name: (seconds, function)} in parallel -> ({name: result}, {name: error}).

    A probe that hangs, as on a lost share, is left behind: its thread ends with the process.
    """
    seen: dict[str, Any] = {}
    failed: dict[str, str] = {}

    def look(name: str, probe: Callable[[], Any]) -> None:
        try:
            seen[name] = probe()
        except Exception as error:  # the other probes go on
            failed[name] = str(error) or type(error).__name__

    threads = []
    for name, (seconds, probe) in probes.items():
        thread = threading.Thread(target=look, args=(name, probe), daemon=True)
        thread.start()
        threads.append((name, seconds, thread))
    for name, seconds, thread in threads:
        thread.join(seconds)
        if name not in seen and name not in failed:
            failed[name] = f"no answer in {seconds:g} s"
    # Copies: late threads do not change them.
    return dict(seen), dict(failed)
