# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of targets, in both readings: as operators wrote it down, and as it means something on these cards. Private
to the collection. docs/measuring.md says why there are two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .wire import BUSY

Map = Mapping[str, Any]
TARGET, ACCEPTABLE, BELOW, CRITICAL, UNKNOWN = "target", "acceptable", "below", "critical", "not measured"


class Levels(NamedTuple):
    """From target and acceptable on a figure is that, and beyond critical critical. Where less is better, critical is
    the largest of them. source: who wants that since when, empty where nobody says it."""

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
        """What the table asks for."""
        word = "most" if self.critical > self.target else "least"
        found = (word, self.target, self.unit, self.acceptable, self.critical)
        return "at %s %g %s, acceptable %g, critical %g" % found + (f", by {self.source}" if self.source else "")


# Where the inventory's llama_targets has none for a service.
RATE = Levels(15, 10, 8, "tokens/s")
FIRST_TOKEN = Levels(2, 5, 10, "s")
UTILIZATION = Levels(70, 50, 40, "%")
MEMORY = Levels(28, 30, 30, "GB")
LINK = Levels(50, 30, 20, "Gb/s")
# What means something.
SHARE = Levels(60, 45, 30, "% of the ceiling")
# Percent beyond the plan.
BEYOND_PLAN = 10


class Reading(NamedTuple):
    """One row. value: in words, None where nobody measured it, and noted: the verdict of the notes on it; meant: what
    means something, and judged: the verdict on that. evidence: where both come from; measured_at: when."""

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
    """What is known of a service, None for what nobody measured.

    rate: tokens/s of one request after its first token; first_token, queue: seconds of it. ceiling: of plans, or why
    there is none in no_ceiling. devices: rows of the plan in the service's report, and peaks: {node: {index: MiB}}.
    utilization: {(node, index): percent}, while one request at a time was answered. stages: devices that hold layers.
    targets: the entry of the service in llama_targets.
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
    """Percent of the ceiling."""
    return 100 * one.rate / one.ceiling if one.rate and one.ceiling else None


def readings(one: Measured) -> list[Reading]:
    """Of one service."""
    return [_rate(one), _first_token(one), *_utilization(one), *_memory(one)]


def link_reading(link: Map | None) -> Reading:
    """link: a result of that kind. The slowest pair counts."""
    pairs = [pair for pair in (link or {}).get("pairs") or [] if pair.get("gbit_per_second") is not None]
    if link is None or not pairs:
        return Reading(
            "all", "link", None, UNKNOWN, LINK.words(), "", UNKNOWN, "its idle capacity was not measured", None
        )
    slow = min(pairs, key=lambda pair: float(pair["gbit_per_second"]))
    rate = float(slow["gbit_per_second"])
    way = f"{slow.get('from')} to {slow.get('to')}"
    judged = LINK.judge(rate)
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
    # What it waited for others says nothing of the service.
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
    least = 100 * BUSY / one.stages
    rows = []
    for (node, index), percent in sorted(one.utilization.items()):
        # One request is in one stage at a time.
        judged = ACCEPTABLE if percent > least else BELOW
        rows.append(
            Reading(
                one.label,
                "GPU %s %d" % (node, index),
                f"{percent:.0f} %",
                UTILIZATION.judge(percent),
                UTILIZATION.words(),
                "more than %.0f %% with %d stages" % (least, one.stages),
                judged,
                "benchmark",
                one.utilization_at,
            )
        )
    return rows


def _memory(one: Measured) -> list[Reading]:
    """Of each device: what its card had in use at most, else what the log says was loaded."""
    rows = []
    for row in one.devices:
        known, source = _in_use(one, row)
        planned = row.get("total_mib") or sum(row["planned_mib"].values())
        card = row["device"] != "main"
        gib = known / 1024 if card and known is not None else None
        allowed = planned * (1 + BEYOND_PLAN / 100)
        judged = UNKNOWN if known is None else TARGET if known <= planned else ACCEPTABLE
        rows.append(
            Reading(
                one.label,
                f"memory {row['node']} {row['device']}",
                None if known is None else "%d MiB" % known,
                MEMORY.judge(gib),
                MEMORY.words(),
                "" if known is None else "%d MiB planned with the margin" % planned,
                CRITICAL if known is not None and known > allowed else judged,
                source,
                one.seen_at,
            )
        )
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
