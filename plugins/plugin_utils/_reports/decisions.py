# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what was decided holds on this very cluster: each claim of a decision, judged by the figures that benchmarks
and drills have kept. Private to the collection.

A claim is about a figure of one kind of result (`of`), or about what it is by that of another kind (`against`), where
the two differ in nothing else. Kinds are told by quant, by cards and by keys of a service.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._settings import KEYS, OWN, PLAIN_CACHE_TYPES
from .bench import FORMAT, value
from .bench_compare import OF_A_MEDIAN, SETTINGS, differences, key, standard_error, where

Map = Mapping[str, Any]
CONFIRMED, CONTRADICTED = "confirmed", "contradicted"
# Within the noise of both results, and without the results that it takes.
OPEN, UNKNOWN = "not decided", "not measured here"
# How each setting of a result is told on its command line.
FLAGS = {one.name: one.flag for one in KEYS if isinstance(one.flag, str)}
FLAGS["split_mode"] = "--split-mode"
# What a setting changes beside its own flag.
FOLLOWS = {"quant": ("--model",), "parallel": ("--ctx-size",)}
# What the judge reads of a result.
NEEDED = ("label", "model", "quant", "measured_at", "asked_from", "settings", "fingerprint", "cells")


class Figure(NamedTuple):
    """What a claim is about, read from the figures of a cell."""

    words: str
    form: str
    read: Callable[[Map], float | None]
    spread: str = ""  # the figure whose requests tell how far it scatters
    factor: float = 1.0


class Row(NamedTuple):
    """A cell, with the figure of each side. seen: what the claim is about, None where the two cannot be compared."""

    where: str
    of: float | None = None
    against: float | None = None
    seen: float | None = None
    noise: float = 0.0


class Side(NamedTuple):
    """A kind of result, in words, and the one that was looked at."""

    words: str
    result: Map | None


class Judged(NamedTuple):
    """What became of a claim, and why where figures alone do not say it."""

    claim: Map
    verdict: str
    reason: str = ""
    sides: Sequence[Side] = ()
    rows: Sequence[Row] = ()


def _of_requests(name: str) -> Callable[[Map], float | None]:
    return lambda cell: value(cell, "figures." + name)


def _answered(cell: Map) -> float | None:
    asked, errors = value(cell, "figures.requests"), value(cell, "figures.errors")
    return 100 * (1 - errors / asked) if asked and errors is not None else None


def _link(cell: Map) -> float | None:
    """Of the busiest node."""
    seconds = value(cell, "figures.seconds")
    nodes = [node for node in (cell.get("nodes") or {}).values() if node]
    moved = [(node["fabric_rx_bytes"], node["fabric_tx_bytes"]) for node in nodes]
    known = [sum(both) * 8 / seconds / 1e6 for both in moved if seconds and None not in both]
    return max(known, default=None)


FIGURES = {
    "generation": Figure(
        "tokens/s of a request",
        "%.1f",
        _of_requests("request_tokens_per_second.p50"),
        "request_tokens_per_second",
        OF_A_MEDIAN,
    ),
    "total": Figure("tokens/s of all requests", "%.1f", _of_requests("tokens_per_second"), "request_tokens_per_second"),
    "answered": Figure("% of requests answered whole", "%.0f", _answered),
    "link": Figure("Mb/s over the fabric", "%.1f", _link),
}


def results_of(files: Mapping[str, str]) -> tuple[list[Map], list[str]]:
    """-> (the benchmarks among files, {name: text}, the newest first; why others were left out)"""
    found, odd = [], []
    for name, text in sorted(files.items()):
        try:
            result = json.loads(text)
            if result["kind"] != "benchmark":
                continue
            if result["format"] != FORMAT:
                odd.append("%s: format %s seen, %d is read" % (name, result["format"], FORMAT))
                continue
            missing = [one for one in NEEDED if one not in result]
            if missing:
                odd.append(f"{name}: no {missing[0]}")
                continue
            found.append(result)
        except (KeyError, TypeError, ValueError):
            odd.append(f"{name}: no result of a benchmark")
    return sorted(found, key=lambda one: str(one["measured_at"]), reverse=True), odd


