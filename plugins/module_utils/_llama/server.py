# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one probe of a llama-server, and the vocabulary of its state. Private to the collection.

Each requested path is a line in the server's journal: /props, which does not wake a sleeping server, then /metrics, and
/slots only if a request is running.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from .api import LlamaApi, NoAnswer, count, parse_metrics, rows, table

# starting: waits for workers, or after a crash; loading: reads its model; ready: idle; busy: requests are running;
# sleeping: the next request loads its model; degraded: speaks HTTP but cannot answer, or not over all workers; down: no
# HTTP; held: its node is held for maintenance; stopped: by the inventory.
STATES = ("starting", "loading", "ready", "busy", "sleeping", "degraded", "down", "held", "stopped")
ANSWERING = ("ready", "busy", "sleeping")
# Seconds for a response from memory, and for all models of a router.
ANSWER, PATIENCE = 5.0, 15.0
# States of a router's model: in use; loaded at all. A request to a sleeping one would load it.
AWAKE, LOADED = "loaded", ("loaded", "sleeping")
# Upper limits.
MODELS_MOST, SLOTS_MOST, CONTEXT_MOST, MOST = 64, 1024, 2**24, 2.0**60
# Counters that grow while a server works.
PROGRESS = ("n_decode_total", "prompt_tokens_total", "tokens_predicted_total")


@dataclass
class Sample:
    """One probe. slots, busy: numbers of all and busy slots; working: busy entries of /slots, each with its `model`;
    counters: {(model of a router or None, name in /metrics): value}; requests: running, deferred: waiting for a slot;
    context: of a slot, in tokens; used: tokens of the fullest busy slot; silent: too busy to respond; models: of a
    router, in use; entries: of its /models."""

    state: str
    reason: str = ""
    slots: int | None = None
    busy: int | None = None
    working: list[dict[str, Any]] = field(default_factory=list)
    counters: dict[tuple[str | None, str], float] = field(default_factory=dict)
    requests: float | None = None
    deferred: float | None = None
    context: int | None = None
    used: int | None = None
    build: str | None = None
    props: dict[str, Any] = field(default_factory=dict)
    silent: bool = False
    models: list[str] | None = None
    entries: list[dict[str, Any]] = field(default_factory=list)


def probe(api: LlamaApi, router: bool = False) -> Sample:
    """Errors: Refusal, if the key is wrong."""
    try:
        return _router(api) if router else _server(api)
    except NoAnswer as error:
        return Sample(unanswered(error), str(error), silent=error.kind == "timeout")


def unanswered(error: NoAnswer) -> str:
    """The state of a running process that does not respond."""
    return "loading" if error.kind == "refused" else "down"


def answered(status: int) -> str:
    """The state for an HTTP status of /health, /props or /models."""
    return {200: "ready", 503: "loading"}.get(status, "down")


def models(api: LlamaApi, timeout: float = ANSWER) -> tuple[int, list[dict[str, Any]]]:
    """(HTTP status, entries) of a router's /models. Errors: NoAnswer."""
    status, body = api.get("/models", timeout)
    return status, (rows(table(body).get("data")) or [])[:MODELS_MOST] if status == 200 else []


def awake(entries: list[dict[str, Any]]) -> list[str]:
    """The names of the models in use."""
    return [str(one.get("id")) for one in entries if table(one.get("status")).get("value") == AWAKE]


def progress(slot: dict[str, Any]) -> tuple[int, int]:
    """Tokens of a busy slot: (read of its prompt, generated)."""
    step = slot.get("next_token")
    step = step[0] if isinstance(step, list) and step else step
    return count(slot.get("n_prompt_tokens_processed")), count(table(step).get("n_decoded"))


def prompt(slot: dict[str, Any]) -> int:
    """Tokens of a busy slot's prompt."""
    return max(count(slot.get("n_prompt_tokens")), progress(slot)[0])


def _server(api: LlamaApi) -> Sample:
    status, body = api.get("/props", ANSWER, of_model=True)
    if status != 200:
        return Sample(answered(status), "/props is answered %d" % status)
    props = table(body)
    found = Sample(
        "sleeping" if props.get("is_sleeping") else "ready",
        slots=count(props.get("total_slots"), SLOTS_MOST) or None,
        context=count(table(props.get("default_generation_settings")).get("n_ctx"), CONTEXT_MOST) or None,
        build=str(props.get("build_info") or "") or None,
        props=props,
    )
    if found.state == "ready" and props.get("role") != "router":
        _work(found, api)
    return found


def _router(api: LlamaApi) -> Sample:
    status, entries = models(api)
    found = Sample(answered(status), requests=0.0, deferred=0.0, entries=entries)
    end = time.monotonic() + PATIENCE
    found.models = awake(entries)
    for name in found.models:
        if time.monotonic() < end:
            _work(found, api.of(name))
    return found


def _work(seen: Sample, api: LlamaApi) -> None:
    """Adds the work of a server with a model. A silent one is busy: some builds only respond between batches."""
    before = seen.requests
    try:
        _add(seen, api)
    except NoAnswer as error:
        seen.silent = error.kind == "timeout"
        if seen.silent and seen.requests == before:
            seen.requests = (before or 0.0) + 1.0


def _add(seen: Sample, api: LlamaApi) -> None:
    status, text = api.get("/metrics", ANSWER, of_model=True)
    metrics = parse_metrics(text) if status == 200 and isinstance(text, str) else {}
    seen.counters.update({(api.model, name): value for name, value in metrics.items() if value < MOST})
    busy = metrics.get("requests_processing")
    if metrics:
        seen.deferred = (seen.deferred or 0.0) + metrics.get("requests_deferred", 0.0)
    if busy is not None:
        seen.requests = (seen.requests or 0.0) + busy
    if busy == 0:
        seen.busy, seen.used = seen.busy or 0, seen.used or 0
        if not api.model:
            return
    status, body = api.get("/slots", ANSWER, of_model=True)
    slots = (rows(body) or [])[:SLOTS_MOST] if status == 200 else []
    if api.model and slots:
        seen.slots = (seen.slots or 0) + len(slots)
        seen.context = max([seen.context or 0] + [count(one.get("n_ctx")) for one in slots]) or None
    working = [dict(one, model=api.model) for one in slots if one.get("is_processing")]
    seen.working += working
    seen.busy = (seen.busy or 0) + len(working)
    seen.used = max([seen.used or 0] + [prompt(one) + progress(one)[1] for one in working])
    if busy is None:
        seen.requests = (seen.requests or 0.0) + len(working)
