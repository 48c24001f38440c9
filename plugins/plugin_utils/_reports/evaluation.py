# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kept evaluations: rates with their intervals, and two quants or models compared by the same tasks. Private to the
collection.

A result of kind evaluation is of one name that clients ask for: {format, kind, measured_at, label: that name, service,
model, quant, build, sha256, temperature, judge: rustc, clippy and the sandbox in words, answers: [{task, kind, sample,
digest: of what judges it, passes, compiles: null if no Rust is asked for}]}, beside its figures.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .results import Results

Map = Mapping[str, Any]
# The normal quantile of intervals of 95 %.
Z = 1.959963984540054
# The keys of a result that are read here.
NEEDED = {"label", "service", "model", "quant", "build", "sha256", "temperature", "answers"}
# {figure of a claim: (its words, the key of an answer)}
FIGURES = {"pass_rate": ("% of answers that pass", "passes"), "compile_rate": ("% of answers that compile", "compiles")}
KIND = "evaluation"
CONFIRMED, CONTRADICTED, UNKNOWN = "confirmed", "contradicted", "not measured here"
UNDECIDED = "not decided"


class Pairs(NamedTuple):
    """The same answers of an old and a new one: their number, how many of each are good, and the bounds of the
    difference of both shares, new less old, with 95 % confidence."""

    n: int
    old: int
    new: int
    low: float
    high: float

    def words(self) -> str:
        return "%+.1f points, %+.1f to %+.1f with 95 %% confidence" % (
            100 * (self.new - self.old) / self.n,
            100 * self.low,
            100 * self.high,
        )


def wilson(good: int, n: int) -> list[float]:
    """[share, low, high] by the score interval of Wilson with 95 % confidence, for n > 0."""
    share, square = good / n, Z * Z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = Z * math.sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    return [share, max(0.0, middle - half) if good else 0.0, min(1.0, middle + half) if good < n else 1.0]


def percent(rate: Sequence[float] | None) -> str:
    """Words of what wilson() returns."""
    return "-" if rate is None else "%.1f %% (%.1f to %.1f)" % (100 * rate[0], 100 * rate[1], 100 * rate[2])


def paired(old: Mapping[Any, bool], new: Mapping[Any, bool]) -> Pairs | None:
    """{answer: whether it is good} of both -> what both have; None without any.

    Bounds: the adjusted Wald interval of a difference of paired shares, half an answer added to each of the four
    counts (Agresti and Min 2005).
    """
    both = old.keys() & new.keys()
    if not both:
        return None
    n = len(both)
    only_new = sum(new[one] and not old[one] for one in both) + 0.5
    only_old = sum(old[one] and not new[one] for one in both) + 0.5
    total = n + 2
    middle = (only_new - only_old) / total
    half = Z * math.sqrt(max(0.0, only_new + only_old - (only_new - only_old) ** 2 / total)) / total
    return Pairs(
        n,
        sum(old[one] for one in both),
        sum(new[one] for one in both),
        max(-1.0, middle - half),
        min(1.0, middle + half),
    )


def evaluations(kept: Results, **wanted: str) -> list[Map]:
    """The evaluations with these values, the oldest first, without other files than the newest of each name has."""
    found = [
        one
        for one in kept.history(KIND)
        if one.keys() >= NEEDED and all(str(one[key]) == value for key, value in wanted.items())
    ]
    files = {(one["label"], one["model"], one["quant"]): one["sha256"] for one in found}
    return [one for one in found if files[(one["label"], one["model"], one["quant"])] == one["sha256"]]


def good(results: Iterable[Map], key: str = "passes", kinds: Sequence[str] = ()) -> dict[tuple[Any, ...], bool]:
    """{what an answer answers, and under which conditions: whether it is good}, the newest of each; kinds: of tasks,
    empty for all."""
    return {
        _conditions(each, one): each[key]
        for one in results
        for each in one["answers"]
        if each.get(key) is not None and (not kinds or each["kind"] in kinds)
    }


def _conditions(each: Map, one: Map) -> tuple[Any, ...]:
    return each["task"], each["digest"], each["sample"], one["temperature"], one["build"]


def other_compilers(old: Iterable[Map], new: Iterable[Map], kinds: Sequence[str] = ()) -> tuple[str, str] | None:
    """The compilers of the first answer in Rust that both have and different ones judged, in words; None if there is
    no such answer. kinds: of tasks, empty for all."""
    of_old, of_new = _compilers(old, kinds), _compilers(new, kinds)
    differ = ((of_old[one], of_new[one]) for one in of_old.keys() & of_new.keys() if of_old[one] != of_new[one])
    return min(differ, default=None)


def _compilers(results: Iterable[Map], kinds: Sequence[str]) -> dict[tuple[Any, ...], str]:
    """{as good() has it: version of rustc}, of answers in Rust, where a program of the result was compiled."""
    return {
        _conditions(each, one): str(one["judge"]).partition(", ")[0]
        for one in results
        for each in one["answers"]
        if one.get("judge") and each.get("compiles") is not None and (not kinds or each["kind"] in kinds)
    }


