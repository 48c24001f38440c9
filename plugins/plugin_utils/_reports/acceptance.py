# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a service is accepted: what it answered, what its workers held and moved for it, and how far the plan was
off. Private to the collection."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._llama.api import DOCUMENTS
from ...module_utils._llama.args import told
from ...module_utils._plan.full_prompt import NOT_KNOWN, full_prompt, measured, record
from .results import FORMAT
from .table import context_cell, nodes_of, table

Map = Mapping[str, Any]
COLUMNS = (
    "service",
    "nodes",
    "layers",
    "tokens/s",
    "context",
    "plan",
    "wire",
    "endpoint",
    "conversation",
    "long prompt",
)
# More instances than a run that has changed nothing names one by one.
MANY = 10
# Of a conversation, what is said with its name, and what nobody needs to read in a table.
USUAL = ("none", "skipped: no tools", "skipped: no jinja")
PARTS = ("embedding", "reranking", "tools", "reasoning", "draft")


def acceptance(
    head: Map,
    host: str,
    health: Map,
    load: Map,
    prompt: str,
    max_tokens: int,
    plans: Sequence[Map] = (),
    cards: Map | None = None,
) -> dict[str, Any]:
    """-> {refused, report, files, row, lines, prompt} of a service: why it is not accepted, a sentence each; what is
    kept; what an operator reads of it, in a table and with -v; what its head keeps of a long prompt, nothing without
    one.

    head is an entry of head_instances, and host its node; health and load are the results of llama_health and
    llama_load_info for it; plans the entry of its service in memory_plan(); cards: {node: gpus of nvidia_smi_facts}
    while it is loaded. health has `measured_at`, and `long` and `kept` of full_prompt.record() and
    full_prompt.measured().
    """
    # Of a router each of its models has one.
    own = [plan for plan in plans if plan["node"] == host and plan["model"] == head["model"]]
    report = _report(head, health, load, prompt, max_tokens, own, cards or {})
    kept = record(health.get("long") or {}, own[0].get("inputs") or [] if own else [])
    label = str(head.get("label") or head["service"]).replace(" on ", ".")
    moment = health.get("measured_at")
    kept_report = {"format": FORMAT, "kind": "verify", "label": label, "measured_at": moment, **report}
    return {
        "refused": _refused(head, host, load),
        "report": report,
        "files": {f"{label}.json": json.dumps(kept_report, indent=4) + "\n"},
        "row": _row(head, host, health, load, report),
        "lines": _lines(report),
        "prompt": kept,
    }


def _row(head: Map, host: str, health: Map, load: Map, report: Map) -> dict[str, Any]:
    """{column of COLUMNS: text}"""
    own = sum(one["layers"] or 0 for one in load["devices"] if one["endpoint"] is None)
    rows = [row for row in report["plan"] if row["loaded_mib"]]
    loaded, planned = (sum(sum(row[of].values()) for row in rows) for of in ("loaded_mib", "planned_mib"))
    return {
        "nodes": nodes_of(head, host),
        # The log does not tell those of a head that computes on its main memory.
        "layers": ", ".join(map(str, [own, *(one["layers"] for one in report["workers"])]))
        if head["shares"]
        else "all",
        "tokens/s": report["state"] if report["answer"] is None else report["tokens_per_second"],
        "context": context_cell(health),
        "plan": "%.0f of %d MiB" % (loaded, planned) if rows else "",
        "endpoint": report["endpoint"],
        "conversation": ", ".join(_conversation(report, USUAL)),
        "long prompt": report["long_prompt"],
        "curl": report["curl"],
        "key": f"llama_api_keys.{head['service']}" if head.get("api_key_file") else "",
    }


def served_lines(shown: Mapping[str, Mapping[str, Any]], idle: bool, behind: bool) -> list[str]:
    """What serves, a row for each instance of a service. shown: {label: row}; idle: whether the run has changed nothing
    of it; behind: whether clients are sent to a gateway, and the ports of the heads are closed to them."""
    if idle and len(shown) > MANY:
        return [f"{len(shown)} instances answer: verify.yml shows each"]
    columns = [column for column in COLUMNS if column != "endpoint" or not behind]
    lines = table(columns, [[label if c == "service" else row.get(c) for c in columns] for label, row in shown.items()])
    first = next((row for row in shown.values() if row.get("curl")), None)
    if first and not behind and not idle:
        lines += [f"with LLAMA_API_KEY set to one of {first['key']}:"] if first["key"] else []
        lines.append(first["curl"])
    return lines if shown else []


