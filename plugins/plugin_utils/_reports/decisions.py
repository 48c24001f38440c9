# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of decisions, in Markdown: each decision, its alternatives, and the latest figures of this cluster beside
each claim. Private to the collection.

A claim is about a figure of one kind of result (`of`), or about its ratio to that of another kind (`against`). The page
has no date of its own: the same decisions and results give the same page.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._cache_keys import PLAIN_CACHE_TYPES
from ...module_utils._settings import KEYS, OWN
from ...module_utils._text import printable
from .bench_compare import SETTINGS, where
from .evaluation import CONFIRMED, CONTRADICTED, UNDECIDED, UNKNOWN, claimed
from .evaluation import FIGURES as RATES
from .results import Results, label_of, value

Map = Mapping[str, Any]
# The flag of each setting.
FLAGS = {one.name: one.flag for one in KEYS if isinstance(one.flag, str)} | {"split_mode": "--split-mode"}
# More flags that a setting changes.
FOLLOWS = {"quant": ("--model",), "parallel": ("--ctx-size",)}
HEADING = """\
# Architecture decisions

<!-- Written by the collection thefermisea.llama_cluster: playbooks/decisions.yml writes it anew. -->

The decisions of the collection's reference deployment, their alternatives, and the figures of this very cluster. A
claim is *confirmed* or *contradicted* by its latest figure, *not decided* where chance explains it too, and *not
measured here* without one. Only results that differ in nothing else are compared.
"""
COLUMNS = ("result", "at", "figure", "measured", "service", "model", "build", "nodes")


# The keys of a benchmark that are read here.
NEEDED = {"model", "quant", "asked_from", "settings", "fingerprint", "cells"}
# The keys of a tune that are read here.
OF_TUNE = {"service", "goal", "deployed", "candidates"}


class Judged(NamedTuple):
    """A claim and its verdict. reason: the figure, or the missing one. results: (kind in words, result)."""

    claim: Map
    verdict: str
    reason: str
    results: Sequence[tuple[str, Map]] = ()


def _answered(cell: Map) -> float | None:
    requests, errors = value(cell, "figures.requests"), value(cell, "figures.errors")
    return 100 * (1 - errors / requests) if requests and errors is not None else None


def _link(cell: Map) -> float | None:
    """Mb/s of the busiest node."""
    seconds = value(cell, "figures.seconds")
    moved = [(node["fabric_rx_bytes"], node["fabric_tx_bytes"]) for node in (cell.get("nodes") or {}).values() if node]
    return max((sum(both) * 8 / seconds / 1e6 for both in moved if seconds and None not in both), default=None)


FIGURES: dict[str, tuple[str, Callable[[Map], float | None]]] = {
    "generation": ("tokens/s of a request", lambda cell: value(cell, "figures.request_tokens_per_second.p50")),
    "total": ("tokens/s of all requests", lambda cell: value(cell, "figures.tokens_per_second")),
    "answered": ("% of requests answered whole", _answered),
    "link": ("Mb/s over the fabric", _link),
}


def decisions_page(decisions: Sequence[Map], texts: Mapping[str, str]) -> dict[str, Any]:
    """-> {text: the page, lines: to print}. decisions: of role acceptance. texts: {path: text}."""
    kept = Results(texts)
    ordered = sorted(decisions, key=lambda one: (str(one["date"]), one["title"]))
    found = [(one, [judged(claim, kept) for claim in one["claims"]]) for one in ordered]
    tunes = [one for one in kept.history("tune") if one.keys() >= OF_TUNE]
    contents = [(one["title"], str(one["date"]), one["status"], _worst(claims)) for one, claims in found]
    parts = [HEADING, _table(("decision", "of", "status", "by measurement"), contents)]
    parts += [_decision(one, claims, tunes) for one, claims in found]
    if kept.unreadable:
        parts.append("## Left out\n\n" + "".join(f"- {escaped(path)}\n" for path in kept.unreadable))
    claims = [(one["title"], claim) for one, of in found for claim in of]
    counts = Counter(claim.verdict for _title, claim in claims)
    lines = ["decisions: %d, their claims: %s" % (len(found), ", ".join("%d %s" % (n, of) for of, n in counts.items()))]
    lines += [
        f"contradicted by measurement: {title}: {claim.claim['says']}"
        for title, claim in claims
        if claim.verdict == CONTRADICTED
    ]
    return {"text": "\n".join(parts), "lines": lines + [f"left out: {printable(path)}" for path in kept.unreadable]}


