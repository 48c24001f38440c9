# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""registry_reader CONFIG OUTPUT: copies the endpoints of a shared directory to where the gateway reads them.

CONFIG: {directory, hosts: {node: address} that files may name, uids: [whose files count beside root's]}.
OUTPUT: {version, age: seconds since the share has answered, endpoints: [...]}. While the share hangs or is gone the
last endpoints stay, and the age grows.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

from .._files import text_of, write_atomically
from .._node.notify import notify, say
from .._registry import reader
from .._registry.disposable import Disposable, Outcome
from .._text import Refusal

# Seconds between two writes of an age that grows.
AGAIN = 5.0


class Program:
    def __init__(self, config: str, output: str) -> None:
        with open(config) as stream:
            self._folder, hosts, self._uids = reader.settings_of(stream.read())
        self._output = output
        self._registry = reader.Registry(hosts, say, reader.device_of(text_of(output) or ""))
        self._child = Disposable(reader.DEADLINE)
        self._trouble, self._began, self._next = "", 0.0, 0.0
        self._written: list[dict[str, Any]] | None = None
        self._written_at = self._written_age = 0.0

    def round(self, now: float) -> None:
        """Never blocks."""
        outcome = self._child.poll(now)
        if outcome:
            self._judge(outcome, now)
        if not self._child.busy and now >= self._next:
            self._began, self._next = now, now + reader.LOOK
            self._child.start(lambda: reader.look(self._folder, self._uids), now)
        self._write(now)

    def wait(self) -> None:
        if self._child.busy:
            self._child.wait(reader.LOOK / 2)
        else:
            time.sleep(max(0.0, min(reader.LOOK, self._next - time.monotonic())))

    def end(self) -> None:
        self._child.end()

    def _judge(self, outcome: Outcome, now: float) -> None:
        trouble = outcome.error
        # The look of a child that was awaited for long may be old: the next look is at once.
        if outcome.late or now - self._began > reader.DEADLINE:
            self._next = now
        elif outcome.value is not None and not self._registry.looked(outcome.value, now):
            trouble = "the share is not mounted"
        if trouble != self._trouble:
            self._trouble = trouble
            known = len(self._registry.endpoints())
            say(f"{self._folder}: " + (f"{trouble}, {known} endpoints are kept" if trouble else "answers"))
            notify("STATUS=" + (trouble or f"{known} endpoints"))

    def _write(self, now: float) -> None:
        """New endpoints, and every few seconds an age that grows."""
        age = self._registry.age(now)
        if age is None:
            return
        age = 0.0 if age < reader.DEADLINE else age
        endpoints = self._registry.endpoints()
        if endpoints != self._written or age != self._written_age and now - self._written_at >= AGAIN:
            data = reader.as_json(endpoints, age, self._registry.device)
            write_atomically(self._output, data, mode=0o644, durable=False)
            self._written, self._written_at, self._written_age = endpoints, now, age


def main(arguments: list[str]) -> int | str:
    if len(arguments) != 2:
        return "usage: registry_reader CONFIG OUTPUT"
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    try:
        program = Program(*arguments)
    except (OSError, Refusal) as error:
        return f"registry_reader: {arguments[0]}: {error}"
    notify("READY=1")
    while not ended:
        program.round(time.monotonic())
        notify("WATCHDOG=1")
        program.wait()
    program.end()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
