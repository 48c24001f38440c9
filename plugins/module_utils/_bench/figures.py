# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Percentiles and rates of many answers, explained in docs/measuring.md. Private to the collection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .answer import Answer

PERCENTILES = (50, 90, 95, 99)
Figures = dict[str, Any]


def percentile(ordered: Sequence[float], share: float) -> float:
    """A percentile of sorted values, interpolated as numpy does by default. share: 0 to 100."""
    place = (len(ordered) - 1) * share / 100.0
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def percentiles(values: Iterable[float | None]) -> dict[str, Any] | None:
    """{p50, p90, p95, p99, n}, six digits; None without a value."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None
    found: dict[str, Any] = {"p%d" % share: _digits(percentile(ordered, share)) for share in PERCENTILES}
    return dict(found, n=len(ordered))


def figures(answers: Sequence[Answer]) -> Figures:
    """The figures of a cell, see llama_bench. Failed requests count only in requests, errors and reasons."""
    good = [one for one in answers if not one.error]
    seconds = max(one.ended for one in answers) - min(one.began for one in answers) if answers else 0.0
    reasons: dict[str, int] = {}
    for one in answers:
        if one.error:
            reasons[one.error] = reasons.get(one.error, 0) + 1
    generated = _total([tokens(one) for one in good])
    return {
        "requests": len(answers),
        "errors": len(answers) - len(good),
        "reasons": reasons,
        "seconds": _digits(seconds),
        "prompt_tokens": _total([one.prompt_tokens for one in good]),
        "cached_tokens": _total([one.cached_tokens for one in good]),
        "generated_tokens": generated,
        "tokens_per_second": _digits(generated / seconds) if generated and seconds > 0 else None,
        "request_tokens_per_second": percentiles(_rate(one) for one in good),
        "queue_seconds": percentiles(_queue(one) for one in good),
        "time_to_first_token": percentiles(_since(one, one.first_text) for one in good),
        "time_to_first_reasoning": percentiles(_since(one, one.first_reasoning) for one in good),
        "server": {
            "prompt_tokens_per_second": percentiles(one.prompt_rate for one in good),
            "tokens_per_second": percentiles(one.rate for one in good),
        },
    }


def tokens(one: Answer) -> int:
    """Generated tokens as the server counts them, else the number of pieces."""
    return len(one.stamps) if one.tokens is None else one.tokens


def _rate(one: Answer) -> float | None:
    taken = one.stamps[-1] - one.stamps[0] if len(one.stamps) > 1 else 0.0
    return (tokens(one) - 1) / taken if taken > 0 and tokens(one) > 1 else None


def _queue(one: Answer) -> float | None:
    """Seconds that a request waited in queues and on the network, without the time for its prompt."""
    if one.prompt_seconds is None or not one.stamps:
        return None
    return max(0.0, one.stamps[0] - one.began - one.prompt_seconds)


def _since(one: Answer, moment: float | None) -> float | None:
    return None if moment is None else moment - one.began


def _total(values: Sequence[int | None]) -> int | None:
    """The sum; None if a value is missing."""
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
