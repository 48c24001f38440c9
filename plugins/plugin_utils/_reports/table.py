# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables in the output of playbooks. Private to the collection."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._text import printable

NOTHING = "-"


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Lines of a table. Empty columns are left out; an empty cell is a dash."""
    shown = [at for at in range(len(columns)) if any(row[at] not in (None, "") for row in rows)]
    texts = [[columns[at] for at in shown]]
    texts += [
        [printable(NOTHING if row[at] in (None, "") else " ".join(str(row[at]).split()), None) for at in shown]
        for row in rows
    ]
    widths = [max(len(text[at]) for text in texts) for at in range(len(shown))]
    return ["  ".join(one.ljust(width) for one, width in zip(text, widths, strict=True)).rstrip() for text in texts]


def nodes_of(head: Mapping[str, Any], node: str = "") -> str:
    """The head's node, then the nodes of its workers."""
    return ", ".join(filter(None, [head.get("node") or node, *(share["node"] for share in head.get("shares") or [])]))


def context_cell(health: Mapping[str, Any]) -> str:
    if not health.get("n_ctx"):
        return ""
    return "%d x %d" % (health.get("slots") or 1, health["n_ctx"])
