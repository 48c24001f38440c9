# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""sampler: what only we know of a node, as Prometheus reads it.

It reads /etc/llama-cluster/sampler.json, and what roles write for the watchdog, whenever that changes.
What it sees is in /run/llama-cluster/samples.prom, and where sampler.json says so in a directory of node_exporter or on
a page for the monitoring hosts.
"""

from __future__ import annotations

import functools
import os
import time

from .. import _files
from .._exporter import cards, config, heads, machine, page, proof
from .._exporter.board import Board, Part, ascii_words
from .._exporter.units import Units
from .._node import paths
from .._node.notify import notify, say
from .._text import Refusal

# Seconds between two looks at units and sockets, and at what changes slowly. Heads, proofs and cards have theirs in
# their rooms.
UNITS, SLOW = 2.0, 15.0
NAME = "llama_cluster.prom"


class Sampler:
    """Keeps the parts: one for each head or router, the others once."""

    def __init__(self, told: config.Config) -> None:
        self._told = told
        self._parts: list[Part] = []
        self.board = Board()
        self._heads: dict[str, tuple[config.Watched, list[Part]]] = {}
        self._page: page.Page | None = None
        node = machine.Machine(told)
        for name, interval, look in (
            ("units", UNITS, Units(told).look),
            ("fabric", UNITS, node.fabric),
            ("machine", SLOW, node.slow),
            ("cards", cards.LOOK, cards.Cards().look),
        ):
            self._parts.append(Part(self.board, name, interval, look))
        for path in sorted(set(told.disks)):
            self._parts.append(Part(self.board, "disk " + path, SLOW, functools.partial(machine.disk, path)))
        for part in self._parts:
            part.start()
        self._self = machine.Self(told.version)

    def stop(self) -> None:
        """Another one takes its place: nothing of it goes on, and its port is free."""
        for part in self._parts + [part for _told, parts in self._heads.values() for part in parts]:
            part.stop()
        if self._page:
            self._page.shutdown()
            self._page.server_close()

    def follow(self) -> None:
        """Has a part for each head and router that there is now."""
        there = {one.unit: one for one in config.watched() if one.kind != "rpc"}
        for unit, (told, parts) in list(self._heads.items()):
            if there.get(unit) != told:
                for part in parts:
                    part.stop()
                del self._heads[unit]
        for unit, told in there.items():
            if unit not in self._heads:
                asked = heads.Asked(told, unit in self._told.stopped)
                parts = [Part(self.board, unit, heads.LOOK, asked.look)]
                if told.kind == "head":
                    look = proof.Proof(told, asked).look
                    parts.append(Part(self.board, "conversation " + told.service, proof.LOOK, look, proof.LASTS))
                self._heads[unit] = (told, parts)
                for part in parts:
                    part.start()

    def write(self) -> None:
        """Errors: OSError, Refusal."""
        self.board.put(self, "self", self._self.look(), UNITS * 5)
        content = self.board.content()
        _files.write_atomically(paths.SAMPLES, content, 0o644, durable=False)
        if self._told.textfile:
            # That directory is node_exporter's own, whose account could have it lead elsewhere.
            path = os.path.join(self._told.textfile, NAME)
            _files.write_atomically(path, content, 0o644, anywhere=True, durable=False, links=False)

    def answer(self) -> None:
        """Has the page, where there is to be one. Errors: Refusal."""
        told = self._told.http
        if not told or self._page:
            return
        try:
            self._page = page.serve((told.address, told.port), told.allowed, self.board.content)
        except OSError as error:
            raise Refusal(
                "monitoring_sampler_port: %s port %d cannot be listened on (%s), a free one is needed: set another, or "
                "end what listens there" % (told.address, told.port, error.strerror)
            ) from None

    def round(self) -> list[str]:
        """-> what could not be done."""
        failed = []
        for what, do in (("follow", self.follow), ("write", self.write), ("answer", self.answer)):
            try:
                do()
            except (OSError, Refusal) as error:
                failed.append(f"cannot {what}: {error}")
        return failed


def begun(told: config.Config) -> Sampler:
    sampler = Sampler(told)
    where = told.textfile or ("the monitoring hosts" if told.http else "the node")
    notify(f"READY=1\nSTATUS=samples for {where}")
    return sampler


class Following:
    """A sampler that is another one once sampler.json says something else. Errors: Refusal."""

    def __init__(self) -> None:
        self._read = config.written()
        self._sampler = begun(config.load())

    def round(self) -> list[str]:
        """-> what could not be done."""
        failed: list[str] = []
        written = config.written()
        if written != self._read:
            self._read = written
            try:
                told = config.load()
            except Refusal as error:
                # It goes on by what it was told before.
                failed.append(str(error))
            else:
                self._sampler.stop()
                self._sampler = begun(told)
        return failed + self._sampler.round()


def main() -> int | str:
    try:
        following = Following()
    except Refusal as error:
        return f"sampler: {error}"
    complaints: list[str] = []
    while True:
        failed = following.round()
        for one in failed:
            if one not in complaints:
                say("sampler: " + ascii_words(one))
        complaints = failed
        notify("WATCHDOG=1")
        time.sleep(UNITS)


if __name__ == "__main__":
    raise SystemExit(main())
