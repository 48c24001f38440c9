# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of decisions, in Markdown: what was decided, instead of what, and what this cluster's own figures say of it.
Private to the collection.

It has no date of its own: the same decisions and results are the same page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._text import printable
from .decisions import CONTRADICTED, FIGURES, OPEN, UNKNOWN, Judged, Row, judged, results_of

Map = Mapping[str, Any]
HEADING = """\
# Architecture decisions

<!-- Written by the collection thefermisea.llama_cluster: playbooks/decisions.yml writes it anew. -->

What the collection's reference deployment was decided to be, instead of what, and what the benchmarks and drills of
this very cluster say of it. A claim is *confirmed* or *contradicted* by figures beyond what they scatter (two standard
errors), *not decided* within that, and *not measured here* while no figure of this cluster is about it. Only results
that differ in nothing else are compared.
"""
LIMITS = (("at_least", "at least"), ("at_most", "at most"))
DEPENDS = (
    ("measured", lambda one: one["measured_at"]),
    ("service", lambda one: one["label"]),
    ("model", lambda one: f"{one['model']} {one['quant']}"),
    ("build", lambda one: _build(one["fingerprint"].get("build") or {})),
    ("nodes", lambda one: _each(one, "cpu", "cores")),
    ("cards", lambda one: _each(one, "cards")),
    ("driver", lambda one: _each(one, "driver")),
    ("kernel", lambda one: _each(one, "kernel")),
    ("link", lambda one: _link(one["fingerprint"].get("link") or {})),
    ("plan", lambda one: one["fingerprint"].get("plan")),
    ("arguments", lambda one: " ".join(one["fingerprint"].get("args") or [])),
    ("asked from", lambda one: one["asked_from"]),
)


def decisions_page(
    decisions: Sequence[Map], benchmarks: Mapping[str, str], drills: Mapping[str, str]
) -> dict[str, Any]:
    """-> {text: the page, lines: what an operator reads of it}

    decisions: those of role acceptance. benchmarks, drills: {name: text} of the files that were kept of them.
    """
    results, odd = results_of(benchmarks)
    reports, strange = _reports(drills)
    found = [
        (one, [judged(claim, results, reports) for claim in one["claims"]])
        for one in sorted(decisions, key=lambda one: (str(one["date"]), one["title"]))
    ]
    parts = [HEADING, _contents(found)] + [_decision(one, claims) for one, claims in found]
    if odd + strange:
        left_out = "".join(f"- {escaped(one)}\n" for one in odd + strange)
        parts.append("## Left out\n\nFiles that could not be read as what they should be:\n\n" + left_out)
    return {"text": "\n".join(parts), "lines": _lines(found, odd + strange)}


def _reports(files: Mapping[str, str]) -> tuple[list[Map], list[str]]:
    found, odd = [], []
    for name, text in sorted(files.items()):
        try:
            report = json.loads(text)
            [one["drill"] for one in report["drills"]]
            found.append(report)
        except (KeyError, TypeError, ValueError):
            odd.append(f"{name}: no report of drills")
    return found, odd


def escaped(text: Any) -> str:
    """Words of somebody else, in a line or a cell of a table: they are no Markdown, no HTML and no expression."""
    line = printable(" ".join(str(text).split()), None)
    line = re.sub(r"([\\`*\[\]<>|{}~&#!])", r"\\\1", line)
    # Within a word it means nothing, and most names have one.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", line)


def _worst(claims: Sequence[Judged]) -> str:
    """The verdict of a decision: the one to look at first; of one that rests on no figure, that."""
    verdicts = [one.verdict for one in claims]
    order = (CONTRADICTED, OPEN, UNKNOWN)
    return next((one for one in order if one in verdicts), verdicts[0] if verdicts else "reasons only")


def _flag(verdict: str) -> str:
    return f"**{verdict.upper()}**" if verdict == CONTRADICTED else verdict