def judged(claim: Map, results: Sequence[Map], drills: Iterable[Map] = ()) -> Judged:
    """results: the newest first. drills: reports of role drill."""
    if "drill" in claim:
        return _drilled(claim, drills)
    kinds = [claim[side] for side in ("of", "against") if side in claim]
    # Those first that have a figure of what is claimed.
    found = [
        sorted((one for one in results if _is_of(one, kind)), key=lambda one: not any(_cells(claim, one)))
        for kind in kinds
    ]
    sides = [Side(_words(kind), some[0] if some else None) for kind, some in zip(kinds, found, strict=True)]
    missing = [side.words for side in sides if side.result is None]
    if missing:
        reason = f"no benchmark of {' or '.join(missing)} is kept yet"
        known = [Row(where(cell), seen) for cell, seen in _cells(claim, found[0][0])] if found[0] else []
        if not known and found[-1]:
            known = [Row(where(cell), None, seen) for cell, seen in _cells(claim, found[-1][0])]
        return Judged(claim, UNKNOWN, reason, sides, known)
    return _by_figure(claim, found[0]) if len(kinds) == 1 else _by_ratio(claim, found)


def _by_figure(claim: Map, found: Sequence[Map]) -> Judged:
    figure, words = FIGURES[claim["figure"]], _words(claim["of"])
    for result in found:
        rows = [
            Row(where(cell), seen, None, seen, seen * 2 * _error(cell, figure)) for cell, seen in _cells(claim, result)
        ]
        if rows:
            return Judged(claim, _verdict(claim, rows), "", [Side(words, result)], rows)
    return Judged(claim, UNKNOWN, _no_cell(claim), [Side(words, found[0])])


def _by_ratio(claim: Map, found: Sequence[Sequence[Map]]) -> Judged:
    """Of the newest two that differ in nothing else."""
    kinds = (claim["of"], claim["against"])
    names = [name for name in {**kinds[0], **kinds[1]} if kinds[0].get(name) != kinds[1].get(name)]
    alike = None
    for one, other in itertools.product(found[0], found[1]):
        if unlike(one, other, names):
            continue
        pair, rows = (one, other), list(_pairs(claim, one, other))
        alike = alike or pair
        if rows:
            return Judged(claim, _verdict(claim, rows), "", _sides(kinds, pair), rows)
    if alike:
        return Judged(claim, UNKNOWN, _no_cell(claim) + " of both", _sides(kinds, alike))
    one, other = found[0][0], found[1][0]
    rows = [row._replace(seen=None) for row in _pairs(claim, one, other)]
    more = "; ".join(unlike(one, other, names))
    reason = f"not comparable, they differ in more than {' and '.join(names)}: {more}"
    return Judged(claim, UNKNOWN, reason, _sides(kinds, (one, other)), rows)


def _sides(kinds: Sequence[Map], pair: Sequence[Map]) -> list[Side]:
    return [Side(_words(kind), result) for kind, result in zip(kinds, pair, strict=True)]


def _no_cell(claim: Map) -> str:
    many = {"one": ", one request at a time", "several": ", several requests at a time"}.get(
        claim.get("at_a_time", ""), ""
    )
    return f"no undisturbed figure is kept yet of {FIGURES[claim['figure']].words}{many}"


def _cells(claim: Map, result: Map) -> Iterable[tuple[Map, float]]:
    """The cells that a claim is about, with its figure of them; not those in which others were served meanwhile."""
    for cell in result["cells"]:
        at_a_time = "one" if cell["concurrency"] == 1 and not cell["rate"] else "several"
        seen = FIGURES[claim["figure"]].read(cell)
        if seen is not None and not cell["others"] and claim.get("at_a_time", at_a_time) == at_a_time:
            yield cell, seen


def _pairs(claim: Map, one: Map, other: Map) -> Iterable[Row]:
    figure = FIGURES[claim["figure"]]
    texts = [result["settings"]["prompts"] for result in (one, other)]
    cells = {key(cell): (cell, seen) for cell, seen in _cells(claim, other)}
    for cell, seen in _cells(claim, one):
        its, by = cells.get(key(cell), (cell, 0))
        if by and texts[0].get(cell["prompt"]) == texts[1].get(cell["prompt"]):
            noise = 2 * math.hypot(_error(cell, figure), _error(its, figure))
            yield Row(where(cell), seen, by, seen / by, seen / by * noise)