def judged(claim: Map, kept: Results) -> Judged:
    """By the newest results that have the figure, and differ in nothing else if two are compared."""
    if "drill" in claim:
        return _drilled(claim, kept)
    if claim["figure"] in RATES:
        return Judged(claim, *claimed(claim, kept))
    kinds = [claim[side] for side in ("of", "against") if side in claim]
    words = [", ".join(f"{name} {wanted}" for name, wanted in kind.items()) for kind in kinds]
    newest = [one for one in reversed(kept.history("benchmark")) if one.keys() >= NEEDED]
    found = [[one for one in newest if _is_of(one, kind) and figures(claim, one)] for kind in kinds]
    if not all(found):
        missing = " or ".join(text for text, some in zip(words, found, strict=True) if not some)
        known = [(text, some[0]) for text, some in zip(words, found, strict=True) if some]
        return Judged(claim, UNKNOWN, f"no {FIGURES[claim['figure']][0]} of {missing} is kept yet", known)
    names = [name for name in {**kinds[0], **kinds[-1]} if kinds[0].get(name) != kinds[-1].get(name)]
    least = "at_least" in claim
    limit, verb = claim["at_least" if least else "at_most"], "least" if least else "most"
    for some in itertools.product(*found):
        values = _values([figures(claim, one) for one in some])
        if values and all(_conditions(one, names) == _conditions(some[0], names) for one in some):
            # The figure that is farthest on the wrong side decides.
            seen = min(values) if least else max(values)
            verdict = CONFIRMED if (seen >= limit if least else seen <= limit) else CONTRADICTED
            reason = f"{seen:.2f} measured, at {verb} {limit:g} claimed"
            return Judged(claim, verdict, reason, list(zip(words, some, strict=True)))
    return Judged(
        claim,
        UNKNOWN,
        f"no two results of {' and '.join(words)} are alike in all else",
        [(text, some[0]) for text, some in zip(words, found, strict=True)],
    )


def figures(claim: Map, result: Map) -> dict[tuple[str, str], float]:
    """{(cell in words, digest of its prompt): figure}, without cells in which the server also served others."""
    found = {}
    for cell in result["cells"]:
        at_a_time = "one" if cell["concurrency"] == 1 else "several"
        seen = FIGURES[claim["figure"]][1](cell)
        if seen is not None and not cell["others"] and claim.get("at_a_time", at_a_time) == at_a_time:
            found[(where(cell), str(result["settings"]["prompts"].get(cell["prompt"])))] = seen
    return found


def _values(sides: Sequence[Mapping[tuple[str, str], float]]) -> list[float]:
    """The figures of one side, or their ratios to the other."""
    if len(sides) == 1:
        return list(sides[0].values())
    return [seen / sides[1][key] for key, seen in sides[0].items() if sides[1].get(key)]


def _conditions(result: Map, names: Sequence[str]) -> dict[str, Any]:
    """The conditions that two results must share, without those that the settings `names` change."""
    flags = "|".join(flag for name in names for flag in (FLAGS.get(name, ""), *FOLLOWS.get(name, ())) if flag)
    args = "".join(f"\0{one}" for one in result["fingerprint"].get("args") or [])
    return {
        **{name: result["fingerprint"].get(name) for name in ("build", "nodes", "link")},
        **{name: result[name] for name in ("model", "quant", "asked_from") if name not in names},
        **{name: result["settings"].get(name) for name in SETTINGS},
        "args": re.sub(f"\0(?:{flags})\0[^\0]*", "", args) if flags else args,
    }


def _is_of(result: Map, kind: Map) -> bool:
    machines = (result["fingerprint"].get("nodes") or {}).values()
    cards = [str(card) for node in machines for card in node.get("cards") or []]
    return all(
        any(str(wanted) in card for card in cards) if name == "cards" else _setting(result, name) == str(wanted)
        for name, wanted in kind.items()
    )


def _setting(result: Map, name: str) -> str | None:
    """The value of a setting, None without a command line."""
    args = result["fingerprint"].get("args") or []
    if name in ("model", "quant"):
        return str(result[name])
    if not args:
        return None
    found = ([OWN.get(name)] + [word for flag, word in itertools.pairwise(args) if flag == FLAGS[name]])[-1]
    # Every build turns it on by itself if a quantized cache needs it.
    if (name, found) == ("flash_attn", "auto") and _setting(result, "cache_type_v") not in PLAIN_CACHE_TYPES:
        return "on"
    return None if found is None else str(found)


