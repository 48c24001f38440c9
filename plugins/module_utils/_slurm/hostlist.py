# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of nodes as SLURM writes them. Private to the collection."""

from __future__ import annotations

import re

MOST = 10_000


def nodes(text: str) -> list[str]:
    """The names in a list of nodes such as vasp-[01-03,07],ctl; at most MOST."""
    found: list[str] = []
    for part in re.findall(r"[^,\[\]]+(?:\[[^\]]*\][^,\[\]]*)*|(?:\[[^\]]*\])", text):
        names = [""]
        for plain, inside in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", part):
            ends = [plain] if plain else _numbers(inside)
            names = [name + end for name in names for end in ends[: MOST // max(1, len(names))]]
        found += names[: MOST - len(found)]
    return found


def _numbers(text: str) -> list[str]:
    """'01-03,07' -> 01, 02, 03, 07."""
    found = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdigit() and last.isdigit() and len(last) < 10:
            few = range(int(first), min(int(last), int(first) + MOST) + 1)
            found += [str(number).zfill(len(first)) for number in few]
        else:
            found.append(part)
    return found