def _error(cell: Map, figure: Figure) -> float:
    return standard_error(cell["figures"], figure.spread, figure.factor) if figure.spread else 0.0


def _verdict(claim: Map, rows: Sequence[Row]) -> str:
    """One cell that speaks against a claim is enough; all have to speak for it."""
    limit = claim.get("at_least", claim.get("at_most"))
    sign = 1 if "at_least" in claim else -1
    margins = [(sign * ((row.seen or 0) - limit), row.noise) for row in rows]
    if any(margin < 0 and -margin >= noise for margin, noise in margins):
        return CONTRADICTED
    return CONFIRMED if all(margin >= noise for margin, noise in margins) else OPEN


def unlike(one: Map, other: Map, names: Sequence[str]) -> list[str]:
    """What two results differ in beside these settings."""
    found = [
        f"{name} {one[name]} and {other[name]}"
        for name in ("model", "quant", "asked_from")
        if name not in names and one[name] != other[name]
    ]
    found += [
        f"{name} {one['settings'].get(name)} and {other['settings'].get(name)}"
        for name in SETTINGS
        if one["settings"].get(name) != other["settings"].get(name)
    ]
    new, old = sorted((one, other), key=lambda result: str(result["measured_at"]), reverse=True)
    return found + differences(_bare(new, names), _bare(old, names))


def _bare(result: Map, names: Sequence[str]) -> dict[str, Any]:
    """Its fingerprint without what these settings change. Where layers lie is in the arguments, too."""
    flags = {flag for name in names for flag in (FLAGS.get(name, ""), *FOLLOWS.get(name, ()))}
    args: list[str] = []
    words = iter(result["fingerprint"].get("args") or [])
    for word in words:
        if word in flags:
            next(words, None)
        else:
            args.append(word)
    return dict(result["fingerprint"], args=args, plan=None)


def _is_of(result: Map, kind: Map) -> bool:
    return all(
        _has_card(result, wanted) if name == "cards" else _setting(result, name) == str(wanted)
        for name, wanted in kind.items()
    )


def _has_card(result: Map, name: str) -> bool:
    nodes = (result["fingerprint"].get("nodes") or {}).values()
    return any(name in str(card) for node in nodes for card in node.get("cards") or [])


def _setting(result: Map, name: str) -> str | None:
    """None where nobody knows: an endpoint does not say how it was started."""
    args = result["fingerprint"].get("args") or []
    if name in ("model", "quant"):
        return str(result[name])
    if not args:
        return None
    given = [word for flag, word in itertools.pairwise(args) if flag == FLAGS[name]]
    found = given[-1] if given else OWN.get(name)
    # Every build turns it on by itself where a quantized cache needs it.
    if (name, found) == ("flash_attn", "auto") and _setting(result, "cache_type_v") not in PLAIN_CACHE_TYPES:
        return "on"
    return None if found is None else str(found)


def _words(kind: Map) -> str:
    return ", ".join(f"{name} {wanted}" for name, wanted in kind.items())


def _drilled(claim: Map, drills: Iterable[Map]) -> Judged:
    """By the newest drill of its name on any service."""
    found = [
        (float(one.get("broken_at") or 0), str(report.get("service")), one)
        for report in drills
        for one in report.get("drills") or []
        if one.get("drill") == claim["drill"] and one.get("result") in ("recovered", "failed")
    ]
    if not found:
        reason = f"no drill {claim['drill']} is kept yet"
        return Judged(claim, UNKNOWN, reason)
    at, service, one = max(found, key=lambda each: each[0])
    total = value(one, "phases.total")
    words = f"{service}: {one['result']}"
    words += f", the next answer {total:.1f} s after the break" if total is not None else ""
    words += time.strftime(", %Y-%m-%d %H:%M UTC", time.gmtime(at)) if at else ""
    return Judged(claim, CONFIRMED if one["result"] == "recovered" else CONTRADICTED, words)
