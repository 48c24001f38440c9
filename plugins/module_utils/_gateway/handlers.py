# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides for each request: refused by its head, answered by the gateway itself, or passed on. Private to the
collection."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from . import answers, body, metrics, paths, replicas, routing
from .answers import Answer
from .body import Read
from .clients import client_configuration, clients_index
from .config import Config, Keys
from .paths import Target
from .replicas import Fleet
from .request import Head
from .routing import Route
from .status_page import PAGE

# Pages without a key: they show what serves, and no request.
OPEN = ("/health", "/v1/health", "/status", "/status.json", "/clients")
# Without a key too, at the gateway's own port: the start page, and metrics, which nginx opens only for the hosts of
# monitoring. At a tier's port /metrics is the server's page.
ROOT, METRICS = "/", "/metrics"
METHODS = "GET, POST, OPTIONS"


class Passed(NamedTuple):
    """A request for a server. target: path for the server; body: as received; read: what the body names."""

    head: Head
    target: Target
    body: bytes
    read: Read
    route: Route


class State:
    """State that requests are handled by; the engine has it."""

    config: Config
    keys: Keys
    fleet: Fleet
    counts: metrics.Counts


def refused(state: State, head: Head, known: bool) -> Answer | None:
    """The refusal of a request by its head, before its body is read. known: whether its key is a client's."""
    if head.target is None:
        return answers.error(400, "bad_path", "path: only plain ASCII, encoded once, is understood")
    _task, path = _task_of(head, head.target)
    own = head.get("x-llama-tier") is None
    if paths.is_closed(head.method, path):
        return answers.error(403, "closed_path", f"{answers.shown(path)} is closed here: ask the operator")
    if head.method == "OPTIONS":
        return Answer(204, b"", headers=_preflight(head))
    is_open = own and path in (ROOT, METRICS) or path in OPEN or path.startswith("/clients/")
    if state.config.required and not known and not (head.reads and is_open):
        words = "no key of this gateway seen, one is needed: send it as Authorization: Bearer KEY"
        return answers.error(401, "invalid_api_key", words)
    if not (head.reads and own) and not paths.is_open(head.method, path):
        return _unknown(head.method, path)
    encoding = head.get("content-encoding") or "identity"
    if encoding.lower() != "identity":
        words = f"content-encoding: {answers.shown(encoding)} seen, a body without one is needed: send it as it is"
        return answers.error(415, "unsupported_encoding", words)
    return None


def _unknown(method: str, path: str) -> Answer:
    others = [one for one in ("GET", "POST") if one != method and paths.is_open(one, path)]
    if others:
        words = f"{method} is not allowed at {answers.shown(path)}: use {others[0]}"
        return answers.error(405, "method_not_allowed", words)._replace(headers=(("Allow", others[0]),))
    near = answers.nearest(path, ["/v1" + one for one in (*paths.WORK, *paths.COUNT)])
    words = f"{answers.shown(path)} is not known here: use {' or '.join(near) or '/v1/chat/completions'}"
    return answers.error(404, "not_found", words)


def _task_of(head: Head, target: Target) -> tuple[str | None, str]:
    return paths.task_of(target.path) if head.get("x-llama-tier") is None else (None, target.path)


def _preflight(head: Head) -> tuple[tuple[str, str], ...]:
    """Headers for a browser, which asks before it sends."""
    return (
        ("Access-Control-Allow-Methods", METHODS),
        ("Access-Control-Allow-Headers", head.get("access-control-request-headers") or "*"),
    )


def judge(state: State, head: Head, data: bytes) -> Answer | Passed:
    """Handles a request that refused() has accepted."""
    target = head.target or Target(ROOT)
    task, path = _task_of(head, target)
    read: Answer | Read = Read()
    if head.method == "POST":
        read = body.read(path, data)
    if isinstance(read, Answer):
        return read
    tier = head.get("x-llama-tier")
    if tier is not None:
        found = routing.of_tier(state.config, tier, read.asked)
    elif head.method != "POST":
        return _own(state, head, task, path)
    else:
        task = task or head.get("x-task")
        found = routing.of_model(state.config, task, read.asked)
        # With a task the name of a model is ignored.
        if task is None and isinstance(read.asked, str) and read.asked not in state.config.names:
            state.counts.unknown(answers.shown(read.asked))
    return found if isinstance(found, Answer) else Passed(head, target._replace(path=path), data, read, found)


def _own(state: State, head: Head, task: str | None, path: str) -> Answer:
    """Pages of the gateway's own port."""
    models, urls = path.removeprefix("/v1"), state.config.document.get("base_urls") or [""]
    text: str | None = None
    if models == "/models" or path.startswith("/v1/models/"):
        return _models(state, models[len("/models/") :])
    if task is not None:
        return _unknown(head.method, path)
    if path == ROOT and "text/html" in (head.get("accept") or ""):
        return Answer(302, b"", headers=(("Location", "/status"),))
    if path in ("/health", "/v1/health"):
        if any(pool.state == replicas.READY for pool in state.fleet.pools.values()):
            return answers.json_answer({"status": "ok"})
        return answers.error(503, "no_endpoint", "no service is ready: see /status", retry_after=10)
    if path == METRICS:
        return Answer(200, state.counts.text(state.fleet).encode("utf-8"), metrics.TYPE)
    if path == "/status.json":
        return answers.json_answer(status(state))
    if path == "/status":
        return Answer(200, PAGE.encode("utf-8"), answers.HTML)
    if path == "/clients":
        text = clients_index(state.config.document, urls[0])
    elif path.startswith("/clients/"):
        text = client_configuration(state.config.document, path[len("/clients/") :], urls[0])
    return _unknown(head.method, path) if text is None else Answer(200, text.encode("utf-8"), answers.TEXT)


def _models(state: State, name: str) -> Answer:
    """The list, or one model."""
    answering = {
        pool.service.name: (
            int(min((one.since for one in pool.endpoints), default=0)),
            {**pool.reported(), "why": pool.waiting.why if pool.waiting else None},
        )
        for pool in state.fleet.pools.values()
        if pool.state in (replicas.READY, replicas.LOADING, replicas.DRAINING, replicas.WAITING)
    }
    found = answers.models(state.config, answering)
    if not name:
        return answers.json_answer({"object": "list", "data": found})
    one = next((one for one in found if one["id"] == name), None)
    return answers.json_answer(one) if one else answers.unknown_model(name, state.config)


def status(state: State) -> dict[str, Any]:
    """status.json."""
    document = state.config.document
    return {
        "version": 1,
        "services": state.fleet.status(time.monotonic()),
        "routes": document.get("routes") or {},
        "base_urls": document.get("base_urls") or [],
        "tiers": document.get("tiers") or {},
        "unserved": sorted(state.config.unserved),
    }
