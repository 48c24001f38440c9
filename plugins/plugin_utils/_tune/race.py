# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which candidates are measured next, and which of them is better than what is deployed: decided from records only,
without clock and I/O. Private to the collection.

Each round measures what is deployed and the candidates that are still in the race. A candidate is judged by its ratios
to what is deployed in the same rounds, so that a machine which is slower for a while is slower for both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._reports.results import value

Map = Mapping[str, Any]
BASELINE = "as deployed"
# The axis of candidates that change several settings.
COMBINED = "combination"
WORDS = {
    "single": "tokens/s of one request",
    "total": "tokens/s of all requests",
    "prompt": "tokens/s of reading",
}
SCORES = {
    "single": "tokens_per_second",
    "total": "total_tokens_per_second",
    "prompt": "prompt_tokens_per_second",
}
# Standard errors around a ratio: to leave a candidate, and to choose one, as the best of many looks better than it is.
LEAVING, CHOOSING = 2.0, 3.3
# A change that brings less is not worth a restart.
WORTH = math.log(1.01)
# Rounds without which nothing is chosen, and the most.
LEAST_ROUNDS, MOST_ROUNDS = 3, 12
# The most of a round's candidates that come into the next one.
KEPT = 0.5
# Bounds of what a candidate costs: the rate of one request under another goal, and the time to the first token.
SINGLE, FIRST_TOKEN = math.log(0.95), math.log(1.25)
# The least scatter that is assumed: clocks and tokens are counted in whole ones.
SMALLEST = 0.002


class Ratio(NamedTuple):
    """The logarithms of a ratio and of its bounds; rounds: how many it was measured in."""

    middle: float
    low: float
    high: float
    rounds: int

    def words(self) -> str:
        if math.isinf(self.high):
            return f"{math.exp(self.middle):.2f} times"
        return "%.2f times (%.2f to %.2f)" % tuple(math.exp(one) for one in self[:3])

    def as_dict(self) -> dict[str, Any]:
        """Numbers that JSON has; bounds that are not known are None."""
        low, high = (None if math.isinf(one) else round(math.exp(one), 4) for one in (self.low, self.high))
        return {"ratio": round(math.exp(self.middle), 4), "low": low, "high": high, "rounds": self.rounds}


def tune_round(
    candidates: Sequence[Map],
    measured: Sequence[Map],
    goal: str = "single",
    bounds: Map | None = None,
    minutes_left: float | None = None,
    minutes_per_candidate: float = 0.0,
) -> dict[str, Any]:
    """-> {alive: names in the order to measure, round: the number for their records, left: [{name, why}], finished,
    best: its name, gain: {ratio, low, high, rounds} of the best, ratios: {name: the same}, combine: [{axis, changes}]
    for tune_candidates() where single changes won on several axes, words: a sentence}

    candidates: of tune_candidates(); measured: of tune_measured(); goal: single, total or prompt; bounds:
    {first_token_s: the most seconds to a first token}.
    """
    race = _Race(candidates, measured, goal, bounds or {})
    alive = race.alive()
    if alive and minutes_left is not None and minutes_per_candidate > 0:
        room = int(float(minutes_left) / float(minutes_per_candidate)) - 1
        for name in alive[max(0, room) :]:
            race.left[name] = "no time left to measure it"
        alive = alive[: max(0, room)]
    best = race.best()
    gain = race.ratio(best) if best != BASELINE else Ratio(0.0, 0.0, 0.0, race.last)
    turn = race.last % (len(alive) + 1)
    order = [BASELINE, *alive] if alive else []
    return {
        "alive": order[turn:] + order[:turn],
        "round": race.last + 1,
        "left": [{"name": name, "why": why} for name, why in race.left.items()],
        "finished": not alive,
        "best": best,
        "gain": gain.as_dict(),
        "ratios": {name: race.ratio(name).as_dict() for name in race.names if race.ratio(name).rounds},
        "combine": [] if alive else race.winners(),
        "words": race.words(best, gain, len(alive)),
    }


