# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster as lines of a terminal. Nothing is wider than the terminal, and nothing in it is more than text: what
others wrote was made printable before. Private to the collection."""

import time
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from .._text import duration
from .state import Card, Cluster, Endpoint, Node

# A terminal of so many columns has room for what is nice to know.
WIDE = 120
MOST_REPAIRS, MOST_ALERTS = 5, 8
RESET, COLOURS = (
    "\033[0m",
    {"good": "\033[32m", "soon": "\033[33m", "bad": "\033[31m", "dim": "\033[2m", "title": "\033[1m"},
)
MOODS = {"ready": "good", "sleeping": "good", "loading": "soon", "stopped": "dim", "down": "bad", "unknown": "bad"}
GIB = 1 << 30


class Line(NamedTuple):
    """mood: of COLOURS, nothing for plain."""

    text: str
    mood: str = ""


def lines(cluster: Cluster, width: int, now: float) -> List[Line]:
    """now: seconds since 1970."""
    found = [Line(_cut(_title(cluster, now), width), "title")]
    wide = width >= WIDE
    found += _block(*_services(cluster.endpoints, wide), width=width)
    found += _block(*_nodes(cluster, wide), width=width)
    if cluster.cards:
        found += _block(*_cards(cluster.cards, wide), width=width)
    if cluster.alerts:
        found.append(Line(""))
        for alert in cluster.alerts[:MOST_ALERTS]:
            text = "%-6s %s: %s (%s)" % (alert.severity, alert.name, alert.summary, alert.where)
            found.append(Line(_cut(text, width), "bad" if alert.severity == "page" else "soon"))
        more = len(cluster.alerts) - MOST_ALERTS
        found += [Line(_cut("and %d more" % more, width), "soon")] * (more > 0)
    if cluster.repairs:
        found.append(Line(""))
        for repair in cluster.repairs[:MOST_REPAIRS]:
            at = time.strftime("%m-%d %H:%M:%S", time.localtime(repair.at))
            text = "repaired %s %s %s: %s" % (at, repair.node, repair.unit, repair.reason)
            found.append(Line(_cut(text, width), "dim"))
    return found


def painted(shown: Sequence[Line], colour: bool) -> str:
    """The text that a terminal gets."""
    texts = [COLOURS[one.mood] + one.text + RESET if colour and one.mood else one.text for one in shown]
    return "".join(text + "\n" for text in texts)


def _title(cluster: Cluster, now: float) -> str:
    nodes, lost = len(cluster.nodes), sum(1 for node in cluster.nodes if node.error)
    parts = ["llama-cluster-monitor %s" % time.strftime("%H:%M:%S", time.localtime(now))]
    parts.append("%d node%s%s" % (nodes, "s"[: nodes != 1], ", %d without an answer" % lost if lost else ""))
    if cluster.alerts_known:
        count = len(cluster.alerts)
        parts.append("%d alert%s" % (count, "s"[: count != 1]) if count else "no alert")
    return "  ".join(parts)


Rows = List[Tuple[Sequence[str], str]]


def _services(endpoints: Sequence[Endpoint], wide: bool) -> Tuple[Sequence[str], Rows]:
    heads = ["SERVICE", "NODE", "STATE", "SLOTS", "CONTEXT", "TOKENS/S", "WORKERS"] + ["WAITING", "MODEL"] * wide
    found: Rows = []
    for one in endpoints:
        state = one.state if one.wanted or one.state == "stopped" else "%s (not wanted)" % one.state
        workers = "%d/%d" % (one.links_up, one.links) if one.links else "-"
        cells = [one.service, one.node, state, _of(one.busy, one.slots), _of(one.used, one.limit)]
        cells += ["-" if one.rate is None else "%.1f" % one.rate, workers]
        cells += [_number(one.waiting), one.model] * wide
        mood = "bad" if one.links_up < one.links and one.state in ("ready", "loading") else MOODS.get(one.state, "bad")
        found.append((cells, mood))
    return heads, found or [(["no service is known"] + [""] * (len(heads) - 1), "bad")]


def _nodes(cluster: Cluster, wide: bool) -> Tuple[Sequence[str], Rows]:
    heads = ["NODE", "STATE", "UNITS", "FABRIC"] + ["RESTARTS"] * wide
    found: Rows = []
    for node in cluster.nodes:
        own = [one for one in cluster.units if one.node == node.name]
        wanted = [one for one in own if one.wanted]
        up = sum(1 for one in wanted if one.active)
        cells = [node.name, _state(node), "%d/%d" % (up, len(wanted)) if own else "-", _fabric(node)]
        cells += ["%d" % sum(one.restarts for one in own)] * wide
        mood = "bad" if node.error or up < len(wanted) or node.fabric == "down" else "soon" if node.held else "good"
        found.append((cells, mood))
    return heads, found


def _state(node: Node) -> str:
    if node.error:
        return "gone for %s: %s" % (duration(round(node.since)), node.error)
    return "held for maintenance" if node.held else "answers"


def _fabric(node: Node) -> str:
    if node.received is None or node.sent is None:
        return node.fabric or "-"
    return "%s, %.1f MB/s in, %.1f out" % (node.fabric, node.received / 1e6, node.sent / 1e6)


def _cards(cards: Sequence[Card], wide: bool) -> Tuple[Sequence[str], Rows]:
    heads = ["CARD", "BUSY", "MEMORY", "WATT", "CELSIUS", "NOTES"] + ["NAME"] * wide
    found: Rows = []
    for one in cards:
        notes = ["throttled: " + ", ".join(one.throttled)] * bool(one.throttled)
        notes += ["%d foreign process%s" % (one.foreign, "es"[: 2 * (one.foreign != 1)])] * bool(one.foreign)
        memory = "-" if one.used is None or not one.total else "%.1f/%.1f GiB" % (one.used / GIB, one.total / GIB)
        cells = ["%s %s" % (one.node, one.gpu), "-" if one.busy is None else "%.0f %%" % (one.busy * 100), memory]
        cells += [_number(one.watts), _number(one.celsius), "; ".join(notes)] + [one.name] * wide
        found.append((cells, "soon" if notes else ""))
    return heads, found


def _number(value: Optional[float]) -> str:
    return "-" if value is None else "%.0f" % value


def _of(some: Any, all_of_them: Any) -> str:
    return "-" if all_of_them is None else "%s/%s" % ("?" if some is None else some, all_of_them)


def _block(heads: Sequence[str], rows: Rows, width: int) -> List[Line]:
    """A table below an empty line. Columns that are too wide together share what is there."""
    cells = [list(heads)] + [list(row) for row, _mood in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    room = width - 2 * (len(heads) - 1)
    while sum(widths) > room and max(widths) > 4:
        widths[widths.index(max(widths))] -= 1
    moods = ["dim"] + [mood for _row, mood in rows]
    shown = ["  ".join(_cut(cell, size).ljust(size) for cell, size in zip(row, widths)).rstrip() for row in cells]
    return [Line("")] + [Line(_cut(text, width), mood) for text, mood in zip(shown, moods)]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "~"
