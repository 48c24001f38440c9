# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of nodes as SLURM writes them. Private to the collection."""

from __future__ import annotations

import re

MOST = 10_000
RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})\Z")


def nodes(text: str) -> list[str]:
    """The names in a list of nodes such as vasp-[01-03,07],ctl; at most MOST."""
    found: list[str] = []
    for match in re.finditer(r"[^,\[\]]+(?:\[[^\[\]]*\][^,\[\]]*)*|(?:\[[^\[\]]*\])", text):
        if len(found) >= MOST:
            break
        names, part = [""], match.group()
        for plain, inside in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", part):
            ends = [plain] if plain else _numbers(inside)
            names = [name + end for name in names for end in ends[: MOST // max(1, len(names))]]
        found += names[: MOST - len(found)]
    return found


def _numbers(inside: str) -> list[str]:
    """'01-03,07' -> 01, 02, 03, 07."""
    found: list[str] = []
    for part in inside.split(","):
        ends = RANGE.match(part)
        if ends:
            first, last = map(int, ends.groups())
            few = range(first, min(last + 1, first + MOST - len(found)))
            found += [str(number).zfill(len(ends.group(1))) for number in few]
        else:
            found.append(part)
        if len(found) >= MOST:
            break
    return found
