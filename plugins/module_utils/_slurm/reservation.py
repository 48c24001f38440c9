# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps SLURM from nodes whose cards units use. Private to the collection.

SLURM 22.05 reserves no cards ("TRES type 'gres/gpu' not supported with reservations"), so whole nodes are reserved, for
root. A reservation without an end has one after a year.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from . import ask
from .facts import has_gres
from .hostlist import nodes as names_of

NAME = "llama_cluster"
# Running jobs of others go on.
WORDS = ("StartTime=now", "Duration=infinite", "Users=root", "Flags=IGNORE_JOBS")
# A duration would count from its start, which may be long ago.
END = "EndTime=now+365days"
# Seconds before its end at which it gets another.
LEFT = 180 * 86400


def scheduled(nodes: Iterable[str]) -> list[str]:
    """The nodes whose cards SLURM gives to jobs. Errors: Refusal."""
    known = ask.show("node", "NodeName")
    return [node for node in nodes if has_gres(known.get(node, {}).get("Gres", ""), "gpu:1")]


def look() -> dict[str, str]:
    """The reservation of the collection, {} without one. Errors: Refusal."""
    return ask.show("reservation", "ReservationName").get(NAME, {})


def have(nodes: Iterable[str], check: bool, keep: bool = False) -> dict[str, Any]:
    """Has these nodes reserved, and with keep those that are, too. -> {changed, before, after: nodes}. Errors:
    Refusal."""
    seen = look()
    before = sorted(names_of(seen.get("Nodes", "")))
    wanted = sorted({*nodes, *(before if keep else [])})
    ends = ask.moment(seen.get("EndTime", "")) or 0
    late = bool(wanted) and bool(seen) and ends < time.time() + LEFT
    changed = before != wanted or late
    if changed and not check:
        named = ["ReservationName=" + NAME, *(["Nodes=" + ",".join(wanted)] if wanted else [])]
        if seen and wanted:
            # Never without one: a job could start meanwhile.
            ask.run(["scontrol", "update", *named, END])
        elif wanted:
            ask.run(["scontrol", "create", "reservation", *named, *WORDS])
        else:
            ask.run(["scontrol", "delete", *named])
    return {"changed": changed, "before": before, "after": wanted}
