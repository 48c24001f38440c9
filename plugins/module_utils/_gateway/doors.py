# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each port of the gateway gives out itself, what it passes on, and to whom. Private to the collection."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from . import answers, body, metrics, paths, replicas, routing
from .answers import Answer
from .body import Read
from .clients import client_configuration, clients_index
from .config import Config
from .paths import Target
from .replicas import Fleet
from .request import Head
from .routing import Route
from .status_page import PAGE

# Without a key: they name what serves, and nothing of what is asked.
OPEN = ("/health", "/v1/health", "/status", "/status.json", "/clients")
# Without a key too, at the gateway's own port: a browser's first look, and metrics, to which nginx lets the hosts of
# monitoring alone come. At a tier's port /metrics is the server's page.
ROOT, METRICS = "/", "/metrics"
METHODS = "GET, POST, OPTIONS"


class Passed(NamedTuple):
    """target: as the server is asked; read: of the body."""

    target: Target
    read: Read
    route: Route


class State:
    """What is looked at for that: the engine is one."""

    config: Config
    fleet: Fleet
    counts: metrics.Counts


def refused(state: State, head: Head, target: Target, known: bool) -> Answer | None:
    """By its head alone, before anybody reads a body. known: whether the client's key is one of ours."""
    _task, path = _task_of(head, target)
    if paths.is_closed(head.method, path):
        return answers.error(403, "closed_path", f"{answers.shown(path)} is closed here: ask the operator")
    if head.method == "OPTIONS":
        return Answer(204, b"", headers=_preflight(head))
    own = path in (ROOT, METRICS) and head.get("x-llama-tier") is None
    is_open = head.method in ("GET", "HEAD") and (own or path in OPEN or path.startswith("/clients/"))
    if state.config.required and not known and not is_open:
        words = "no key of this gateway seen, one is needed: send it as Authorization: Bearer KEY"
        return answers.error(401, "invalid_api_key", words)
    if (head.method not in ("GET", "HEAD") or head.get("x-llama-tier") is not None) and not paths.is_open(
        head.method, path
    ):
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


def judge(state: State, head: Head, target: Target, data: bytes) -> Answer | Passed:
    """What becomes of a request that was not refused by its head."""
    tier = head.get("x-llama-tier")
    task, path = _task_of(head, target)
    read: Answer | Read = Read()
    if head.method == "POST":
        read = body.read(path, head.get("content-type") or "", data)
    if isinstance(read, Answer):
        return read
    asked = read.asked
    if tier is not None:
        found = routing.of_tier(state.config, tier, asked)
    else:
        own = _own(state, head, task, path)
        if own is not None:
            return own
        task = task or head.get("x-task")
        found = routing.of_model(state.config, task, asked)
        # Where a task is named, the model that stands beside it is not asked for.
        if task is None and isinstance(asked, str) and asked not in state.config.names:
            state.counts.unknown(answers.shown(asked))
    return found if isinstance(found, Answer) else Passed(target._replace(path=path), read, found)


def _own(state: State, head: Head, task: str | None, path: str) -> Answer | None:
    """What the gateway's own port answers itself; None for what a server answers."""
    if head.method == "POST":
        return None
    found = None
    if path == ROOT and task is None and "text/html" in (head.get("accept") or ""):
        # Somebody who looks with a browser.
        return Answer(302, b"", headers=(("Location", "/status"),))
    if path in ("/v1/models", "/models") or path.startswith("/v1/models/"):
        found = _models(state, path[len("/v1/models/") :])
    elif task is None:
        found = _page(state, path)
    return found or _unknown(head.method, path)


def _preflight(head: Head) -> tuple[tuple[str, str], ...]:
    """A browser asks before it sends."""
    return (
        ("Access-Control-Allow-Methods", METHODS),
        ("Access-Control-Allow-Headers", head.get("access-control-request-headers") or "*"),
    )


def _models(state: State, name: str) -> Answer | None:
    fleet = state.fleet
    answering = {
        pool.service.name: (int(min((one.since for one in pool.endpoints), default=0)), pool.told())
        for pool in fleet.pools.values()
        if pool.state in (replicas.READY, replicas.LOADING, replicas.DRAINING)
    }
    found = answers.models(state.config, answering)
    if not name:
        return answers.json_answer({"object": "list", "data": found})
    for one in found:
        if one["id"] == name:
            return answers.json_answer(one)
    return answers.unknown_model(name, state.config)


def _page(state: State, path: str) -> Answer | None:
    fleet = state.fleet
    if path in ("/health", "/v1/health"):
        ready = any(pool.state == replicas.READY for pool in fleet.pools.values())
        if ready:
            return answers.json_answer({"status": "ok"})
        return answers.error(503, "no_endpoint", "no service is ready: see /status", retry_after=10)
    if path == METRICS:
        return Answer(200, state.counts.text(fleet).encode("utf-8"), metrics.TYPE)
    if path == "/status.json":
        return answers.json_answer(status(state))
    if path == "/status":
        return Answer(200, PAGE.encode("utf-8"), answers.HTML)
    told, urls = state.config.told, state.config.told.get("base_urls") or [""]
    text = None
    if path == "/clients":
        text = clients_index(told, urls[0])
    elif path.startswith("/clients/"):
        text = client_configuration(told, path[len("/clients/") :], urls[0])
    return None if text is None else Answer(200, text.encode("utf-8"), answers.TEXT)


def status(state: State) -> dict[str, Any]:
    """status.json."""
    told = state.config.told
    return {
        "version": 1,
        "services": state.fleet.status(time.monotonic()),
        "routes": told.get("routes") or {},
        "base_urls": told.get("base_urls") or [],
        "tiers": told.get("tiers") or {},
        "unserved": sorted(state.config.unserved),
    }
