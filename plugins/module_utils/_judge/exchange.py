# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command's input and output, bounded in size and time. Private to the collection."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from typing import IO, NamedTuple

# Bytes of stderr that are kept: the sandbox's own messages.
MOST_ERRORS = 4096
BLOCK = 1 << 16


class Outcome(NamedTuple):
    """How a command ended. status: of its exit, None if it was ended because of `late` or `long`; output: bytes, at
    most as many as were allowed; errors: what it wrote to stderr."""

    status: int | None
    output: bytes
    late: bool
    long: bool
    errors: str


def exchange(command: Sequence[str], given: bytes, most: int, seconds: float) -> Outcome:
    """Runs a command with these bytes on stdin. It is killed after so many seconds, and with more than `most` bytes on
    stdout. Errors: OSError if it cannot be started."""
    deadline = time.monotonic() + seconds
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    pipes = [stream for stream in (process.stdin, process.stdout, process.stderr) if stream]
    output, errors = bytearray(), bytearray()
    try:
        with contextlib.closing(selectors.DefaultSelector()) as waiting:
            _transfer(waiting, pipes, memoryview(given), (output, most), errors, deadline)
        with contextlib.suppress(subprocess.TimeoutExpired):
            if len(output) <= most:
                process.wait(max(0.0, deadline - time.monotonic()))
        status = process.poll()
    finally:
        process.kill()
        process.wait()
        for stream in pipes:
            with contextlib.suppress(OSError):
                stream.close()
    long = len(output) > most
    late = status is None and not long
    return Outcome(status, bytes(output[:most]), late, long, errors.decode("utf-8", "replace"))


def _transfer(
    waiting: selectors.BaseSelector,
    pipes: Sequence[IO[bytes]],
    given: memoryview,
    kept: tuple[bytearray, int],
    errors: bytearray,
    deadline: float,
) -> None:
    """Until stdout and stderr have ended, the deadline has passed or the output is too long."""
    output, most = kept
    stdin, stdout, stderr = (stream.fileno() for stream in pipes)
    for number in (stdin, stdout, stderr):
        os.set_blocking(number, False)
        waiting.register(number, selectors.EVENT_WRITE if number == stdin else selectors.EVENT_READ)
    reading = {stdout, stderr}
    while reading and len(output) <= most:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        for key, _events in waiting.select(left):
            if key.fd == stdin:
                try:
                    given = given[os.write(stdin, given[:BLOCK]) :] if given else given
                except BrokenPipeError:
                    given = given[:0]
                if not given:
                    waiting.unregister(stdin)
                    pipes[0].close()
                continue
            data = os.read(key.fd, BLOCK)
            if not data:
                waiting.unregister(key.fd)
                reading.discard(key.fd)
            elif key.fd == stdout:
                output += data
            else:
                errors += data[: MOST_ERRORS - len(errors)]
