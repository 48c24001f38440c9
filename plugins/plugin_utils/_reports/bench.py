# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept and printed of a benchmark: its cells, what the nodes did meanwhile, and what the figures depend on.
Private to the collection."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._llama.args import told
from ...module_utils._plan.full_prompt import record
from .failures import failure_reason
from .results import FORMAT, files_of

Map = Mapping[str, Any]
# Columns of the CSV file, each a path into a cell.
COLUMNS = (
    *("prompt", "depth", "concurrency", "rate", "others", "figures.requests", "figures.errors", "figures.seconds"),
    *("figures.prompt_tokens", "figures.generated_tokens", "figures.tokens_per_second", "figures.requests_per_second"),
    *(f"figures.{name}.{part}" for name in ("request_tokens_per_second",) for part in ("p50", "p90")),
    *(
        f"figures.{name}.{part}"
        for name in ("queue_seconds", "time_to_first_token", "inter_token_latency", "end_to_end")
        for part in ("p50", "p90", "p95", "p99")
    ),
    *("figures.server.prompt_tokens_per_second.p50", "figures.server.tokens_per_second.p50"),
)


def bench_heads(heads: Sequence[Map], published: Map | None = None) -> dict[str, list[Any]]:
    """-> {heads: those to ask, a router once for each of its models; left_out: a sentence for each that is not}

    published: `services` of gateway_config(), where the gateway is asked instead of the heads: by the name of each
    model, and once for all replicas of a service.
    """
    found: list[Map] = []
    left_out = []
    for head in heads if published is None else _behind(heads, published):
        label = head.get("label") or head["service"]
        of_models = [
            dict(head, model=one["model"], quant=one["quant"], args=one["args"], label=f"{label}.{one['model']}")
            for one in head.get("models") or []
        ]
        for one in of_models or [dict(head, label=label)]:
            if told(one.get("args") or []).embeddings:
                left_out.append(f"{one['label']}: not measured, it generates nothing")
            elif one["model"] not in one.get("published", [one["model"]]):
                left_out.append(f"{one['label']}: not measured, {one['model']} at the gateway is another service")
            else:
                found.append(one)
    return {"heads": found, "left_out": left_out}


def _behind(heads: Sequence[Map], published: Map) -> list[Map]:
    """Of each service the head of its first replica, with the nodes of all of them and its published models. No
    service has such a label: what is measured is never its latest result."""
    found: list[Map] = []
    for head in heads:
        service = published[head["service"]]
        replicas = [one["node"] for one in service["endpoints"]]
        if head["node"] == replicas[0]:
            nodes = list(dict.fromkeys([*replicas, *head["workers"]]))
            names = [model["name"] for model in service["models"]]
            found.append(dict(head, label="gateway." + head["service"], nodes=nodes, published=names))
    return found


