# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster as lines of a terminal. Nothing is wider than the terminal, and nothing in it is more than text: what
others wrote was made printable before. Private to the collection."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._text import duration
from .state import PAGE, Card, Cluster, Endpoint, Gateway, Node, Repair

# A terminal of so many columns has room for what is nice to know.
WIDE = 120
MOST_REPAIRS, MOST_ALERTS = 5, 5
RESET, COLOURS = (
    "\033[0m",
    {"good": "\033[32m", "soon": "\033[33m", "bad": "\033[31m", "dim": "\033[2m", "title": "\033[1m"},
)
MOODS = {"ready": "good", "sleeping": "good", "loading": "soon", "starting": "soon", "stopped": "dim", "held": "soon"}
GIB = 1 << 30


class Line(NamedTuple):
    """mood: of COLOURS, nothing for plain."""

    text: str
    mood: str = ""


def lines(cluster: Cluster, width: int, now: float) -> list[Line]:
    """now: seconds since 1970. What is wrong comes first: a terminal may have fewer lines."""
    wide = width >= WIDE
    found = [Line(_cut(_title(cluster, now), width), "title")]
    if cluster.alerts_error:
        found.append(Line(_cut(f"alerts are not known: {cluster.alerts_error}", width), "bad"))
    if cluster.alerts:
        found.append(Line(""))
        for alert in cluster.alerts[:MOST_ALERTS]:
            text = f"{alert.severity:6} {alert.name}: {alert.summary} ({alert.where})"
            found.append(Line(_cut(text, width), "bad" if alert.severity == PAGE else "soon"))
        more = len(cluster.alerts) - MOST_ALERTS
        found += [Line(_cut("and %d more" % more, width), "soon")] * (more > 0)
    found += _block(*_services(cluster.endpoints, wide), width=width)
    found += _block(*_nodes(cluster, wide), width=width)
    if cluster.gateways:
        found += _block(*_gateways(cluster.gateways), width=width)
    if cluster.cards:
        found += _block(*_cards(cluster.cards, wide), width=width)
    if cluster.repairs:
        found.append(Line(""))
        found += [Line(_cut(_repair(one), width), "dim") for one in cluster.repairs[:MOST_REPAIRS]]
    return found


def painted(shown: Sequence[Line], colour: bool) -> str:
    """The text that a terminal gets."""
    texts = [COLOURS[one.mood] + one.text + RESET if colour and one.mood else one.text for one in shown]
    return "".join(text + "\n" for text in texts)


def show(text: str) -> None:
    """Prints it, also on a terminal that has fewer letters, and to somebody who has gone."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError:
        # What is left would be written at the end again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _title(cluster: Cluster, now: float) -> str:
    nodes, lost = len(cluster.nodes), sum(1 for node in cluster.nodes if node.error)
    parts = ["llama-cluster-monitor %s" % _time("%H:%M:%S", now)]
    parts.append("%d node%s%s" % (nodes, "s"[: nodes != 1], ", %d without an answer" % lost if lost else ""))
    if cluster.alerts_error == "":
        count = len(cluster.alerts)
        parts.append("%d alert%s" % (count, "s"[: count != 1]) if count else "no alert")
    return "  ".join(parts)


def _repair(one: Repair) -> str:
    return "repaired %s %s %s: %s" % (_time("%m-%d %H:%M:%S", one.at), one.node, one.unit, one.reason)


def _time(form: str, at: float) -> str:
    try:
        return time.strftime(form, time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return "?"


Rows = list[tuple[Sequence[str], str]]


def _services(endpoints: Sequence[Endpoint], wide: bool) -> tuple[Sequence[str], Rows]:
    heads = ["SERVICE", "NODE", "STATE", "SLOTS", "CONTEXT", "TOKENS/S", "WORKERS"]
    heads += ["WAITING", "MODEL"] * wide
    found: Rows = []
    for one in endpoints:
        workers = "%d/%d" % (one.links_up, one.links) if one.links else "-"
        cells = [one.service, one.node, one.state, _of(one.busy, one.slots), _of(one.used, one.limit)]
        cells += [_tenths(one.speed), workers]
        cells += [_number(one.waiting), one.model] * wide
        mood = "bad" if one.wanted and one.links_up < one.links else MOODS.get(one.state, "bad")
        found.append((cells, mood))
    return heads, found or [(["none"] + [""] * (len(heads) - 1), "soon")]


def _nodes(cluster: Cluster, wide: bool) -> tuple[Sequence[str], Rows]:
    heads = ["NODE", "STATE", "UNITS", "FABRIC"] + ["RESTARTS", "NOT RUNNING"] * wide
    found: Rows = []
    for node in cluster.nodes:
        own = [one for one in cluster.units if one.node == node.name]
        wanted = [one for one in own if one.wanted]
        missing = [one.unit for one in wanted if not one.active]
        units = "%d/%d" % (len(wanted) - len(missing), len(wanted)) if own else "-"
        cells = [node.name, _state(node.error, node.since, "held for maintenance" if node.held else "answers"), units]
        cells += [_fabric(node)] + ["%d" % sum(one.restarts for one in own) if own else "-", " ".join(missing)] * wide
        mood = "bad" if node.error or missing or node.fabric == "down" else "soon" if node.held else "good"
        found.append((cells, mood))
    return heads, found


def _state(error: str, since: float, well: str) -> str:
    return f"gone for {duration(round(since))}: {error}" if error else well


def _fabric(node: Node) -> str:
    if node.received is None or node.sent is None:
        return node.fabric or "-"
    return f"{node.fabric}, {node.received / 1000000.0:.1f} MB/s in, {node.sent / 1000000.0:.1f} out"


def _gateways(gateways: Sequence[Gateway]) -> tuple[Sequence[str], Rows]:
    found: Rows = []
    for one in gateways:
        cells = [one.host, _state(one.error, one.since, "answers"), _number(one.waiting), _number(one.at_work)]
        cells.append(", ".join(one.not_ready))
        found.append((cells, "bad" if one.error else "soon" if one.not_ready else "good"))
    return ["GATEWAY", "STATE", "WAITING", "AT WORK", "NOT READY"], found


def _cards(cards: Sequence[Card], wide: bool) -> tuple[Sequence[str], Rows]:
    heads = ["CARD", "BUSY", "MEMORY", "WATT", "CELSIUS", "NOTES"] + ["NAME"] * wide
    found: Rows = []
    for one in cards:
        notes = ["throttled: " + ", ".join(one.throttled)] * bool(one.throttled)
        notes += ["%d foreign process%s" % (one.foreign, "es"[: 2 * (one.foreign != 1)])] * bool(one.foreign)
        memory = "-" if one.used is None or not one.total else f"{one.used / GIB:.1f}/{one.total / GIB:.1f} GiB"
        cells = [f"{one.node} {one.gpu}", "-" if one.busy is None else f"{one.busy * 100:.0f} %", memory]
        cells += [_number(one.watts), _number(one.celsius), "; ".join(notes)] + [one.name] * wide
        found.append((cells, "soon" if notes else ""))
    return heads, found


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _tenths(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _of(some: Any, all_of_them: Any) -> str:
    return "-" if all_of_them is None else f"{'?' if some is None else some}/{all_of_them}"


def _block(heads: Sequence[str], rows: Rows, width: int) -> list[Line]:
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
    return text if len(text) <= width else (text[: max(0, width - 1)] + "~")[: max(0, width)]