def _contents(found: Sequence[tuple[Map, Sequence[Judged]]]) -> str:
    rows = [(one["title"], str(one["date"]), one["status"], _flag(_worst(claims))) for one, claims in found]
    return _table(("decision", "of", "status", "by measurement"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _decision(one: Map, claims: Sequence[Judged]) -> str:
    parts = [f"## {one['title']}\n", f"{one['date']}, {one['status']}.\n", one["decision"].strip() + "\n"]
    parts.append(
        "Instead of:\n\n" + "".join(f"- {each['what']}: {each['why'].strip()}\n" for each in one["alternatives"])
    )
    return "\n".join(parts + [_claim(claim) for claim in claims])


def _claim(one: Judged) -> str:
    verdict = f"{_flag(one.verdict)}: {escaped(one.reason)}" if one.reason else _flag(one.verdict)
    parts = [f"### {one.claim['says']}\n", verdict + ".\n"]
    if "figure" in one.claim:
        parts.append(_figures(one))
    measured = [(side.words, side.result) for side in one.sides if side.result]
    if measured and one.rows:
        parts.append(_results(measured))
    return "\n".join(parts)


def _figures(one: Judged) -> str:
    figure = FIGURES[one.claim["figure"]]
    limit = next(f"{words} {one.claim[name]:g}" for name, words in LIMITS if name in one.claim)
    sides = [escaped(side.words) for side in one.sides]
    cells = [
        [escaped(row.where)] + [_seen(seen, figure.form) for seen in (row.of, row.against)[: len(sides)]]
        for row in one.rows or [Row("any prompt")]
    ]
    if len(sides) == 1:
        return _table((figure.words, f"{sides[0]} (claimed: {limit})"), cells)
    ratios = ["-" if row.seen is None else f"{row.seen:.2f}, noise {row.noise:.2f}" for row in one.rows or [Row("")]]
    return _table(
        (figure.words, *sides, f"ratio (claimed: {limit})"),
        [[*some, ratio] for some, ratio in zip(cells, ratios, strict=True)],
    )


def _seen(seen: float | None, form: str) -> str:
    return "not measured yet" if seen is None else form % seen


def _results(measured: Sequence[tuple[str, Map]]) -> str:
    """What their figures depend on, beside each other."""
    head = ["result", *(escaped(words) for words, _result in measured)]
    rows = [[name, *(escaped(read(result) or "not known") for _words, result in measured)] for name, read in DEPENDS]
    return _table(head, rows)


def _build(build: Map) -> str:
    return f"{build.get('release')}, commit {str(build.get('commit'))[:9]}" if build else ""


def _link(link: Map) -> str:
    known = [link.get("interface"), link.get("link_layer")]
    rate = f"{link['rate_gbps']:g} Gb/s" if link.get("rate_gbps") else ""
    return ", ".join(str(one) for one in [*known, rate] if one)


def _each(result: Map, *names: str) -> str:
    """Of all nodes, once where they are alike."""
    nodes = result["fingerprint"].get("nodes") or {}
    told: dict[str, list[str]] = {}
    for node, machine in nodes.items():
        parts = [machine.get(name) for name in names]
        words = [", ".join(one) if isinstance(one, list) else str(one) for one in parts if one]
        told.setdefault(" x ".join(words) or "not known", []).append(node)
    return "; ".join(f"{', '.join(of)}: {words}" for words, of in told.items())


def _lines(found: Sequence[tuple[Map, Sequence[Judged]]], odd: Sequence[str]) -> list[str]:
    claims = [(one, claim) for one, of in found for claim in of]
    counts: dict[str, int] = {}
    for _one, claim in claims:
        counts[claim.verdict] = counts.get(claim.verdict, 0) + 1
    lines = ["decisions: %d, their claims: %s" % (len(found), ", ".join("%d %s" % (n, of) for of, n in counts.items()))]
    lines += [
        f"contradicted by measurement: {one['title']}: {claim.claim['says']}"
        for one, claim in claims
        if claim.verdict == CONTRADICTED
    ]
    return lines + [f"left out: {printable(one)}" for one in odd]
