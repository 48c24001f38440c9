# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The targets in both readings, as operators wrote them down and as they mean something on these cards; explained in
docs/measuring.md. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .wire import BUSY

Map = Mapping[str, Any]
TARGET, ACCEPTABLE, BELOW, CRITICAL, UNKNOWN = "target", "acceptable", "below", "critical", "not measured"


class Levels(NamedTuple):
    """The limits of a figure; if less is better, critical is the largest of them. source: who set them and when, may be
    empty."""

    target: float
    acceptable: float
    critical: float
    unit: str
    source: str = ""

    def judge(self, value: float | None) -> str:
        if value is None:
            return UNKNOWN
        sign = -1 if self.critical > self.target else 1
        if sign * value >= sign * self.target:
            return TARGET
        if sign * value >= sign * self.acceptable:
            return ACCEPTABLE
        return CRITICAL if sign * value < sign * self.critical else BELOW

    def words(self) -> str:
        word = "most" if self.critical > self.target else "least"
        found = (word, self.target, self.unit, self.acceptable, self.critical)
        return "at %s %g %s, acceptable %g, critical %g" % found + (f", by {self.source}" if self.source else "")


# For services without llama_targets in the inventory.
RATE = Levels(15, 10, 8, "tokens/s")
FIRST_TOKEN = Levels(2, 5, 10, "s")
UTILIZATION = Levels(70, 50, 40, "%")
MEMORY = Levels(28, 30, 30, "GB")
LINK = Levels(50, 30, 20, "Gb/s")
# The second reading of RATE.
SHARE = Levels(60, 45, 30, "% of the ceiling")
# Percent beyond the plan.
BEYOND_PLAN = 10


class Reading(NamedTuple):
    """A row of the report. value: in words, None without a measurement, and noted: the verdict of the notes on it;
    meant: the second reading, and judged: its verdict. evidence: the source of both; measured_at: when."""

    service: str
    metric: str
    value: str | None
    noted: str
    target: str
    meant: str
    judged: str
    evidence: str
    measured_at: str | None


class Measured(NamedTuple):
    """The facts of a service, None for an unknown one.

    rate: tokens/s of one request after its first token; first_token, queue: seconds of it. ceiling: of plans, or
    no_ceiling: the reason. devices: rows of the plan in the service's report, and peaks: {node: {index: MiB}}.
    utilization: {(node, index): percent}, with one request at a time. stages: devices that hold layers. targets: the
    entry of the service in llama_targets.
    """

    label: str
    model: str
    quant: str = ""
    rate: float | None = None
    first_token: float | None = None
    queue: float | None = None
    evidence: str = ""
    measured_at: str | None = None
    ceiling: float | None = None
    no_ceiling: str = ""
    devices: Sequence[Map] = ()
    seen_at: str | None = None
    peaks: Mapping[str, Mapping[int, float]] = {}
    utilization: Mapping[tuple[str, int], float] = {}
    utilization_at: str | None = None
    stages: int = 1
    targets: Map = {}


def share(one: Measured) -> float | None:
    return 100 * one.rate / one.ceiling if one.rate and one.ceiling else None


def readings(one: Measured) -> list[Reading]:
    return [_rate(one), _first_token(one), *_utilization(one), *_memory(one)]


def link_reading(link: Map | None) -> Reading:
    """The slowest pair of a result of kind link."""
    pairs = [pair for pair in (link or {}).get("pairs") or [] if pair.get("gbit_per_second") is not None]
    if link is None or not pairs:
        no_link = "its idle capacity was not measured"
        return Reading("all", "link", None, UNKNOWN, LINK.words(), "", UNKNOWN, no_link, None)
    slow = min(pairs, key=lambda pair: float(pair["gbit_per_second"]))
    rate = float(slow["gbit_per_second"])
    judged, way = LINK.judge(rate), f"{slow.get('from')} to {slow.get('to')}"
    words = (f"idle, the slowest of {len(pairs)}", judged, way, link["measured_at"])
    return Reading("all", "link", f"{rate:.1f} Gb/s", judged, LINK.words(), *words)


def _wanted(one: Measured, metric: str, otherwise: Levels) -> Levels:
    own = one.targets.get(metric)
    if not own:
        return otherwise
    target, acceptable, critical = (float(own[level]) for level in ("target", "acceptable", "critical"))
    return Levels(target, acceptable, critical, otherwise.unit, str(own.get("source") or ""))


def _rate(one: Measured) -> Reading:
    levels = _wanted(one, "tokens_per_second", RATE)
    percent = share(one)
    meant = one.no_ceiling if percent is None else f"{percent:.1f} % of {one.ceiling or 0:.1f} tokens/s"
    return Reading(
        one.label,
        "throughput",
        None if one.rate is None else f"{one.rate:.1f} tokens/s",
        levels.judge(one.rate),
        levels.words(),
        meant if one.rate is not None else "",
        SHARE.judge(percent),
        one.evidence,
        one.measured_at,
    )


def _first_token(one: Measured) -> Reading:
    levels = _wanted(one, "first_token_seconds", FIRST_TOKEN)
    # Waiting for other requests is not the service's own time.
    own = None if one.first_token is None else max(0.0, one.first_token - (one.queue or 0.0))
    return Reading(
        one.label,
        "first token",
        None if one.first_token is None else f"{one.first_token:.3f} s",
        levels.judge(one.first_token),
        levels.words(),
        "" if own is None else f"{own:.3f} s without {one.queue or 0.0:.3f} s of waiting",
        levels.judge(own),
        one.evidence,
        one.measured_at,
    )


def _utilization(one: Measured) -> list[Reading]:
    """A row for each card: one request is in one of the stages at a time."""
    least = 100 * BUSY / one.stages
    return [
        Reading(
            one.label,
            f"GPU {node} {index}",
            f"{percent:.0f} %",
            UTILIZATION.judge(percent),
            UTILIZATION.words(),
            "more than %.0f %% with %d stages" % (least, one.stages),
            ACCEPTABLE if percent > least else BELOW,
            "benchmark",
            one.utilization_at,
        )
        for (node, index), percent in sorted(one.utilization.items(), key=lambda entry: str(entry[0]))
    ]


def _memory(one: Measured) -> list[Reading]:
    """A row for each device: the most that its card had in use, else the loaded MiB by the log."""
    rows = []
    for row in one.devices:
        known, source = _in_use(one, row)
        planned = row.get("total_mib") or sum(row["planned_mib"].values())
        text, meant, judged, gib = None, "", UNKNOWN, None
        if known is not None:
            text, meant = "%d MiB" % known, "%d MiB planned with the margin" % planned
            judged = TARGET if known <= planned else ACCEPTABLE
            judged = CRITICAL if known > planned * (1 + BEYOND_PLAN / 100) else judged
            gib = known / 1024 if row["device"] != "main" else None
        metric = f"memory {row['node']} {row['device']}"
        noted = (MEMORY.judge(gib), MEMORY.words())
        rows.append(Reading(one.label, metric, text, *noted, meant, judged, source, one.seen_at))
    return rows


def _in_use(one: Measured, row: Map) -> tuple[float | None, str]:
    index = str(row["device"]).removeprefix("GPU")
    peak = one.peaks.get(row["node"], {}).get(int(index)) if index.isdigit() else None
    used = [size for size in (peak, row.get("card_mib")) if size is not None]
    if used:
        return max(used), "its card, at most"
    if row.get("loaded_mib"):
        return sum(row["loaded_mib"].values()), "llama.cpp's log"
    return None, "not known"
