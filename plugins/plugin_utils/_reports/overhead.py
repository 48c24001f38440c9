# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a service's split costs: the same model and flags, served in several variants. Private to the collection."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .bench import fingerprint, value
from .bench_compare import OF_A_MEDIAN, standard_error

Map = Mapping[str, Any]
FORMAT = 1
# What generation is judged by, and reading.
RATE, FIRST, READING = "request_tokens_per_second", "time_to_first_token.p50", "server.prompt_tokens_per_second.p50"
ROW = "%-20s %-7s %10s %9s %12s %11s"


def overhead(
    head: Map,
    variants: Sequence[Map],
    settings: Map,
    measured_at: str,
    watches: Map,
    plan: Sequence[Map] = (),
) -> dict[str, Any]:
    """-> {result, lines, name, latest}: what is kept as JSON, what an operator reads, and the files' names without an
    ending.

    head: an entry of head_instances. variants: those of filter overhead_variants, with the `cells` of llama_bench, none
    where `why` says why not. settings: requests and max_tokens. measured_at: ISO 8601, UTC. watches: {node: result of
    llama_bench_watch}. plan: the service's rows of memory_plan().
    """
    label = str(head.get("label") or head["service"]).replace(" on ", ".")
    measured = [dict(one, share=_share(one)) for one in variants]
    result = {
        "format": FORMAT,
        "kind": "overhead",
        "service": head["service"],
        "label": label,
        "model": head["model"],
        "quant": head["quant"],
        "measured_at": measured_at,
        # Older Ansible hands out numbers of templates as text.
        "settings": {name: int(settings[name]) for name in ("requests", "max_tokens")},
        "fingerprint": fingerprint(head, watches, plan),
        "variants": measured,
        "verdict": verdict(head["service"], measured),
    }
    return {
        "result": result,
        "lines": lines(result),
        "name": f"{measured_at.replace('-', '').replace(':', '')}-{label}",
        "latest": f"latest-{label}",
    }


def _figures(variant: Map, prompt: str) -> Map:
    """Of a prompt; nothing where it was not asked."""
    found = [cell["figures"] for cell in variant.get("cells") or [] if cell["prompt"] == prompt]
    return found[0] if found else {}


def _rate(variant: Map) -> float | None:
    """Generated tokens/s of one request after another."""
    rate = value(_figures(variant, "short"), RATE + ".p50")
    return float(rate) if rate else None


def _share(variant: Map) -> float | None:
    """Of the bandwidth ceiling."""
    rate, ceiling = _rate(variant), variant.get("ceiling")
    return round(rate / ceiling, 4) if rate and ceiling else None


def _faster(one: Map, other: Map) -> bool:
    """Beyond what both scatter: twice the standard error of the difference."""
    rates = [_rate(one) or 0.0, _rate(other) or 0.0]
    errors = [
        rate * standard_error(_figures(variant, "short"), RATE, OF_A_MEDIAN)
        for rate, variant in zip(rates, (one, other), strict=True)
    ]
    return rates[0] - rates[1] > 2 * math.hypot(*errors)


def verdict(service: str, variants: Sequence[Map]) -> str:
    """One sentence: whether the split costs more than it gives, and what would be faster."""
    by_name = {one["name"]: one for one in variants}
    local, loopback, split = by_name["local"], by_name["loopback"], by_name.get("all")
    if split is None:
        return _of_rpc(service, local, loopback)
    if _rate(split) is None:
        return f"{service}: not judged, no figure of {split['title']}"
    one = by_name.get("one")
    fewer = one and _rate(one) and _faster(one, split)
    also = f"; {one['title']} as its only one is faster, {_number(_rate(one))} tokens/s" if one and fewer else ""
    if not local["fits"]:
        return f"{service}: the split is needed, {local['why']}{also}"
    if _rate(local) is None:
        return f"{service}: not judged, {local['title']} was not measured: {local['why']}{also}"
    seen = "%s tokens/s with %s, %s with %s" % (
        *(_number(_rate(split)), split["title"]),
        *(_number(_rate(local)), local["title"]),
    )
    times = max(_rate(split) or 0, _rate(local) or 0) / min(_rate(split) or 1, _rate(local) or 1)
    if _faster(split, local):
        return f"{service}: the split gives more than it costs, {seen}, {times:.1f} times as fast{also}"
    if not _faster(local, split):
        return "%s: the split gives no tokens/s beyond the noise, %s: drop workers, their nodes are free then" % (
            *(service, seen),
        )
    return "%s: the split costs more than it gives, %s: drop workers, %s is %.1f times as fast" % (
        *(service, seen),
        *(local["title"], times),
    )


def _of_rpc(service: str, local: Map, loopback: Map) -> str:
    """Of a service that has no workers."""
    rates = _rate(local), _rate(loopback)
    if not rates[0] or not rates[1]:
        return f"{service}: not judged, {loopback['title']} was not measured: {loopback['why']}"
    return "%s: it is not split, and RPC by itself would cost %.0f %% of its %s tokens/s" % (
        *(service, max(0.0, 100 * (1 - rates[1] / rates[0]))),
        _number(rates[0]),
    )


def lines(result: Map) -> list[str]:
    """A table, why some of it was not measured, and the verdict."""
    found = [f"{result['label']} ({result['model']} {result['quant']}), the same flags in each variant"]
    found.append(ROW % ("served by", "prompt", "reads/s", "tokens/s", "first token", "of ceiling"))
    for one in result["variants"]:
        for prompt in ("short", "long"):
            figures = _figures(one, prompt)
            if figures:
                found.append(_row(one, prompt, figures))
    for one in result["variants"]:
        errors = sum(cell["figures"].get("errors", 0) for cell in one.get("cells") or [])
        found += ["%s: %d requests failed" % (one["title"], errors)] if errors else []
        found += [f"{one['title']}: not measured, {one['why']}"] if one["why"] else []
    return [*found, result["verdict"]]


def _row(one: Map, prompt: str, figures: Map) -> str:
    first = value(figures, FIRST)
    return ROW % (
        *(one["title"], prompt, _number(value(figures, READING)), _number(value(figures, RATE + ".p50"))),
        "-" if first is None else f"{first:.3f} s",
        f"{100 * one['share']:.0f} %" if prompt == "short" and one["share"] is not None else "-",
    )


def _number(number: float | None) -> str:
    return "-" if number is None else f"{number:.1f}"