class _Race:
    """The records of a race. left: {name: why it is not measured any more}."""

    def __init__(self, candidates: Sequence[Map], measured: Sequence[Map], goal: str, bounds: Map) -> None:
        self.goal, self.bounds = goal, bounds
        self.candidates = {one["name"]: one for one in candidates if one["name"] != BASELINE}
        self.last = max((one["round"] for one in measured), default=0)
        self._ratios: dict[tuple[str, float], Ratio] = {}
        self.of: dict[str, dict[int, Map]] = {name: {} for name in (BASELINE, *self.candidates)}
        for one in measured:
            self.of.setdefault(one["name"], {})[one["round"]] = one
        self.left = {name: one["why"] for name, one in self.candidates.items() if one.get("why")}
        self.names = [name for name in self.candidates if name not in self.left]
        self.scatter, self.free = self._scatter()
        for name in self.names:
            why = self._broken(name)
            if why:
                self.left[name] = why
        self.combined = any(len(one["changes"]) > 1 and one["axis"] == COMBINED for one in self.candidates.values())

    def logs(self, name: str, key: str) -> list[float]:
        """The logarithms of a figure's ratios to what is deployed, of the rounds that have both."""
        own, before = (
            {number: float(record[key]) for number, record in self.of[one].items() if _sound(record, key)}
            for one in (name, BASELINE)
        )
        return [math.log(own[number] / before[number]) for number in sorted(own.keys() & before.keys())]

    def _scatter(self) -> tuple[float, int]:
        """The standard deviation of a ratio, of all candidates together, and how many values it is of."""
        squares, free = 0.0, 0
        for name in self.names:
            logs = self.logs(name, SCORES[self.goal])
            if len(logs) > 1:
                middle = sum(logs) / len(logs)
                squares += sum((one - middle) ** 2 for one in logs)
                free += len(logs) - 1
        return (max(SMALLEST, math.sqrt(squares / free)) if free else math.inf), free

    def ratio(self, name: str, errors: float = CHOOSING) -> Ratio:
        """With bounds of so many standard errors."""
        if (name, errors) not in self._ratios:
            self._ratios[name, errors] = self._ratio(name, errors)
        return self._ratios[name, errors]

    def _ratio(self, name: str, errors: float) -> Ratio:
        logs = self.logs(name, SCORES[self.goal])
        if not logs:
            return Ratio(0.0, -math.inf, math.inf, 0)
        middle = sum(logs) / len(logs)
        # Fewer values, wider bounds, as Student's distribution has it.
        wide = errors + (errors**3 + errors) / 4 / self.free if self.free else math.inf
        error = wide * self.scatter / math.sqrt(len(logs))
        return Ratio(middle, middle - error, middle + error, len(logs))

    def _broken(self, name: str) -> str:
        """Why a candidate may not be chosen: it failed, or costs what it must not."""
        records = self.of[name].values()
        errors = [one["error"] for one in records if one.get("error")]
        if errors:
            return str(errors[0])
        most, peak = (
            self.candidates[name].get("most_mib"),
            max((one.get("memory_mib") or 0 for one in records), default=0),
        )
        if most and peak > most:
            return f"{peak:.0f} MiB seen, at most {most:.0f} are allowed, what the plan says and a tenth"
        first = [one["first_token_s"] for one in records if one.get("first_token_s")]
        limit = self.bounds.get("first_token_s")
        if limit and first and sorted(first)[len(first) // 2] > limit:
            return f"{sorted(first)[len(first) // 2]:.2f} s to the first token seen, at most {limit:.2f} s are allowed"
        later = self.logs(name, "first_token_s")
        # A single slow request is no reason.
        if len(later) > 1 and sorted(later)[(len(later) - 1) // 2] > FIRST_TOKEN:
            times = math.exp(sorted(later)[(len(later) - 1) // 2])
            return f"the first token takes {times:.2f} times as long, at most {math.exp(FIRST_TOKEN):.2f} are allowed"
        single = self.logs(name, SCORES["single"])
        if self.goal != "single" and len(single) > 1 and sum(single) / len(single) < SINGLE:
            return "one request has %.2f times the tokens/s, at least %.2f are needed" % (
                math.exp(sum(single) / len(single)),
                math.exp(SINGLE),
            )
        return ""

    def alive(self) -> list[str]:
        """The candidates of the next round, the best first; the others are in left then."""
        failed = [one["error"] for one in self.of[BASELINE].values() if one.get("error")]
        if len(failed) > 1:
            self.left.update(dict.fromkeys(self.names, f"nothing to compare it with, {BASELINE}: {failed[-1]}"))
            return []
        groups: dict[str, list[str]] = {}
        for name in self.names:
            one = self.candidates[name]
            groups.setdefault(COMBINED if self.combined and one["changes"] else one["axis"], []).append(name)
        found = []
        for group in groups.values():
            found += self._of_group(group)
        return sorted(found, key=lambda name: -self.ratio(name).middle)

    def _of_group(self, group: Sequence[str]) -> list[str]:
        untried = [name for name in group if name not in self.left and not self.of[name]]
        tried = [name for name in group if name not in self.left and self.of[name]]
        ranked = sorted(tried, key=lambda name: -self.ratio(name).middle)
        if untried:
            # Combinations of what won are tried beside the best single change.
            return [*ranked[:1], *untried]
        running = [name for name in ranked if self.last in self.of[name]]
        if not running:
            return []
        best = self.ratio(ranked[0], LEAVING)
        most = max(2 if best.rounds < LEAST_ROUNDS else 1, math.ceil(len(running) * KEPT))
        kept: list[str] = []
        for name in ranked:
            own = self.ratio(name, LEAVING)
            if own.high < WORTH:
                self.left[name] = f"no better than {BASELINE}: {own.words()} its {WORDS[self.goal]}"
            elif name != ranked[0] and (own.high < best.low or name not in running or len(kept) >= most):
                self.left[name] = f"{ranked[0]} is better: {best.words()}, this one {own.words()}"
            else:
                kept.append(name)
        return [] if len(kept) < 2 and self._decided(kept) else [name for name in kept if not self._worn(name)]

    def _worn(self, name: str) -> bool:
        return len(self.of[name]) >= MOST_ROUNDS

    def _decided(self, kept: Sequence[str]) -> bool:
        return all(self.ratio(name).rounds >= LEAST_ROUNDS and self.ratio(name).low > 0 for name in kept)

    def best(self) -> str:
        """The best that can be written; if nothing is better beyond the noise, what is deployed."""
        found = [name for name in self.names if self.candidates[name]["changes"] and self._wins(name)]
        return max(found, key=lambda name: self.ratio(name).middle, default=BASELINE)

    def _wins(self, name: str) -> bool:
        own = self.ratio(name)
        broken = self._broken(name) if name in self.left else ""
        return not broken and own.rounds >= LEAST_ROUNDS and own.low > 0 and own.middle > WORTH

    def winners(self) -> list[dict[str, Any]]:
        """The best change of each axis, if several have one and their combinations are not candidates yet."""
        axes: dict[str, str] = {}
        for name in self.names:
            one = self.candidates[name]
            if one["changes"] and self._wins(name):
                before = axes.get(one["axis"])
                if before is None or self.ratio(name).middle > self.ratio(before).middle:
                    axes[one["axis"]] = name
        ordered = sorted(axes.values(), key=lambda name: -self.ratio(name).middle)
        if self.combined or len(ordered) < 2:
            return []
        return [
            {"axis": self.candidates[name]["axis"], "changes": self.candidates[name]["changes"]} for name in ordered
        ]

    def words(self, best: str, gain: Ratio, alive: int) -> str:
        figure = WORDS[self.goal]
        if not self.of[BASELINE]:
            return f"{alive} candidates to measure"
        if best == BASELINE:
            seen = f"nothing is better than {BASELINE} beyond the noise"
        else:
            seen = f"{best}: {gain.words()} the {figure} of {BASELINE}"
        return f"round {self.last}: {seen}, " + (f"{alive} still in the race" if alive else "finished")


def tune_measured(
    name: str, number: int, cells: Sequence[Map], memory_mib: float | None = None, error: str = ""
) -> dict[str, Any]:
    """-> a record of what a candidate reached in a round.

    cells: of llama_bench, with one request at a time and with several; memory_mib: of its head, after the answers;
    error: why it was not measured.
    """
    single = [one["figures"] for one in cells if one["concurrency"] == 1]
    several = [one["figures"] for one in cells if one["concurrency"] > 1]
    failed = [reason for one in cells for reason in one["figures"].get("reasons") or {}]
    return {
        "name": name,
        "round": int(number),
        "tokens_per_second": _mean([value(one, "request_tokens_per_second.p50") for one in single]),
        "total_tokens_per_second": _mean([one.get("tokens_per_second") for one in several]),
        "prompt_tokens_per_second": _mean([value(one, "server.prompt_tokens_per_second.p50") for one in single]),
        "first_token_s": _mean([value(one, "time_to_first_token.p50") for one in single]),
        "memory_mib": memory_mib,
        "error": error or (f"requests failed: {failed[0]}" if failed else ""),
    }


def _sound(record: Map, key: str) -> bool:
    return not record.get("error") and (record.get(key) or 0) > 0


def _mean(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one]
    return round(sum(known) / len(known), 6) if known and len(known) == len(values) else None