def evaluation_judged(texts: Mapping[str, str], service: Map, name: str, old: str, new: str = "") -> dict[str, Any]:
    """Whether a trial may be kept by its evaluation -> {refused: sentences, lines: for the operator}.

    texts: {path: text} of the kept results. service: the entry of llama_services, name: its name; old: the quant that
    comes back, new: the quant on trial. Without new, before a trial: whether there is anything to compare with.
    """
    kept, model = Results(texts), service["model"]
    results = [evaluations(kept, model=model, quant=quant, service=name) for quant in (old, new)]
    of_old, of_new = map(good, results)
    entry, ask = f"llama_services.{name}", f"evaluate.yml -e models={name}"
    same = "with the same task_dir, tasks, limit and samples"
    again = f"{ask} {same}"
    if not of_old:
        step = f"run {ask} while it serves" if not new else "keep it without -e evaluation=true, or go back first"
        return {
            "refused": [f"{entry}: no evaluation of {old} seen, one is needed to compare with: {step}"],
            "lines": [],
        }
    if not new:
        line = (
            f"{name}: {sum(of_old.values())} of {len(of_old)} answers pass with {old}: run {ask} during the trial of "
            f"the new one, before it is kept, {same}"
        )
        return {"refused": [], "lines": [line]}
    pairs = paired(of_old, of_new)
    if pairs is None:
        sentence = (
            f"{entry}: no evaluation of {new} by the tasks, build and temperature of the one of {old} seen, one is "
            f"needed to judge the trial: run {again}"
        )
        return {"refused": [sentence], "lines": []}
    missing = len(good(results[0][-1:]).keys() - of_new.keys())
    if missing:
        sentence = (
            f"{entry}: {missing} answers fewer with {new} than in the last evaluation of {old} seen, all of them are "
            f"needed to judge the trial: run {again}"
        )
        return {"refused": [sentence], "lines": []}
    judges = other_compilers(results[0], results[1])
    if judges:
        sentence = (
            f"{entry}: answers with {new} judged by {judges[1]} seen, {judges[0]}, which judged those with {old}, is "
            f"needed: set acceptance_judge_host or acceptance_judge_image to one that has it and run {again}, "
            "which only judges again"
        )
        return {"refused": [sentence], "lines": []}
    if pairs.new < pairs.old:
        sentence = (
            f"{entry}: {pairs.new} of {pairs.n} answers that pass with {new} seen, the {pairs.old} of {old} to the "
            f"same tasks are needed to keep it ({pairs.words()}): go back with switch_model.yml -e service={name} "
            f"-e quant={old}, or keep it without -e evaluation=true"
        )
        return {"refused": [sentence], "lines": []}
    line = f"{name}: {pairs.new} of {pairs.n} answers pass with {new}, {pairs.old} with {old} ({pairs.words()})"
    return {"refused": [], "lines": [line]}


def claimed(claim: Map, kept: Results) -> tuple[str, str]:
    """(verdict, reason) of a claim about a rate in percent, or about its difference in points to that of another kind
    of result, by the newest results that answer the same. An interval that includes the limit decides nothing."""
    words, key = FIGURES[claim["figure"]]
    names = [side for side in ("of", "against") if side in claim]
    found = [[one for one in reversed(evaluations(kept)) if _is_of(one, claim[side])] for side in names]
    sides = [", ".join(f"{name} {wanted}" for name, wanted in claim[side].items()) for side in names]
    missing = [text for text, some in zip(sides, found, strict=True) if not some]
    if missing:
        return UNKNOWN, f"no {words} of {' or '.join(missing)} is kept yet"
    kinds = claim.get("tasks") or ()
    for some in itertools.product(*found):
        if "model" not in claim["of"] and len({one["model"] for one in some}) > 1:
            continue
        seen = [good([one], key, kinds) for one in some]
        if len(seen) == 1 and seen[0]:
            rate = wilson(sum(seen[0].values()), len(seen[0]))
            return _verdict(claim, rate[1], rate[2]), f"{percent(rate)} of {len(seen[0])} answers"
        pairs = paired(seen[-1], seen[0]) if len(seen) == 2 else None
        if pairs and not other_compilers(some[-1:], some[:1], kinds):
            counts = f"{pairs.new} of {pairs.n} answers against {pairs.old} to the same tasks"
            return _verdict(claim, pairs.low, pairs.high), f"{counts}, {pairs.words()}"
    return UNKNOWN, f"no {words} of {' and '.join(sides)} to the same tasks is kept yet"


def _verdict(claim: Map, low: float, high: float) -> str:
    least = "at_least" in claim
    limit = claim["at_least" if least else "at_most"] / 100
    if low >= limit if least else high <= limit:
        return CONFIRMED
    return CONTRADICTED if (high < limit if least else low > limit) else UNDECIDED


def _is_of(one: Map, kind: Map) -> bool:
    return all(str(one.get(name)) == str(wanted) for name, wanted in kind.items())