def _full_prompt(health: Map, plans: Sequence[Map]) -> str | None:
    """How long a full prompt takes, by what was measured just now or before; None for what reads no long prompts."""
    if not plans or not plans[0].get("inputs") or not health.get("n_ctx"):
        return None
    new = record(health.get("long") or {}, plans[0]["inputs"])
    return full_prompt(health["n_ctx"], plans[0]["inputs"], measured(new or health.get("kept") or {})) or NOT_KNOWN


def _refused(head: Map, host: str, load: Map) -> list[str]:
    """A sentence for each worker that does not hold the layers that the plan gives it, or none at all."""
    found = []
    for share in head["shares"]:
        endpoint, planned = share["endpoint"], share["layers"]
        holds = sum(device["layers"] or 0 for device in load["devices"] if device["endpoint"] == endpoint)
        if not holds or holds != (planned or holds):
            reason = f" ({load['reason']})" if load["reason"] else ""
            worker = "llama_services.%s: worker %s holds %d layers of %s" % (
                head["service"],
                endpoint,
                holds,
                head["model"],
            )
            step = f"see journalctl -u {head['unit']} on {host}"
            found.append(f"{worker}, {planned or 'at least one'} needed{reason}: {step}")
    return found


def _report(
    head: Map,
    health: Map,
    load: Map,
    prompt: str,
    max_tokens: int,
    plans: Sequence[Map],
    cards: Map,
) -> dict[str, Any]:
    """What was asked and answered, how fast, what each worker held (MiB) and moved (bytes), and how far the plan was
    off."""
    moved = {worker["endpoint"]: worker for worker in health.get("workers") or []}
    workers = []
    for share in head["shares"]:
        node, endpoint = share["node"], share["endpoint"]
        devices = [device for device in load["devices"] if device["endpoint"] == endpoint]
        workers.append(
            {
                "node": node,
                "endpoint": endpoint,
                "layers": sum(device["layers"] or 0 for device in devices),
                "model_mib": round(sum(device["model_mib"] for device in devices), 2),
                "kv_mib": round(sum(device["kv_mib"] for device in devices), 2),
                "bytes_sent": moved.get(endpoint, {}).get("bytes_sent"),
                "bytes_received": moved.get(endpoint, {}).get("bytes_received"),
            }
        )
    rate = health.get("tokens_per_second")
    line = told(head.get("args") or [])
    embeds = line.embeddings
    asked = {"max_tokens": max_tokens, "temperature": 0, "messages": [{"role": "user", "content": prompt}]}
    alone = {"query": prompt, "documents": DOCUMENTS} if line.reranking else {"input": prompt}
    request = dict({"model": head["model"]}, **(alone if embeds else asked))
    path = "rerank" if line.reranking else "embeddings" if embeds else "chat/completions"
    # A single quote would end the shell's word; JSON can write it as an escape.
    body = json.dumps(request).replace("'", "\\u0027")
    # The key itself is nothing to print or keep.
    key = ' -H "Authorization: Bearer $LLAMA_API_KEY"' if head.get("api_key_file") else ""
    return {
        "service": head["service"],
        "endpoint": head["endpoint"],
        "model": head["model"],
        "quant": head["quant"],
        "state": health["state"],
        "tokens_per_second": None if rate is None else round(rate, 1),
        "context": context_of(health),
        "answer": health.get("answer"),
        "conversation": health.get("conversation"),
        "long_prompt": health.get("long_prompt") or None,
        # A router's models are sent no long prompt.
        "full_prompt": None if embeds or head.get("models") else _full_prompt(health, plans),
        "workers": workers,
        "plan": [row for plan in plans[:1] for row in _planned(head, load, plan, cards)],
        "curl": f"curl -sS {head['endpoint']}/{path}{key} -H 'Content-Type: application/json' -d '{body}'",
    }


