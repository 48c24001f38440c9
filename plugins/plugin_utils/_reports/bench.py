# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a benchmark: its cells, the samples of the nodes, and the facts that figures depend on. Private to the
collection."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .bench_compare import comparison
from .failures import failure_reason
from .results import FORMAT, files_of, label_of, value
from .table import table

Map = Mapping[str, Any]
COLUMNS = ("prompt", "depth", "at a time", "tokens/s", "per request", "first token", "p95", "errors")


def bench_heads(heads: Sequence[Map]) -> dict[str, list[Any]]:
    """-> {heads: those to measure, a router once for each of its models; left_out: a sentence for each other one}"""
    found: list[Map] = []
    left_out = []
    for head in heads:
        label = head.get("label") or head["service"]
        of_models = [
            {
                **head,
                **{key: one[key] for key in ("model", "quant", "args", "serves")},
                "label": f"{label}.{one['model']}",
            }
            for one in head.get("models") or []
        ]
        for one in of_models or [dict(head, label=label)]:
            if one["serves"] != "text":
                left_out.append(f"{one['label']}: not measured, it generates nothing")
            else:
                found.append(one)
    return {"heads": found, "left_out": left_out}


def bench_report(
    head: Map,
    cells: Sequence[Map],
    watches: Map,
    settings: Map,
    measured_at: str,
    plan: Sequence[Map] = (),
    baseline: Sequence[Map] = (),
    loss: float = 0.0,
) -> dict[str, Any]:
    """-> {result, files: to keep, lines: to print, refused: a sentence for each figure that is worse than
    the baseline's} of one service.

    head: an entry of head_instances, of a router with the model that was measured. cells: of llama_bench. watches:
    {node: result of llama_bench_watch}. settings: of the requests, with `from` and `prompts`, their texts by name.
    measured_at: ISO 8601, UTC. plan: the service's rows of memory_plan(). baseline: the result to
    compare with, if any; loss: see comparison().
    """
    # ansible-core 2.18 returns numbers of templates as text.
    numbers = {name: int(settings[name]) for name in ("requests", "max_tokens")}
    asked = dict(settings, prompts={name: _short(text) for name, text in settings["prompts"].items()}, **numbers)
    result = {
        "format": FORMAT,
        "kind": "benchmark",
        "service": head["service"],
        "label": label_of(head),
        "endpoint": settings.get("endpoint") or head["endpoint"],
        "model": head["model"],
        "quant": head["quant"],
        "measured_at": measured_at,
        "asked_from": settings["from"],
        "settings": {name: value for name, value in asked.items() if name not in ("from", "endpoint")},
        "fingerprint": fingerprint(head, watches, plan),
        "unwatched": {node: _unwatched(watch) for node, watch in watches.items() if "samples" not in watch},
        "cells": [dict(cell, nodes=_nodes(cell, watches)) for cell in cells],
    }
    compared, refused = comparison(result, baseline[0], float(loss)) if baseline else ([], [])
    files = files_of("benchmarks", result)
    return {"result": result, "files": files, "lines": lines(result) + compared, "refused": refused}


def fingerprint(head: Map, watches: Map, plan: Sequence[Map]) -> dict[str, Any]:
    """The facts that figures depend on, None for an unknown one."""
    machines = {node: watch.get("machine") or {} for node, watch in watches.items()}
    own = machines.get(head.get("node", ""), {})
    return {
        "build": own.get("build"),
        "args": list(head.get("args") or []),
        "plan": _short(json.dumps(plan, sort_keys=True)) if plan else None,
        "nodes": {
            node: {name: machine.get(name) for name in ("kernel", "driver", "cards", "cpu", "cores")}
            for node, machine in machines.items()
        },
        "link": own.get("link") or {} if head.get("shares") else None,
    }


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _nodes(cell: Map, watches: Map) -> dict[str, Any]:
    """{node: means of its samples during a cell, None without samples}. Samples carry the node's own clock."""
    found: dict[str, Any] = {}
    for node, watch in watches.items():
        samples = watch.get("samples") or []
        during = [one for one in samples if cell["began"] <= one["at"] <= cell["ended"] + 1]
        before = [one for one in samples if one["at"] < cell["began"]]
        received, sent = (_passed(before[-1:] + during, name) for name in ("rx_bytes", "tx_bytes"))
        found[node] = {
            "cpu": _mean([one["cpu"] for one in during], 4),
            "fabric_rx_bytes": received,
            "fabric_tx_bytes": sent,
            "cards": _cards(during),
        }
        if not during:
            found[node] = None
    return found


def _unwatched(watch: Map) -> str:
    """The reason for missing samples of a node."""
    return failure_reason(watch) if watch.get("msg") else "the watching has not ended"


def _passed(samples: Sequence[Map], name: str) -> int | None:
    counts = [one[name] for one in samples if one.get(name) is not None]
    return counts[-1] - counts[0] if len(counts) > 1 and counts[-1] >= counts[0] else None


def _cards(during: Sequence[Map]) -> list[dict[str, Any]]:
    seen: dict[int | str, list[Map]] = {}
    for card in (card for one in during for card in one["cards"]):
        seen.setdefault(card["index"], []).append(card)
    return [
        {
            "index": index,
            "utilization": _mean([card["utilization"] for card in cards], 1),
            "memory_peak_mib": max(
                (card["memory_mib"] for card in cards if card["memory_mib"] is not None), default=None
            ),
        }
        # Numbers of nvidia-smi, then PCI slots of other vendors' cards.
        for index, cards in sorted(seen.items(), key=lambda one: (isinstance(one[0], str), one[0]))
    ]


def _mean(values: Sequence[float | None], digits: int) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), digits) if known else None


def lines(result: Map) -> list[str]:
    rows = []
    for cell in result["cells"]:
        figures = cell["figures"]
        errors = "%d/%d" % (figures["errors"], figures["requests"]) if figures["errors"] else "0"
        rate, own = figures["tokens_per_second"], value(figures, "request_tokens_per_second.p50")
        first = [value(figures, f"time_to_first_token.{part}") for part in ("p50", "p95")]
        numbers = [None if one is None else f"{one:.1f}" for one in (rate, own)]
        numbers += [None if one is None else f"{one:.3f} s" for one in first]
        rows.append([cell["prompt"], cell["depth"], cell["concurrency"], *numbers, errors])
    title = f"{result['label']} ({result['model']} {result['quant']}), asked from {result['asked_from']}"
    return [title, *table(COLUMNS, rows), *_remarks(result)]


def _remarks(result: Map) -> list[str]:
    """Disturbances of the measurement, and the errors of requests."""
    cells = result["cells"]
    others = sum(cell["others"] or 0 for cell in cells)
    rows = (
        (others, "disturbed: the server generated %d tokens for others meanwhile" % others),
        (
            any(cell["others"] is None for cell in cells),
            "whether others were served meanwhile is not known: the endpoint reports no counters",
        ),
        (
            any(not cell["depth_counted"] for cell in cells),
            "depths are estimated: the endpoint counts no tokens",
        ),
    )
    found = [text for applies, text in rows if applies]
    found += ["%s was not watched: %s" % one for one in sorted(result["unwatched"].items())]
    reasons: Counter[str] = Counter()
    for cell in cells:
        reasons.update(cell["figures"]["reasons"])
    return found + ["%d x %s" % (count, reason) for reason, count in sorted(reasons.items())]
