# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""registry_reader CONFIG OUTPUT: copies the endpoints of a shared directory to where the gateway reads them.

CONFIG: {directory, hosts: {node: address} that files may name, uids: [users whose files count beside root's]}.
OUTPUT: {version, endpoints: [...]}. While the share hangs or is gone the last endpoints stay.
"""

from __future__ import annotations

import sys
import time

from .._files import text_of, write_atomically
from .._node.disposable import Disposable
from .._node.notify import notify, say
from .._registry import reader
from .._text import Refusal


class Program:
    def __init__(self, config: str, output: str) -> None:
        with open(config) as stream:
            self._folder, hosts, self._uids = reader.settings_of(stream.read())
        self._output = output
        self._registry = reader.Registry(hosts, say, reader.device_of(text_of(output) or ""))
        self._child = Disposable(reader.DEADLINE)
        self._trouble, self._written = "", b""

    def round(self) -> None:
        """Reads the share once, in reader.DEADLINE seconds at most."""
        outcome = self._child.run(lambda: reader.look(self._folder, self._uids, self._registry.names))
        trouble = outcome.error
        if outcome.value is not None and not self._registry.looked(outcome.value, time.monotonic()):
            trouble = "the share is not mounted"
        endpoints = self._registry.endpoints()
        if trouble != self._trouble:
            self._trouble = trouble
            say(f"{self._folder}: " + (f"{trouble}, {len(endpoints)} endpoints are kept" if trouble else "answers"))
            notify("STATUS=" + (trouble or f"{len(endpoints)} endpoints"))
        # Before the first look the file of the last run counts.
        data = reader.as_json(endpoints, self._registry.device)
        if data != self._written and self._registry.seen:
            write_atomically(self._output, data, mode=0o644, durable=False)
            self._written = data


def main(arguments: list[str]) -> int | str:
    if len(arguments) != 2:
        return "usage: registry_reader CONFIG OUTPUT"
    try:
        program = Program(*arguments)
    except (OSError, Refusal) as error:
        return f"registry_reader: {arguments[0]}: {error}"
    notify("READY=1")
    while True:
        program.round()
        notify("WATCHDOG=1")
        time.sleep(reader.LOOK)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
