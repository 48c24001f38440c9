# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The speed of services before and after a switch. Private to the collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .results import value

Rates = Mapping[str, Any]
RATES = {"tokens_per_second": "generates", "prompt_tokens_per_second": "reads prompts at"}


def upgrade_speed(
    measured: Sequence[Mapping[str, Any]],
    baselines: Mapping[str, Rates] | None = None,
    min_ratio: float = 0,
    looks: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """-> {rates, refused: a sentence for each rate below min_ratio of the baseline's, unmeasured: {service: why}}.

    measured: results of llama_bench, each with its unit as item. looks: earlier results of llama_health.
    """
    why = {
        look["item"]["service"]: f"{look.get('state', 'no answer')}, {look.get('reason', 'no reason given')}"
        for look in looks
        if look.get("state") != "ready"
    }
    found = {}
    for one in measured:
        service, cell = one["item"]["service"], (one.get("cells") or [{}])[0]
        rates_now = rates(cell)
        if cell.get("others"):
            why[service] = "busy, others came while it was measured"
        elif rates_now:
            found[service] = rates_now
        else:
            why[service] = _no_rate(one, cell)
    return {"rates": found, "refused": too_slow(found, baselines or {}, min_ratio), "unmeasured": why}


def rates(cell: Mapping[str, Any]) -> Rates | None:
    """{requests, tokens_per_second, prompt_tokens_per_second} of a cell of llama_bench, medians of the server's own
    rates; None if one is missing."""
    found = {name: value(cell, f"figures.server.{name}.p50") for name in RATES}
    if not all(found.values()):
        return None
    requests = cell["figures"]["requests"] - cell["figures"]["errors"]
    return dict({name: round(rate, 2) for name, rate in found.items()}, requests=requests)


def _no_rate(one: Mapping[str, Any], cell: Mapping[str, Any]) -> str:
    reasons = list(value(cell, "figures.reasons") or {})
    return str(reasons[0] if reasons else one.get("msg") or "it reports no rates")


def too_slow(now: Mapping[str, Rates], baselines: Mapping[str, Rates], min_ratio: float) -> list[str]:
    """A sentence for each rate of `now` below min_ratio of the baseline's; both are results of rates()."""
    found = []
    for service, measured in sorted(now.items()):
        for key, does in RATES.items():
            before = baselines.get(service, {}).get(key)
            if before and measured[key] < min_ratio * before:
                found.append(
                    "llama_services.%s %s %.1f tokens/s, %.1f are needed (%g of the %.1f before)"
                    % (service, does, measured[key], min_ratio * before, min_ratio, before)
                )
    return found


def unmeasured_lines(unmeasured: Mapping[str, str]) -> list[str]:
    """A warning for each service that was kept without a measurement."""
    return [
        "%s: its speed was not measured (%s) and may be lower than before: measure it when it is idle" % one
        for one in sorted(unmeasured.items())
    ]


def speed_lines(now: Mapping[str, Rates], baselines: Mapping[str, Rates]) -> list[str]:
    """The rates of each service beside its baseline."""
    lines = []
    for service, measured in sorted(now.items()):
        before = baselines.get(service)
        line = "%s: %.1f tokens/s, prompts %.1f tokens/s (median of %d)"
        line %= (service, measured["tokens_per_second"], measured["prompt_tokens_per_second"], measured["requests"])
        if before:
            former = (before["tokens_per_second"], before["prompt_tokens_per_second"], before.get("build"))
            lines.append(line + "; before: %.1f and %.1f with %s" % former)
        else:
            lines.append(line + "; nothing to compare it with")
    return lines
