# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a service is slower than in an earlier benchmark, beyond the noise of its figures. Private to the
collection."""

import math
from collections.abc import Mapping
from typing import Any

from .results import FORMAT, value

Map = Mapping[str, Any]
# The standard error of a median of normal values is that of the mean times the root of pi/2.
OF_A_MEDIAN = math.sqrt(math.pi / 2)
# (figure, path of its value, path of its spread, less is better, factor from the spread's error to the value's)
JUDGED = (
    ("tokens/s", "tokens_per_second", "request_tokens_per_second", False, 1.0),
    ("time to first token", "time_to_first_token.p50", "time_to_first_token", True, OF_A_MEDIAN),
)
# Standard deviations between the median and p90 of normal values.
TO_P90 = 1.2816
SETTINGS = ("max_tokens", "ignore_eos", "cache_prompt")


def comparison(result: Map, baseline: Map, loss: float) -> tuple[list[str], list[str]]:
    """-> (lines, refused): each figure beside that of the baseline, and a sentence for each that is worse by more than
    `loss` percent and the noise of both; only a sentence if they cannot be compared."""
    problem = _incomparable(result, baseline)
    if problem:
        return [], [f"{result['label']}: {problem}"]
    before = {where(cell): cell for cell in baseline["cells"]}
    pairs = [(before[where(cell)], cell) for cell in result["cells"] if where(cell) in before]
    lines = [f"compared with {baseline['label']} of {baseline['measured_at']}:"]
    lines += ["  " + one for one in differences(result["fingerprint"], baseline["fingerprint"])]
    refused = []
    for old, new in pairs:
        for judged in JUDGED:
            line, sentence = _judge(judged, old, new, loss)
            lines += [f"  {line}"] if line else []
            refused += [f"{result['label']}: {sentence}"] if sentence else []
    return lines, refused


def _incomparable(result: Map, baseline: Map) -> str:
    """Why two benchmarks cannot be compared; empty if they can."""
    if baseline.get("format") != FORMAT or baseline.get("kind") != "benchmark":
        words = "baseline: format %s of kind %s seen, a benchmark of format %d is needed: give the JSON file of one"
        return words % (baseline.get("format"), baseline.get("kind"), FORMAT)
    mine, its = result["settings"], baseline["settings"]
    rows = [(name, mine.get(name), its.get(name)) for name in SETTINGS]
    rows += [(f"prompt {name}", text, its["prompts"].get(name, text)) for name, text in mine["prompts"].items()]
    for name, own, other in rows:
        if own != other:
            words = "baseline of %s: %s %s seen, %s is needed, or nothing can be compared: measure as it was measured"
            return words % (baseline["measured_at"], name, other, own)
    if not {where(cell) for cell in baseline["cells"]} & {where(cell) for cell in result["cells"]}:
        return (
            "baseline of %s: it has no cell in common with this benchmark, the same prompts, depths and concurrency "
            "are needed: measure as it was measured" % baseline["measured_at"]
        )
    return ""


def _judge(judged: tuple[str, str, str, bool, float], old: Map, new: Map, loss: float) -> tuple[str, str]:
    """(line, sentence if it is too much worse)"""
    name, path, spread, less, factor = judged
    before, now = value(old["figures"], path), value(new["figures"], path)
    if not before:
        return "", ""
    if now is None:
        return "", f"{where(new)}: no {name}, {_worded(before, less)} before"
    noise = 200 * math.hypot(*(standard_error(one["figures"], spread, factor) for one in (old, new)))
    change = round(100 * (now - before) / before, 6)
    line = "%s: %s %s, %s before (%+.1f %%, noise %.1f %%)"
    line %= (where(new), name, _worded(now, less), _worded(before, less), change, noise)
    if (change if less else -change) <= loss + noise:
        return line, ""
    # A rate has a lower limit, a time an upper one.
    words = "%s: %s %s seen, at most %s is allowed" if less else "%s: %s %s seen, at least %s is needed"
    limit = before * (1 + (1 if less else -1) * (loss + noise) / 100)
    allowed = f" ({_worded(before, less)} before, {loss:g} % and {noise:.1f} % of noise allowed)"
    return line, words % (where(new), name, _worded(now, less), _worded(limit, less)) + allowed


def where(cell: Map) -> str:
    """A cell in words."""
    return "%s at %d tokens, %s at a time" % (cell["prompt"], cell["depth"], cell["concurrency"])


def standard_error(figures: Map, spread: str, factor: float) -> float:
    """The standard error of a cell's value as a part of it: the standard deviation of its requests, by their p50 and
    p90, over the root of their number."""
    middle, high, count = (value(figures, f"{spread}.{part}") for part in ("p50", "p90", "n"))
    return factor * (high - middle) / TO_P90 / middle / math.sqrt(count) if middle and count else 0.0


def _worded(number: float, seconds: bool) -> str:
    return f"{number:.3f} s" if seconds else f"{number:.1f}"


def differences(new: Map, old: Map) -> list[str]:
    """A line for each fact of the fingerprints that changed."""
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
    before, now = (one.get("nodes") or {} for one in (old, new))
    for node in sorted({*before, *now}):
        for name in ("kernel", "driver", "cards", "cpu", "cores"):
            seen = [(one.get(node) or {}).get(name) for one in (before, now)]
            if seen[0] != seen[1]:
                found.append("%s of %s: %s before, %s now" % (name, node, *seen))
    return found
