# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a service is slower than in an earlier benchmark, beyond what its figures scatter. Private to the
collection."""

import math
from collections.abc import Mapping
from typing import Any

from ...module_utils._text import Refusal
from .bench import value
from .results import FORMAT

Map = Mapping[str, Any]
# The standard error of a median of normal values is that of the mean times the root of pi/2.
OF_A_MEDIAN = math.sqrt(math.pi / 2)
# (figure, where its value is, where its spread is, whether less is better, error of that value by the spread's)
JUDGED = (
    ("tokens/s", "tokens_per_second", "request_tokens_per_second", False, 1.0),
    ("time to first token", "time_to_first_token.p50", "time_to_first_token", True, OF_A_MEDIAN),
)
# Standard deviations between the median and p90 of normal values.
TO_P90 = 1.2816
# Of a cell these have to agree.
KEY = ("prompt", "depth", "concurrency", "rate")
SETTINGS = ("max_tokens", "ignore_eos", "cache_prompt")


def comparison(result: Map, baseline: Map, loss: float) -> dict[str, Any]:
    """-> {lines, refused}: each figure beside that of the baseline, and a sentence for each that is worse by more than
    `loss` percent and the noise of both.

    Errors: Refusal where nothing can be compared.
    """
    _require_comparable(result, baseline)
    before = {key(cell): cell for cell in baseline["cells"]}
    pairs = [(before[key(cell)], cell) for cell in result["cells"] if key(cell) in before]
    if not pairs:
        raise Refusal(
            "baseline of %s: it has no cell in common with this benchmark, the same prompts, depths and concurrency "
            "are needed: measure as it was measured" % baseline["measured_at"]
        )
    lines = [f"compared with {baseline['label']} of {baseline['measured_at']}:"]
    lines += ["  " + one for one in differences(result["fingerprint"], baseline["fingerprint"])]
    refused = []
    for old, new in pairs:
        for name, path, spread, less, factor in JUDGED:
            line, sentence = _judge(name, (path, spread, less, factor), old, new, loss)
            if line:
                lines.append("  " + line)
            if sentence:
                refused.append(f"{result['label']}: {sentence}")
    return {"lines": lines, "refused": refused}


def _require_comparable(result: Map, baseline: Map) -> None:
    if baseline.get("format") != FORMAT or baseline.get("kind") != "benchmark":
        raise Refusal(
            "baseline: format %s of kind %s seen, a benchmark of format %d is needed: give the JSON file of one"
            % (baseline.get("format"), baseline.get("kind"), FORMAT)
        )
    mine, its = result["settings"], baseline["settings"]
    for name in SETTINGS:
        if mine.get(name) != its.get(name):
            raise Refusal(
                "baseline of %s: %s %s seen, %s is needed, or nothing can be compared: measure as it was measured"
                % (baseline["measured_at"], name, its.get(name), mine.get(name))
            )
    changed = [name for name, text in mine["prompts"].items() if its["prompts"].get(name, text) != text]
    if changed:
        raise Refusal(
            "baseline of %s: prompt %s has another text there, the same is needed: measure as it was measured"
            % (baseline["measured_at"], changed[0])
        )


def key(cell: Map) -> tuple[Any, ...]:
    return tuple(cell[name] for name in KEY)


def _judge(name: str, how: tuple[str, str, bool, float], old: Map, new: Map, loss: float) -> tuple[str, str]:
    """(line, sentence where it is too much worse)"""
    path, spread, less, factor = how
    before, now = value(old["figures"], path), value(new["figures"], path)
    place = where(new)
    if not before:
        return "", ""
    if now is None:
        return "", f"{place}: no {name}, {_worded(before, less)} before"
    noise = 200 * math.hypot(
        standard_error(old["figures"], spread, factor), standard_error(new["figures"], spread, factor)
    )
    change = round(100 * (now - before) / before, 6)
    line = "%s: %s %s, %s before (%+.1f %%, noise %.1f %%)" % (
        *(place, name, _worded(now, less), _worded(before, less)),
        *(change, noise),
    )
    worse = change if less else -change
    if worse <= loss + noise:
        return line, ""
    # What a rate may be at least, what a time may be at most.
    words = "%s: %s %s seen, at most %s is allowed" if less else "%s: %s %s seen, at least %s is needed"
    limit = before * (1 + (loss + noise) / 100) if less else before * (1 - (loss + noise) / 100)
    allowed = f" ({_worded(before, less)} before, {loss:g} % and {noise:.1f} % of noise allowed)"
    return line, words % (place, name, _worded(now, less), _worded(limit, less)) + allowed


def where(cell: Map) -> str:
    """A cell in words."""
    many = f"{cell['rate']:g} a second" if cell["rate"] else "%d at a time" % cell["concurrency"]
    return "%s at %d tokens, %s" % (cell["prompt"], cell["depth"], many)


def standard_error(figures: Map, spread: str, factor: float) -> float:
    """The standard error of a cell's value as a part of it: the standard deviation of its requests, by their p50 and
    p90, over the root of their number."""
    middle, high, count = (value(figures, f"{spread}.{part}") for part in ("p50", "p90", "n"))
    return factor * (high - middle) / TO_P90 / middle / math.sqrt(count) if middle and count else 0.0


def _worded(number: float, seconds: bool) -> str:
    return f"{number:.3f} s" if seconds else f"{number:.1f}"


def differences(new: Map, old: Map) -> list[str]:
    """What figures depend on and is no longer the same."""
    found = []
    for name, path in (
        ("build", "build.release"),
        ("commit", "build.commit"),
        ("plan", "plan"),
        ("link", "link.interface"),
    ):
        before, now = value(old, path), value(new, path)
        if before != now:
            found.append(f"{name}: {before} before, {now} now")
    if old.get("args") != new.get("args"):
        gone = [one for one in old.get("args") or [] if one not in (new.get("args") or [])]
        come = [one for one in new.get("args") or [] if one not in (old.get("args") or [])]
        found.append(f"arguments: {' '.join(gone) or 'fewer'} before, {' '.join(come) or 'fewer'} now")
    nodes = sorted(set(old.get("nodes") or {}) | set(new.get("nodes") or {}))
    for node in nodes:
        for name in ("kernel", "driver", "cards", "cpu", "cores"):
            before, now = (value(one, "nodes") or {} for one in (old, new))
            seen = [(one.get(node) or {}).get(name) for one in (before, now)]
            if seen[0] != seen[1]:
                found.append("%s of %s: %s before, %s now" % (name, node, *seen))
    return found
