# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""sampler: the node's metrics for Prometheus.

It reads /etc/llama-cluster/sampler.json and the watchdog's configuration, and follows their changes. Samples are in
/run/llama-cluster/samples.prom and, as sampler.json says, in a directory of node_exporter or on a page for the
monitoring hosts.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import Callable

from .. import _files
from .._exporter import cards, config, heads, machine, page, units
from .._exporter.board import Board, Part, ascii_words
from .._exporter.exposition import Family
from .._exporter.units import Units
from .._node import paths
from .._node.notify import notify, say
from .._text import Refusal

# Seconds between two samples of units and sockets, and of slow things.
UNITS, SLOW = 2.0, 15.0
NAME = "llama_cluster.prom"


class Sampler:
    """Runs the parts: one for each head or router, the others once."""

    def __init__(self, settings: config.Config) -> None:
        self._settings = settings
        self.board = Board()
        self._heads: dict[str, tuple[config.Watched, Part]] = {}
        self._page: page.Page | None = None
        node = machine.Machine(settings)
        parts: list[tuple[str, float, Callable[[], list[Family]]]] = [
            ("units", UNITS, Units(settings).look),
            ("fabric", UNITS, node.fabric),
            ("machine", SLOW, node.slow),
            ("cards", cards.LOOK, cards.Cards().look),
            ("jobs", SLOW, units.jobs),
        ]
        parts += [("disk " + path, SLOW, functools.partial(machine.disk, path)) for path in sorted(set(settings.disks))]
        for name, interval, look in parts:
            Part(self.board, name, interval, look).start()

    def follow(self) -> None:
        """Starts and stops parts as heads and routers come and go."""
        current = {one.unit: one for one in config.watched() if one.kind != "rpc"}
        for unit, (watched, part) in list(self._heads.items()):
            if current.get(unit) != watched:
                part.stop()
                del self._heads[unit]
        for unit, watched in current.items():
            if unit not in self._heads:
                look = heads.Server(watched, unit in self._settings.stopped).look
                self._heads[unit] = (watched, Part(self.board, unit, heads.LOOK, look))
                self._heads[unit][1].start()

    def write(self) -> None:
        """Errors: OSError, Refusal."""
        self.board.put(self, "self", machine.sampler(self._settings.version), UNITS * 5)
        content = self.board.content()
        _files.write_atomically(paths.SAMPLES, content, 0o644, durable=False)
        if self._settings.textfile:
            # The account of node_exporter owns the directory and could replace it by a link.
            path = os.path.join(self._settings.textfile, NAME)
            _files.write_atomically(path, content, 0o644, anywhere=True, durable=False, links=False)

    def answer(self) -> None:
        """Starts the page, if there is to be one. Errors: Refusal."""
        http = self._settings.http
        if not http or self._page:
            return
        try:
            self._page = page.serve((http.address, http.port), http.allowed, self.board.content)
        except OSError as error:
            raise Refusal(
                "monitoring_sampler_port: %s port %d cannot be listened on (%s), a free one is needed: set another, or "
                "end what listens there" % (http.address, http.port, error.strerror)
            ) from None

    def round(self) -> list[str]:
        """-> errors."""
        failed = []
        for what, do in (("follow", self.follow), ("write", self.write), ("answer", self.answer)):
            try:
                do()
            except (OSError, Refusal) as error:
                failed.append(f"cannot {what}: {error}")
        return failed


def main() -> int | str:
    complaints: list[str] = []
    read = config.written()
    try:
        settings = config.load()
    except Refusal as error:
        return f"sampler: {error}"
    sampler = Sampler(settings)
    where = settings.textfile or ("the monitoring hosts" if settings.http else "the node")
    notify(f"READY=1\nSTATUS=samples for {where}")
    while True:
        failed = sampler.round()
        if config.written() != read:
            read = config.written()
            try:
                config.load()
            except Refusal as error:
                failed.append(str(error))  # the previous configuration stays
            else:
                restart()
        for one in failed:
            if one not in complaints:
                say("sampler: " + ascii_words(one))
        complaints = failed
        notify("WATCHDOG=1")
        time.sleep(UNITS)


def restart() -> None:
    """Starts the program again in this process, with the new configuration."""
    words = config.read("/proc/self/cmdline").split("\0")[:-1]
    os.execv(sys.executable, words)


if __name__ == "__main__":
    raise SystemExit(main())