def benchmark(
    head: Map,
    cells: Sequence[Map],
    watches: Map,
    settings: Map,
    measured_at: str,
    plan: Sequence[Map] = (),
    slot: int = 0,
) -> dict[str, Any]:
    """-> {result, files, lines, prompt} of one service: what is kept as JSON and as CSV, what an operator reads, and
    what its head keeps of how fast it reads, nothing where no prompt was long enough.

    head: an entry of head_instances, of a router with the model that was asked. cells: of llama_bench. watches: {node:
    result of llama_bench_watch}. settings: how it was asked, with `from` and `prompts`, their texts by name.
    measured_at: ISO 8601, UTC. plan: the service's rows of memory_plan(). slot: its tokens.
    """
    label = str(head.get("label") or head["service"]).replace(" on ", ".")
    # Older Ansible hands out numbers of templates as text.
    numbers = {name: int(settings[name]) for name in ("requests", "max_tokens")}
    asked = dict(settings, prompts={name: _short(text) for name, text in settings["prompts"].items()}, **numbers)
    result = {
        "format": FORMAT,
        "kind": "benchmark",
        "service": head["service"],
        "label": label,
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
    files = files_of("benchmarks", result)
    return {
        "result": result,
        "files": {**files, next(iter(files)).replace(".json", ".csv"): _csv(result)},
        "lines": lines(result),
        "prompt": _prompt(head, cells, measured_at, plan, slot),
    }


def _prompt(head: Map, cells: Sequence[Map], measured_at: str, plan: Sequence[Map], slot: int) -> dict[str, Any]:
    """As full_prompt.record(), of the longest prompt that was read by itself and filled half of a slot at least: a
    short one is read faster, each token."""
    own = [one for one in plan if one.get("node") == head.get("node") and one.get("model") == head["model"]]
    found: dict[str, Any] = {}
    for cell in cells:
        figures = cell["figures"]
        rate = value(figures, "server.prompt_tokens_per_second.p50")
        answered = figures["requests"] - figures["errors"]
        if cell["concurrency"] != 1 or not rate or not answered or not figures["prompt_tokens"]:
            continue
        tokens = figures["prompt_tokens"] // answered
        if int(slot) and 2 * tokens >= int(slot) and tokens > found.get("tokens", 0) and own:
            long = {"tokens": tokens, "seconds": round(tokens / rate, 1), "measured_at": measured_at}
            found = record(long, own[0].get("inputs") or [])
    return found


def fingerprint(head: Map, watches: Map, plan: Sequence[Map]) -> dict[str, Any]:
    """What figures depend on, None for what is not known."""
    machines = {node: watch.get("machine") or {} for node, watch in watches.items()}
    own = machines.get(head.get("node", ""), {})
    link = own.get("link") or {}
    return {
        "build": own.get("build"),
        "args": list(head.get("args") or []),
        "plan": _short(json.dumps(plan, sort_keys=True)) if plan else None,
        "nodes": {
            node: {name: machine.get(name) for name in ("kernel", "driver", "cards", "cpu", "cores")}
            for node, machine in machines.items()
        },
        "link": link if head.get("shares") else None,
    }


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _nodes(cell: Map, watches: Map) -> dict[str, Any]:
    """What each node did while a cell was measured. Its samples carry the node's own clock."""
    tokens = cell["figures"].get("generated_tokens")
    found: dict[str, Any] = {}
    for node, watch in watches.items():
        samples = watch.get("samples") or []
        during = [one for one in samples if cell["began"] <= one["at"] <= cell["ended"] + 1]
        before = [one for one in samples if one["at"] < cell["began"]]
        if not during:
            found[node] = None
            continue
        received, sent = (_passed(before[-1:] + during, name) for name in ("rx_bytes", "tx_bytes"))
        busy = [one["cpu"] for one in during if one["cpu"] is not None]
        found[node] = {
            "cpu": round(sum(busy) / len(busy), 4) if busy else None,
            "cpu_peak": max(busy, default=None),
            "fabric_rx_bytes": received,
            "fabric_tx_bytes": sent,
            "fabric_bytes_per_token": round((received + sent) / tokens)
            if tokens and received is not None and sent is not None
            else None,
            "cards": _cards(before, during),
        }
    return found


def _unwatched(watch: Map) -> str:
    """Why a node was not watched, whose figures are missing then: they are no reason to lose those of requests."""
    return failure_reason(watch) if watch.get("msg") else "the watching has not ended"


def _passed(samples: Sequence[Map], name: str) -> int | None:
    counts = [one[name] for one in samples if one.get(name) is not None]
    return counts[-1] - counts[0] if len(counts) > 1 and counts[-1] >= counts[0] else None


def _cards(before: Sequence[Map], during: Sequence[Map]) -> list[dict[str, Any]]:
    """Of each card the mean of its utilization and power, and its memory at rest and at most."""
    rest = {card["index"]: card["memory_mib"] for one in before[-1:] for card in one["cards"]}
    seen: dict[int, list[Map]] = {}
    for one in during:
        for card in one["cards"]:
            seen.setdefault(card["index"], []).append(card)
    return [
        {
            "index": index,
            "utilization": _mean(card["utilization"] for card in cards),
            "memory_rest_mib": rest.get(index),
            "memory_peak_mib": max(
                (card["memory_mib"] for card in cards if card["memory_mib"] is not None), default=None
            ),
            "power_w": _mean(card["power_w"] for card in cards),
        }
        for index, cards in sorted(seen.items())
    ]


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if known else None


def value(cell: Map, path: str) -> Any:
    """What lies at a path such as figures.time_to_first_token.p50; None where a part of it is missing."""
    found: Any = cell
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _csv(result: Map) -> str:
    """A row a cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["service", "model", "quant", "measured_at", *COLUMNS])
    for cell in result["cells"]:
        who = [result[name] for name in ("service", "model", "quant", "measured_at")]
        writer.writerow(who + [value(cell, path) for path in COLUMNS])
    return out.getvalue()


def lines(result: Map) -> list[str]:
    """A small table."""
    found = [
        f"{result['label']} ({result['model']} {result['quant']}), asked from {result['asked_from']}",
        "%-8s %7s %9s %9s %11s %13s %10s %7s"
        % ("prompt", "depth", "at a time", "tokens/s", "per request", "first token", "p95", "errors"),
    ]
    for cell in result["cells"]:
        figures = cell["figures"]
        many = f"{cell['rate']:g}/s" if cell["rate"] else str(cell["concurrency"])
        row = [
            cell["prompt"][:8],
            cell["depth"],
            many,
            _number(figures["tokens_per_second"], "%.1f"),
            _number(value(figures, "request_tokens_per_second.p50"), "%.1f"),
            _number(value(figures, "time_to_first_token.p50"), "%.3f s"),
            _number(value(figures, "time_to_first_token.p95"), "%.3f s"),
            "%d/%d" % (figures["errors"], figures["requests"]) if figures["errors"] else "0",
        ]
        found.append("%-8s %7s %9s %9s %11s %13s %10s %7s" % tuple(row))
    found += _remarks(result)
    return found


def _number(number: float | None, form: str) -> str:
    return "-" if number is None else form % number


def _remarks(result: Map) -> list[str]:
    """What makes figures worth less than they look, and why requests failed."""
    cells = result["cells"]
    found = []
    others = sum(cell["others"] or 0 for cell in cells)
    if others:
        found.append("disturbed: the server generated %d tokens for others meanwhile" % others)
    if any(cell["others"] is None for cell in cells):
        found.append("whether others were served meanwhile is not known: the endpoint tells no counters")
    if any(not cell["depth_counted"] for cell in cells):
        found.append("depths are estimated: the endpoint counts no tokens")
    found += ["%s was not watched: %s" % one for one in sorted(result["unwatched"].items())]
    reasons: dict[str, int] = {}
    for cell in cells:
        for reason, count in cell["figures"]["reasons"].items():
            reasons[reason] = reasons.get(reason, 0) + count
    return found + ["%d x %s" % (count, reason) for reason, count in sorted(reasons.items())]
