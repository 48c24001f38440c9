# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a service is as fast after a switch as it was before. Private to the collection."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Rates = Mapping[str, Any]
RATES = {"tokens_per_second": "generates", "prompt_tokens_per_second": "reads prompts at"}


def upgrade_speed(
    answers: Sequence[Mapping[str, Any]],
    baselines: Mapping[str, Rates] | None = None,
    min_ratio: float = 0,
    first: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """-> {rates, refused: a sentence for each rate below min_ratio of the baseline's, unmeasured: {service: why}}.
    answers: results of llama_health with deep, of which the first one of each item is the unit that was asked. first:
    those that are not counted, whose item is the unit."""
    named = [(answer["item"][0]["service"], answer) for answer in answers]
    found = rates(named)
    asked = [(answer["item"]["service"], answer) for answer in first] + named
    why = {
        service: "%s, %s" % (answer.get("state", "no answer"), answer.get("reason", "no reason given"))
        for service, answer in asked
        if service not in found
    }
    return {"rates": found, "refused": too_slow(found, baselines or {}, min_ratio), "unmeasured": why}


def rates(answers: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Rates]:
    """{service: {requests, tokens_per_second, prompt_tokens_per_second}}, medians; a service that never answered is
    left out.

    answers: [(service, result of llama_health with deep)].
    """
    of_service: dict[str, list[Mapping[str, Any]]] = {}
    for service, answer in answers:
        if (
            answer.get("state") == "ready"
            and answer.get("tokens_per_second")
            and answer.get("prompt_tokens_per_second")
        ):
            of_service.setdefault(service, []).append(answer)
    return {
        service: dict({key: round(_median([one[key] for one in measured]), 2) for key in RATES}, requests=len(measured))
        for service, measured in sorted(of_service.items())
    }


def _median(values: Iterable[float]) -> float:
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2.0


def too_slow(now: Mapping[str, Rates], baselines: Mapping[str, Rates], min_ratio: float) -> list[str]:
    """One sentence for each rate of `now` that is below min_ratio of the baseline's; both as rates() returns them."""
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
    """A slow build that nobody could measure is kept: it must not be kept in silence."""
    return [
        "%s: its speed was not measured (%s) and may be lower than before: measure it when it is idle" % one
        for one in sorted(unmeasured.items())
    ]


def speed_lines(now: Mapping[str, Rates], baselines: Mapping[str, Rates]) -> list[str]:
    """What was measured, beside what was measured before."""
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
