# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a cluster as lines for a terminal, none of them wider than it. Private to the collection."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._text import duration
from .state import PAGE, Row

# Terminals with this many columns get all columns of tables.
WIDE = 120
MOST_REPAIRS, MOST_ALERTS = 5, 5
RESET = "\033[0m"
COLOURS = {"good": "\033[32m", "soon": "\033[33m", "bad": "\033[31m", "dim": "\033[2m", "title": "\033[1m"}
MOODS = {"ready": "good", "sleeping": "good", "loading": "soon", "starting": "soon", "stopped": "dim", "held": "soon"}
GIB = 1 << 30


class Line(NamedTuple):
    """mood: of COLOURS, or empty."""

    text: str
    mood: str = ""


def lines(cluster: Row, width: int, now: float) -> list[Line]:
    """Problems come first, in case that the terminal has fewer lines. now: seconds since 1970."""
    wide, alerts = width >= WIDE, cluster["alerts"]
    found = [Line(_title(cluster, now), "title")]
    if cluster["alerts_error"]:
        found.append(Line(f"alerts are not known: {cluster['alerts_error']}", "bad"))
    found += [Line("")] * bool(alerts)
    for alert in alerts[:MOST_ALERTS]:
        text = f"{alert['severity']:6} {alert['name']}: {alert['summary']} ({alert['where']})"
        found.append(Line(text, "bad" if alert["severity"] == PAGE else "soon"))
    more = len(alerts) - MOST_ALERTS
    found += [Line("and %d more" % more, "soon")] * (more > 0)
    found += _block(SERVICES, [_service(one) for one in cluster["endpoints"]] or [(["none"], "soon")], wide, width)
    found += _block(NODES, [_node(one, cluster["units"]) for one in cluster["nodes"]], wide, width)
    found += _block(GATEWAYS, list(map(_gateway, cluster["gateways"])), wide, width)
    found += [Line("")] * bool(cluster["jobs"])
    found += [Line(f"{service}: {words}", "soon") for service, words in sorted(cluster["jobs"].items())]
    found += _block(CARDS, list(map(_card, cluster["cards"])), wide, width)
    found += [Line("")] * bool(cluster["repairs"])
    for one in cluster["repairs"][:MOST_REPAIRS]:
        text = "repaired {} {node} {unit}: {reason}".format(_time("%m-%d %H:%M:%S", one["at"]), **one)
        found.append(Line(text, "dim"))
    return [Line(_cut(one.text, width), one.mood) for one in found]


def painted(shown: Sequence[Line], colour: bool) -> str:
    texts = [COLOURS[one.mood] + one.text + RESET if colour and one.mood else one.text for one in shown]
    return "".join(text + "\n" for text in texts)


def show(text: str) -> None:
    """Prints in the terminal's encoding. A closed terminal or pipe is no error."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError:
        # Python flushes again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _title(cluster: Row, now: float) -> str:
    nodes, lost = len(cluster["nodes"]), sum(1 for node in cluster["nodes"] if node["error"])
    parts = ["llama-cluster-monitor %s" % _time("%H:%M:%S", now)]
    parts.append("%d node%s%s" % (nodes, "s"[: nodes != 1], ", %d without an answer" % lost if lost else ""))
    if cluster["alerts_error"] == "":
        count = len(cluster["alerts"])
        parts.append("%d alert%s" % (count, "s"[: count != 1]) if count else "no alert")
    return "  ".join(parts)


def _time(form: str, at: float) -> str:
    try:
        return time.strftime(form, time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return "?"


# Cells and mood of a row. Headings: of all terminals, and of wide ones in addition.
Cells = tuple[list[str], str]
SERVICES = (("SERVICE", "NODE", "STATE", "SLOTS", "CONTEXT", "TOKENS/S", "WORKERS"), ("WAITING", "MODEL"))
NODES = (("NODE", "STATE", "UNITS", "FABRIC"), ("RESTARTS", "NOT RUNNING"))
GATEWAYS = (("GATEWAY", "STATE", "WAITING", "AT WORK", "NOT READY"), ())
CARDS = (("CARD", "BUSY", "MEMORY", "WATT", "CELSIUS", "NOTES"), ("NAME",))


def _service(one: Row) -> Cells:
    workers = "%d/%d" % (one["links_up"], one["links"]) if one["links"] else "-"
    cells = [one["service"], one["node"], one["state"], _of(one["busy"], one["slots"]), _of(one["used"], one["limit"])]
    cells += [_number(one["speed"], 1), workers, _number(one["waiting"]), one["model"]]
    return cells, "bad" if one["wanted"] and one["links_up"] < one["links"] else MOODS.get(one["state"], "bad")


def _node(node: Row, units: Sequence[Row]) -> Cells:
    own = [one for one in units if one["node"] == node["name"]]
    wanted = [one for one in own if one["wanted"]]
    missing = [one["unit"] for one in wanted if not one["active"]]
    cells = [node["name"], _state(node, "held for maintenance" if node["held"] else "answers")]
    cells += ["%d/%d" % (len(wanted) - len(missing), len(wanted)) if own else "-", node["fabric"] or "-"]
    cells += ["%d" % sum(one["restarts"] for one in own) if own else "-", " ".join(missing)]
    bad = node["error"] or missing or node["fabric"] == "down"
    return cells, "bad" if bad else "soon" if node["held"] else "good"


def _state(one: Row, well: str) -> str:
    return f"gone for {duration(round(one['since']))}: {one['error']}" if one["error"] else well


def _gateway(one: Row) -> Cells:
    cells = [one["host"], _state(one, "answers"), _number(one["waiting"]), _number(one["at_work"])]
    return [*cells, ", ".join(one["not_ready"])], "bad" if one["error"] else "soon" if one["not_ready"] else "good"


def _card(one: Row) -> Cells:
    notes = ["throttled: " + ", ".join(one["throttled"])] * bool(one["throttled"])
    notes += ["%d foreign process%s" % (one["foreign"], "es"[: 2 * (one["foreign"] != 1)])] * bool(one["foreign"])
    known = one["used"] is not None and one["total"]
    memory = f"{one['used'] / GIB:.1f}/{one['total'] / GIB:.1f} GiB" if known else "-"
    cells = [f"{one['node']} {one['gpu']}", "-" if one["busy"] is None else f"{one['busy'] * 100:.0f} %", memory]
    cells += [_number(one["watts"]), _number(one["celsius"]), "; ".join(notes), one["name"]]
    return cells, "soon" if notes else ""


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _of(part: Any, total: Any) -> str:
    return "-" if total is None else f"{'?' if part is None else part}/{total}"


def _block(heads: tuple[Sequence[str], Sequence[str]], rows: list[Cells], wide: bool, width: int) -> list[Line]:
    """A table after an empty line, nothing without rows. Wide columns shrink until the table fits."""
    names = [*heads[0], *(heads[1] if wide else ())]
    cells = [names] + [(row + [""] * len(names))[: len(names)] for row, _mood in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    room = width - 2 * (len(names) - 1)
    while sum(widths) > room and max(widths) > 4:
        widths[widths.index(max(widths))] -= 1
    moods = ["dim"] + [mood for _row, mood in rows]
    shown = ["  ".join(_cut(cell, size).ljust(size) for cell, size in zip(row, widths)).rstrip() for row in cells]
    return [Line("")] * bool(rows) + [Line(text, mood) for text, mood in zip(shown if rows else [], moods)]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else (text[: max(0, width - 1)] + "~")[: max(0, width)]
