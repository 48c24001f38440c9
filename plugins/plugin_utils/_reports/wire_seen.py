# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was read of a service for its wire truth, and what is said of it. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Map = Mapping[str, Any]


class Check(NamedTuple):
    """holds: None where it cannot be judged. said: what was seen, in words. wrong: a sentence for each fault."""

    name: str
    holds: bool | None
    said: str
    wrong: list[str]


class Seen(NamedTuple):
    """What was read of one service. wire: of llama_wire. process: of llama_process, of the head. processes: the same of
    its workers, in the order of its shares. releases: those that the inventory wants, the head's first. knocks: {host:
    answers of port_knock, None for one that was not reached}. load: of llama_load_info. addresses: {node: address on
    the fabric}. plan: rows of the acceptance report. watches: {node: result of llama_bench_watch}. references: what was
    kept of earlier answers."""

    wire: Map
    process: Map
    processes: Sequence[Map]
    releases: Sequence[str]
    knocks: Map
    load: Map
    addresses: Map
    plan: Sequence[Map]
    watches: Map
    references: Sequence[Map]

    def nodes(self, head: Map) -> list[tuple[str, Map]]:
        """(node, process) of the head and of each worker."""
        names = [head["node"]] + [share["node"] for share in head["shares"]]
        return list(zip(names, [self.process, *self.processes], strict=True))
