# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acceptance of a service: its answer, the layers and bytes of its workers, and the error of the plan. Private to
the collection."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._llama.api import DOCUMENTS
from ...module_utils._node import drm
from ...module_utils._plan.full_prompt import record
from .results import FORMAT, label_of
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
# A run that changed nothing names at most so many instances.
MANY = 10
# Results of a conversation that the table leaves out.
USUAL = ("none", "skipped: no tools", "skipped: no jinja")
# A card as llama.cpp names it, such as CUDA0 or Vulkan1; its memory of the host has no number.
CARD = re.compile(r"\A[A-Za-z]+\d+\Z")
PARTS = ("embedding", "reranking", "tools", "reasoning", "draft", "picture")


def acceptance_report(
    head: Map,
    host: str,
    health: Map,
    load: Map,
    prompt: str,
    max_tokens: int,
    plans: Sequence[Map] = (),
    cards: Map | None = None,
) -> dict[str, Any]:
    """-> {refused: sentences, report and files: to keep, row: to print, prompt: how fast a long prompt was
    read, empty without one}.

    head is an entry of head_instances, and host its node; health and load are the results of llama_health and
    llama_load_info for it; plans the entry of its service in memory_plan(); cards: of cards_seen(), while it is loaded.
    health has `measured_at`, and `long` of full_prompt.record().
    """
    # A router has a plan for each of its models.
    own = [plan for plan in plans if plan["node"] == host and plan["model"] == head["model"]]
    report = _report(head, health, load, prompt, max_tokens, own, cards or {})
    label, moment = label_of(head), health.get("measured_at")
    kept_report = {"format": FORMAT, "kind": "verify", "label": label, "measured_at": moment, **report}
    return {
        "refused": [*_refused(head, host, load), *_on_processor(head, host, load, own)],
        "report": report,
        "files": {f"{label}.json": json.dumps(kept_report, indent=4) + "\n"},
        "row": _row(head, host, health, load, report),
        "prompt": record(health.get("long") or {}, own[0].get("inputs") or [] if own else []),
    }


def cards_seen(results: Iterable[Map], hostvars: Map) -> dict[str, list[dict[str, Any]]]:
    """The cards of nodes that services may compute on: {node: [{index: of the plan, memory_used_mib, ...}]}

    results: of node_facts with `gpus`, each with the node as its item; hostvars: what preflight knows of the devices of
    Vulkan, whose order is not that of the kernel.
    """
    found = {}
    for one in results:
        facts, host = one["ansible_facts"], hostvars[one["item"]]
        devices = host.get("ansible_facts", {}).get("llama_node", {}).get("vulkan", {}).get("gpus", [])
        numbers = {device["slot"]: device["index"] for device in devices if device.get("slot")}
        others = drm.gpus({"cards": facts["llama_drm"]["cards"], "processes": {}})
        found[one["item"]] = [
            *facts["nvidia_smi"]["gpus"],
            *({**card, "index": numbers.get(card["index"], card["index"])} for card in others),
        ]
    return found


def _row(head: Map, host: str, health: Map, load: Map, report: Map) -> dict[str, Any]:
    """{column of COLUMNS: text}"""
    own = sum(one["layers"] or 0 for one in load["devices"] if one["endpoint"] is None)
    rows = [row for row in report["plan"] if row["loaded_mib"]]
    loaded, planned = (sum(sum(row[of].values()) for row in rows) for of in ("loaded_mib", "planned_mib"))
    return {
        "nodes": nodes_of(head, host),
        # The log does not report layers of a head that computes in main memory.
        "layers": ", ".join(map(str, [own, *(one["layers"] for one in report["workers"])]))
        if head["shares"]
        else "all",
        "tokens/s": report["state"] if report["answer"] is None else report["tokens_per_second"],
        "context": context_cell(health),
        "plan": "%.0f of %d MiB" % (loaded, planned) if rows else "",
        "endpoint": report["endpoint"],
        "conversation": ", ".join(_conversation(report)),
        "long prompt": report["long_prompt"],
        "curl": report["curl"],
        "key": f"llama_api_keys.{head['service']}" if head.get("api_key_file") else "",
    }


def served_lines(shown: Mapping[str, Mapping[str, Any]], idle: bool, behind: bool) -> list[str]:
    """A row for each instance of a service. shown: {label: row}; idle: whether the run changed nothing; behind: whether
    clients use a gateway, and the ports of the heads are closed to them."""
    if idle and len(shown) > MANY:
        return [f"{len(shown)} instances answer: verify.yml shows each"]
    columns = [column for column in COLUMNS if column != "endpoint" or not behind]
    lines = table(columns, [[label if c == "service" else row.get(c) for c in columns] for label, row in shown.items()])
    first = next((row for row in shown.values() if row.get("curl")), None)
    if first and not behind and not idle:
        lines += [f"with LLAMA_API_KEY set to one of {first['key']}:"] if first["key"] else []
        lines.append(first["curl"])
    return lines if shown else []


def _refused(head: Map, host: str, load: Map) -> list[str]:
    """A sentence for each worker that does not hold its planned layers, or none at all."""
    found = []
    for share in head["shares"]:
        endpoint, planned = share["endpoint"], share["layers"]
        holds = sum(device["layers"] or 0 for device in load["devices"] if device["endpoint"] == endpoint)
        if not holds or holds != (planned or holds):
            words = "llama_services.%s: worker %s holds %d layers of %s, %s needed%s: see %s on %s"
            reason = f" ({load['reason']})" if load["reason"] else ""
            source = f"journalctl -u {head['unit']}" if head["unit"] else head["log"]
            where = (planned or "at least one", reason, source, host)
            found.append(words % (head["service"], endpoint, holds, head["model"], *where))
    return found