def _planned(head: Map, load: Map, plan: Map, cards: Map) -> list[dict[str, Any]]:
    """What the plan said of each device, what llama.cpp's log says, and what the card itself says; error_percent: of
    the plan, against the log."""
    endpoints = {share["node"]: share["endpoint"] for share in head["shares"]}
    seen: dict[str, int] = {}
    rows = []
    for device in plan["devices"]:
        node = device["node"]
        beside = any(one["node"] == node and one["device"] != "main" for one in plan["devices"])
        places = _places(load["devices"], endpoints.get(node), device["device"], beside)
        number = seen[node] = seen.get(node, -1) + 1
        loaded = places if device["device"] == "main" else places[number : number + 1]
        planned = {kind: device[kind + "_mib"] for kind in ("weights", "kv", "compute")}
        keys = {"weights": "model_mib", "kv": "kv_mib", "compute": "compute_mib"}
        found = {kind: round(sum(place[key] for place in loaded), 2) for kind, key in keys.items()}
        total = sum(found.values())
        used = [gpu["memory_used_mib"] for gpu in cards.get(node, []) if f"GPU{gpu['index']}" == device["device"]]
        rows.append(
            {
                "node": node,
                "device": device["device"],
                "planned_mib": planned,
                "loaded_mib": found if total else None,
                "error_percent": round(100.0 * (sum(planned.values()) - total) / total, 2) if total else None,
                "total_mib": device["total_mib"],
                "card_mib": used[0] if used else None,
            }
        )
    return rows


def _places(devices: Iterable[Map], endpoint: str | None, name: str, beside: bool) -> list[Map]:
    """Where llama.cpp put what belongs to a planned device: the devices of a worker, or the head's own cards, or its
    main memory. beside: whether that lies beside cards, and has a row because it keeps experts."""
    if endpoint:
        return [one for one in devices if one["endpoint"] == endpoint]
    own = [one for one in devices if one["endpoint"] is None]
    if name == "main" and not beside:
        return own
    return [one for one in own if (name != "main") == bool(re.match(r"^[A-Za-z]+\d+\Z", one["device"]))]


def _lines(report: Map) -> list[str]:
    """A report as lines to print with -v, the endpoint and what it is worth last."""
    lines = [
        "worker %(node)s (%(endpoint)s): %(layers)d layers, %(model_mib).1f MiB of weights, %(kv_mib).1f MiB of KV "
        "cache" % worker + _moved(worker, report["answer"])
        for worker in report["workers"]
    ]
    lines.extend(_plan_line(row) for row in report["plan"])
    lines.append(f"endpoint: {', '.join((part for part in (report['endpoint'], report['context']) if part))}")
    if report["answer"] is None:
        lines.append(f"tokens/s: not measured, the service is {report['state']} with other requests and makes progress")
    elif report["tokens_per_second"] is not None:
        lines.append(f"tokens/s: {report['tokens_per_second']}")
    named = {
        "conversation": ", ".join(_conversation(report)),
        "long prompt": report["long_prompt"],
        "": report["full_prompt"],
        "answer": " ".join((report["answer"] or "").split()),
    }
    return lines + [f"{name}: {text}" if name else text for name, text in named.items() if text]


def _conversation(report: Map, usual: Sequence[str] = ()) -> list[str]:
    """The parts that llama_health reports, but those that are as usual."""
    said = report["conversation"] or {}
    named = {"not_held": "not held: ", "question": "", **{name: f"{name}: " for name in PARTS}}
    order = ("question", *PARTS, "not_held")
    return [f"{named[name]}{said[name]}" for name in order if said.get(name) and said[name] not in usual]


def context_of(health: Map) -> str | None:
    """What one request may use, as llama-server tells it."""
    if not health.get("n_ctx"):
        return None
    return "%d tokens a slot%s" % (
        health["n_ctx"],
        " (%d slots)" % health["slots"] if (health.get("slots") or 1) > 1 else "",
    )


def _moved(worker: Map, answer: str | None) -> str:
    """What a worker moved for the answer; a service that was busy with others gave none."""
    if answer is None:
        return ""
    if worker["bytes_sent"] is None:
        return ", bytes for the answer unknown: ss of the head's node does not count them"
    return ", %(bytes_sent)d bytes out and %(bytes_received)d back for the answer" % worker


def _plan_line(row: Map) -> str:
    place = f"plan {row['node']} {row['device']}: "
    if row["loaded_mib"] is None:
        return (
            place
            + "%(weights)d + %(kv)d + %(compute)d MiB planned, the log does not tell what was loaded"
            % row["planned_mib"]
        )
    card = (
        ""
        if row["card_mib"] is None
        else ", the card has %d MiB in use of %d planned with the margin" % (row["card_mib"], row["total_mib"])
    )
    return (
        place
        + "%(weights)d + %(kv)d + %(compute)d MiB planned" % row["planned_mib"]
        + ", %(weights).1f + %(kv).1f + %(compute).1f loaded (weights, KV cache, compute)" % row["loaded_mib"]
        + f", off by {row['error_percent']:+.2f} %{card}"
    )