def _drilled(claim: Map, kept: Results) -> Judged:
    """By the newest drill of its name on any service."""
    found = [
        (float(one.get("broken_at") or 0), str(report.get("service")), one)
        for report in kept.history("drill")
        for one in report.get("drills") or []
        if one.get("drill") == claim["drill"] and one.get("result") in ("recovered", "failed")
    ]
    if not found:
        return Judged(claim, UNKNOWN, f"no drill {claim['drill']} is kept yet")
    at, service, one = max(found, key=lambda each: each[0])
    total = value(one, "phases.total")
    words = f"{service}: {one['result']}"
    words += f", the next answer {total:.1f} s after the break" if total is not None else ""
    words += time.strftime(", %Y-%m-%d %H:%M UTC", time.gmtime(at)) if at else ""
    return Judged(claim, CONFIRMED if one["result"] == "recovered" else CONTRADICTED, words)


def escaped(text: Any) -> str:
    """Untrusted text in a line or a cell of a table, without any Markdown, HTML or expression."""
    line = re.sub(r"([\\`*\[\]<>|{}~&#!])", r"\\\1", printable(" ".join(str(text).split()), None))
    # Within a word it means nothing, and most names have one.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", line)


def _worst(claims: Sequence[Judged]) -> str:
    verdicts = [one.verdict for one in claims]
    return _flag(
        next((one for one in (CONTRADICTED, UNKNOWN, UNDECIDED, CONFIRMED) if one in verdicts), "reasons only")
    )


def _flag(verdict: str) -> str:
    return f"**{verdict.upper()}**" if verdict == CONTRADICTED else verdict


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [head, ["---"] * len(head), *rows])


def _tuned(alternative: Map, tunes: Sequence[Map]) -> str:
    """How much faster an alternative was than what is deployed, by the latest tune of each service and goal."""
    newest = {(one["service"], one["goal"]): one for one in tunes if "tune" in alternative}
    found = [
        f"{one['service']}, {one['measured_at'][:10]}: {_ratio(each)} the tokens/s (goal {one['goal']}) of "
        + ", ".join(f"{key} {one['deployed'].get(key) or 'as deployed'}" for key in each["changes"])
        for _key, one in sorted(newest.items())
        for each in one["candidates"]
        if each["changes"] == alternative["tune"]
    ]
    return "".join(f"  - {escaped(line)}\n" for line in found)


def _ratio(each: Map) -> str:
    bounds = "" if each.get("low") is None else f" ({each['low']:.2f} to {each['high']:.2f})"
    return f"{each['ratio']:.2f} times{bounds}"


def _decision(one: Map, claims: Sequence[Judged], tunes: Sequence[Map]) -> str:
    alternatives = "".join(
        f"- {each['what']}: {each['why'].strip()}\n{_tuned(each, tunes)}" for each in one["alternatives"]
    )
    parts = [f"## {one['title']}\n", f"{one['date']}, {one['status']}.\n", one["decision"].strip() + "\n"]
    parts += ["Instead of:\n\n" + alternatives]
    for claim in claims:
        parts += [f"### {claim.claim['says']}\n", f"{_flag(claim.verdict)}: {escaped(claim.reason)}.\n"]
        rows = [row for words, result in claim.results for row in _rows(claim.claim, words, result)]
        parts += [_table(COLUMNS, rows)] if rows else []
    return "\n".join(parts)


def _rows(claim: Map, words: str, result: Map) -> list[list[str]]:
    """A row for each figure of a result, with its conditions."""
    build = result["fingerprint"].get("build") or {}
    machines = {
        node: ", ".join(machine.get("cards") or [str(machine.get("cpu"))])
        for node, machine in (result["fingerprint"].get("nodes") or {}).items()
    }
    about = [
        result["measured_at"],
        label_of(result),
        f"{result['model']} {result['quant']}",
        f"{build.get('release')}, commit {str(build.get('commit'))[:9]}" if build else "not known",
        "; ".join(f"{node}: {cards}" for node, cards in machines.items()) or "not known",
    ]
    unit = FIGURES[claim["figure"]][0]
    rows = [[words, cell, f"{seen:.1f} {unit}", *about] for (cell, _text), seen in figures(claim, result).items()]
    return [[escaped(cell) for cell in row] for row in rows]
