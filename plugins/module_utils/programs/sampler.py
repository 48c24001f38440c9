# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""sampler: what only we know of a node, as Prometheus reads it.

It reads /etc/llama-cluster/sampler.json at its start, and what roles write for the watchdog whenever that changes.
What it sees is in /run/llama-cluster/samples.prom, and where sampler.json says so in a directory of node_exporter or on
a page for the monitoring hosts.
"""

import os
import time
from typing import Dict, Tuple

from .. import _files
from .._exporter import cards, config, heads, machine, page
from .._exporter.board import Board, Part
from .._exporter.units import Units
from .._node import paths
from .._node.notify import notify, say
from .._text import Refusal

# Seconds between two looks at units and sockets, and at what changes slowly.
UNITS, SLOW = 2.0, 15.0
NAME = "llama_cluster.prom"


class Sampler:
    """Keeps the parts: one for each head or router, the others once."""

    def __init__(self, told: config.Config) -> None:
        self._told = told
        self.board = Board()
        self._heads: Dict[str, Tuple[config.Watched, Part]] = {}
        node = machine.Machine(told)
        for name, interval, look in (
            ("units", UNITS, Units(told).look),
            ("fabric", UNITS, node.fabric),
            ("machine", SLOW, node.slow),
            ("cards", cards.LOOK, cards.Cards().look),
        ):
            Part(self.board, name, interval, look).start()
        self._self = machine.Self(told.version)

    def follow(self) -> None:
        """Has a part for each head and router that there is now."""
        there = {one.unit: one for one in config.watched() if one.kind != "rpc"}
        for unit, (told, part) in list(self._heads.items()):
            if there.get(unit) != told:
                part.stop()
                del self._heads[unit]
        for unit, told in there.items():
            if unit not in self._heads:
                look = heads.Asked(told, unit in self._told.stopped).look
                # A proof of a conversation may take two minutes.
                part = Part(self.board, unit, heads.LOOK, look, lasts=180.0)
                self._heads[unit] = (told, part)
                part.start()

    def write(self) -> None:
        self.board.put("self", self._self.look(), UNITS * 5)
        content = self.board.text().encode("utf-8")
        _files.write_atomically(paths.SAMPLES, content, 0o644, durable=False)
        if self._told.textfile:
            # That directory is node_exporter's own.
            path = os.path.join(self._told.textfile, NAME)
            _files.write_atomically(path, content, 0o644, anywhere=True, durable=False)


def main() -> None:
    told = config.load()
    sampler = Sampler(told)
    if told.http:
        page.serve((told.http.address, told.http.port), told.http.allowed, sampler.board.text)
    notify("READY=1\nSTATUS=samples for %s" % (told.textfile or ("the monitoring hosts" if told.http else "the node")))
    complaint = ""
    while True:
        try:
            sampler.follow()
            sampler.write()
            complaint = ""
        except (OSError, Refusal) as error:
            if str(error) != complaint:
                complaint = str(error)
                say("sampler: cannot be written: %s" % error)
        notify("WATCHDOG=1")
        time.sleep(UNITS)


if __name__ == "__main__":
    main()