def _on_processor(head: Map, host: str, load: Map, plans: Sequence[Map]) -> list[str]:
    """A sentence if the plan puts layers on cards of the head's node, and its load log has none of them: llama.cpp then
    computes on the processor, without an error."""
    planned = [
        device["device"]
        for plan in plans[:1]
        for device in plan["devices"]
        if device["node"] == host and device["device"] != "main" and device["weights_mib"]
    ]
    own = [device["device"] for device in load["devices"] if device["endpoint"] is None] if planned else []
    if not own or any(CARD.match(name) for name in own):
        return []
    source = f"journalctl -u {head['unit']}" if head["unit"] else head["log"]
    return [
        f"llama_services.{head['service']}: {', '.join(own)} of {host} seen in the load of {head['model']}, "
        f"{', '.join(planned)} is needed: see {source} on {host}, and run llama-doctor there"
    ]


def _report(
    head: Map, health: Map, load: Map, prompt: str, max_tokens: int, plans: Sequence[Map], cards: Map
) -> dict[str, Any]:
    """The request and its answer, the rate, MiB and bytes of each worker, and the error of the plan."""
    moved = {worker["endpoint"]: worker for worker in health.get("workers") or []}
    workers = []
    for share in head["shares"]:
        endpoint = share["endpoint"]
        devices = [device for device in load["devices"] if device["endpoint"] == endpoint]
        worker = {"node": share["node"], "endpoint": endpoint, "layers": sum(one["layers"] or 0 for one in devices)}
        worker |= {name: round(sum(one[name] for one in devices), 2) for name in ("model_mib", "kv_mib")}
        worker |= {name: moved.get(endpoint, {}).get(name) for name in ("bytes_sent", "bytes_received")}
        workers.append(worker)
    rate = health.get("tokens_per_second")
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
        "workers": workers,
        "plan": [row for plan in plans[:1] for row in _planned(head, load, plan, cards)],
        "curl": _curl(head, prompt, max_tokens),
    }


def _curl(head: Map, prompt: str, max_tokens: int) -> str:
    """The same request as a command."""
    path = "chat/completions"
    asked: dict[str, Any] = {"max_tokens": max_tokens, "temperature": 0}
    asked["messages"] = [{"role": "user", "content": prompt}]
    if head["serves"] == "scores":
        path, asked = "rerank", {"query": prompt, "documents": DOCUMENTS}
    elif head["serves"] == "embeddings":
        path, asked = "embeddings", {"input": prompt}
    # A single quote would end the shell's word; JSON can write it as an escape.
    body = json.dumps({"model": head["model"], **asked}).replace("'", "\\u0027")
    # The key itself is neither printed nor kept.
    key = ' -H "Authorization: Bearer $LLAMA_API_KEY"' if head.get("api_key_file") else ""
    return f"curl -sS {head['endpoint']}/{path}{key} -H 'Content-Type: application/json' -d '{body}'"


def _planned(head: Map, load: Map, plan: Map, cards: Map) -> list[dict[str, Any]]:
    """The memory of each device by the plan, by llama.cpp's log, and by the card; error_percent: of the plan, against
    the log."""
    endpoints = {share["node"]: share["endpoint"] for share in head["shares"]}
    kinds = ("weights", "kv", "compute")
    # Where each device has a part of every layer, the log has the largest.
    largest = max(sum(one[kind + "_mib"] for kind in kinds) for one in plan["devices"]) if load.get("divided") else 0
    seen: dict[str, int] = {}
    rows = []
    for device in plan["devices"]:
        node = device["node"]
        beside = any(one["node"] == node and one["device"] != "main" for one in plan["devices"])
        places = _places(load["devices"], endpoints.get(node), device["device"], beside)
        number = seen[node] = seen.get(node, -1) + 1
        loaded = places if device["device"] == "main" else places[number : number + 1]
        planned = {kind: device[kind + "_mib"] for kind in kinds}
        keys = {"weights": "model_mib", "kv": "kv_mib", "compute": "compute_mib"}
        found = {kind: round(sum(place[key] for place in loaded), 2) for kind, key in keys.items()}
        total = sum(found.values()) if sum(planned.values()) >= largest else 0
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
    """llama.cpp's devices of a planned one: a worker's, or the head's own cards, or its main memory. beside: whether
    main memory has a row beside cards because it keeps experts."""
    if endpoint:
        return [one for one in devices if one["endpoint"] == endpoint]
    own = [one for one in devices if one["endpoint"] is None]
    if name == "main" and not beside:
        return own
    return [one for one in own if (name != "main") == bool(CARD.match(one["device"]))]


def _conversation(report: Map) -> list[str]:
    """The parts of the conversation that llama_health reports, without the usual ones."""
    said = report["conversation"] or {}
    named = {"not_held": "not held: ", "question": "", **{name: f"{name}: " for name in PARTS}}
    order = ("question", *PARTS, "not_held")
    return [f"{named[name]}{said[name]}" for name in order if said.get(name) and said[name] not in USUAL]


def context_of(health: Map) -> str | None:
    """The context of one request, as llama-server reports it."""
    if not health.get("n_ctx"):
        return None
    slots = health.get("slots") or 1
    return "%d tokens a slot%s" % (health["n_ctx"], " (%d slots)" % slots if slots > 1 else "")
