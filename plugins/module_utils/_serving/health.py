# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a head or router as seen from its own node. Private to the collection.

States, as in _llama/server.py: loading, ready (also one that sleeps), busy, degraded and down. /health is not
enough: it stays 200 with dead workers, and /slots and /metrics do while a worker hangs.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import Any

from .. import _files
from .._llama.api import Answer, LlamaApi, NoAnswer, count, error_text, first_key, rows, table
from .._llama.args import Settings, parse_args
from .._llama.server import ANSWERING, PROGRESS, Sample, probe
from .._node import paths
from .._node.sockets import Connection, Worker, awaited, connections, strays, traffic
from .._node.units import Properties, failed_in_a_row, number, parse_show, service_of, systemctl_show, unit_kind
from .._text import Refusal
from . import router

Result = dict[str, Any]
STATES = ("loading", "ready", "busy", "degraded", "down")
SERVING = ("ready", "busy")
# The reason of one that is ready without its model.
SLEEPS = "it sleeps, the next request loads the model"
# Seconds for a response from memory, and between two probes.
LOOK = 5
POLL = 0.5
# Seconds that a token for llama-watchdog may take.
MOMENT = 2.0
# Restarts by systemd during a wait after which the unit is given up, as for a model that cannot be loaded.
MOST_RESTARTS = 3


class Head:
    """A llama-server.

    endpoints: HOST:PORT of its workers. unit: its systemd unit, whose processes must own the connections to workers.
    own_key: use the service's own key file. health_only: ask only /health, which needs no key. settings: of its
    command line, or for a router of the requested model.
    """

    def __init__(
        self,
        api: LlamaApi,
        endpoints: Sequence[str] = (),
        unit: str | None = None,
        own_key: bool = False,
        health_only: bool = False,
        settings: Settings | None = None,
    ) -> None:
        self.api = api
        self.endpoints = list(endpoints)
        self.unit = unit
        self.own_key = own_key
        self.health_only = health_only
        self.settings = settings or parse_args([])
        self.models: list[router.Model] = []  # of a router
        self.body: dict[str, Any] = {}  # of the last deep answer
        self.pid: int | None = None
        self._restarts: int | None = None  # of the unit at the first probe
        self._astray = False  # connected to other endpoints than its workers

    def check(self, wait: float = 0, deep: dict[str, Any] | None = None) -> Result:
        """The result of llama_health.

        wait: seconds to probe again until it serves. deep: None, or {prompt, max_tokens, timeout}. Errors: Refusal.
        """
        start = time.monotonic()
        waited_for = []
        while True:
            result, hopeless = self._look()
            if result["state"] not in SERVING and result["reason"] not in waited_for:
                waited_for.append(result["reason"])
            if result["state"] in SERVING or hopeless or time.monotonic() - start >= wait:
                break
            time.sleep(POLL)
        moment = time.monotonic() + MOMENT
        while deep and result["state"] == "busy" and time.monotonic() < moment:
            time.sleep(POLL)
            result, _hopeless = self._look()
        result.update(waited=round(time.monotonic() - start, 1) if wait else 0.0, waited_for=waited_for if wait else [])
        if deep and result["reason"] == SLEEPS:
            deep = dict(deep, timeout=max(deep["timeout"], wait))  # it is loaded first
        if deep and result["state"] in SERVING:
            if self.models and not self.api.model:
                # The model that costs least.
                self.api, self.settings = self.api.of(self.models[0].name), self.models[0].settings
                deep = dict(deep, timeout=max(deep["timeout"], wait))  # it may have to be loaded first
            self._deep(result, **deep)
        return result

    def _look(self) -> tuple[Result, bool]:
        """-> (result of one probe, whether waiting is useless)"""
        result = dict.fromkeys(
            ("model", "slots", "slots_busy", "n_ctx", "answer", "tokens", "prompt_tokens", "progress")
        )
        result["models"] = None
        result.update(dict.fromkeys(("tokens_per_second", "prompt_tokens_per_second", "seconds_to_answer")))
        shown = self._show_unit()
        self.pid = number(shown, "MainPID") or None if shown else None
        if shown and self.pid:
            self.api.use_key(key_of(shown["Id"]) if self.own_key else self.api.key, self.pid)
        # A unit that does not run has no sockets.
        seen = connections(self.endpoints, self.pid) if self.endpoints and (self.pid or not self.unit) else []
        connected = {one.endpoint for one in seen if one.connected}
        result["workers"] = [Worker(endpoint, endpoint in connected)._asdict() for endpoint in self.endpoints]
        result["state"], result["reason"] = self._judge(result, shown)
        return result, shown is not None and result["state"] not in SERVING and self._fails_for_good(result, shown)

    def _fails_for_good(self, result: Result, shown: Properties) -> bool:
        """Whether waiting for the unit is useless; changes the result of a unit that systemd restarts."""
        if self._astray or shown.get("ActiveState") == "failed":
            return self._astray or result["state"] == "down"
        restarts = number(shown, "NRestarts")
        # A manual start resets the count.
        before = self._restarts = restarts if self._restarts is None else min(self._restarts, restarts)
        # The back-off counts ends before the first probe, too.
        ended = max(restarts - before, failed_in_a_row(shown))
        if ended < MOST_RESTARTS:
            return False
        result["state"], result["reason"] = "down", "%s has ended %d times and never served" % (self.unit, ended)
        return True

    def _show_unit(self) -> Properties | None:
        if not self.unit:
            return None
        for shown in parse_show(systemctl_show([self.unit])):
            if shown.get("LoadState") != "not-found" or number(shown, "MainPID"):
                return shown
        raise Refusal(f"unit {self.unit} does not exist on this node: name the head's unit, and run on the head's node")

    def _judge(self, result: Result, shown: Properties | None) -> tuple[str, str]:
        try:
            status, body = self.api.get("/health", LOOK)
        except NoAnswer as error:
            if shown and shown.get("ActiveState") == "activating" and shown.get("StatusText"):
                # The status of a program before the server: it waits for workers, or after failed loads.
                return "loading", f"{self.unit} has not started its server yet: it {shown['StatusText']}"
            if error.kind != "refused" or self.pid is None:
                return "down", f"{error}{self._unit_words(shown)}"
            return (
                "loading",
                "%s, though %s runs: it starts, or waits for a worker that serves another head, or listens elsewhere"
                % (error, self.unit),
            )
        if status == 503 and "oading" in error_text(body):
            return "loading", f"it answers 503 ({error_text(body)})"
        if status != 200:
            return "down", "/health answers %d (%s), 200 is needed" % (status, error_text(body))
        if self.health_only:
            return "ready", "it answers /health"
        if shown and self.pid is None:
            return "degraded", "it answers, but not from %s, which is %s: another process has the port" % (
                self.unit,
                shown.get("ActiveState"),
            )
        seen = self._describe(result)
        sleeping = seen.state == "sleeping"
        lost = [worker["endpoint"] for worker in result["workers"] if not worker["connected"]]
        if lost and not sleeping:
            return (
                "degraded",
                "%s of %d workers without an established connection: %s: %s"
                % (len(lost), len(self.endpoints), ", ".join(lost), self._lost_way()),
            )
        if seen.silent:
            return "busy", f"it is too busy to answer /slots in {LOOK:g} s"
        if self.models:
            return router.state(self.models)
        if result["slots_busy"]:
            return "busy", "%d of %s slots work" % (result["slots_busy"], result["slots"] or "its")
        if sleeping:
            return "ready", SLEEPS
        if self.api.model and result["model"] is None:
            return "ready", f"{self.api.model} is not loaded, the next request loads it"
        return "ready", "it is idle"

    def _lost_way(self) -> str:
        """The fix for workers without a connection."""
        others = ", ".join(strays(self.endpoints, self.pid) if self.pid else [])
        self._astray = bool(others)
        words = "it is connected to %s instead: have site.yml write its unit, and restart it"
        return words % others if others else "start the missing workers, then restart the head"

    @staticmethod
    def _unit_words(shown: Properties | None) -> str:
        if not shown:
            return ""
        names = ("Id", "ActiveState", "SubState", "Result", "NRestarts")
        return " (%s is %s/%s, result %s, %s restarts)" % tuple(map(shown.get, names))

    def _describe(self, result: Result) -> Sample:
        """Fills in model, slots, n_ctx and slots_busy."""
        seen = probe(self.api)
        kind = unit_kind(self.unit)[0] if self.unit else None
        if seen.props.get("role") == "router" and kind != "head":
            seen = probe(self.api, router=True)
            self.models = router.models(seen)
            result.update(models={one.name: one.state for one in self.models}, slots=seen.slots, slots_busy=seen.busy)
            return seen
        result["model"] = seen.props.get("model_alias") or seen.props.get("model_path")
        result["slots"], result["n_ctx"] = seen.slots, seen.context
        if seen.requests is not None:
            result["slots_busy"] = max(seen.busy or 0, int(seen.requests))
        return seen

    def _connections(self) -> list[Connection]:
        return connections(self.endpoints, self.pid) if self.endpoints else []

    def _watch(self, timeout: float) -> tuple[bool, Sample, list[Connection]]:
        """Waits for progress -> (whether there was any within timeout seconds, last sample, last connections).

        llama-server's counters move once a batch and the sockets once a micro-batch, so timeout has to exceed the
        slowest of these.
        """
        start = time.monotonic()
        first, before = probe(self.api), self._connections()
        now, after = first, before
        while time.monotonic() - start < timeout:
            time.sleep(POLL)
            now, after = probe(self.api), self._connections()
            answers = now.state in ANSWERING and not now.silent
            counted = _counted(now)
            if (answers and now.working != first.working) or (counted and counted != _counted(first)):
                return True, now, after
            # A kernel acknowledges bytes for a worker that hangs: only its own bytes are progress.
            if any(worker.bytes_received for worker in traffic(before, after)):
                return True, now, after
        return False, now, after

    def _deep(self, result: Result, prompt: str, max_tokens: int, timeout: float) -> None:
        """Requests an answer, or watches the progress of a busy server; changes result."""
        if result["state"] == "busy":
            result["progress"], _seen, after = self._watch(timeout)
            if not result["progress"]:
                result.update(
                    state="degraded",
                    reason=f"{result['reason']}, no progress in {timeout:g} s{_waits_for(after)}",
                )
            return
        before = self._connections()
        start = time.monotonic()
        try:
            status, body = self._ask(prompt, max_tokens, timeout)
        except NoAnswer as error:
            result.update(self.unanswered(error, timeout))
            return
        seconds = round(time.monotonic() - start, 3)
        if self.endpoints:
            result["workers"] = [one._asdict() for one in traffic(before, self._connections())]
        if status != 200 or not isinstance(body, dict):
            result.update(
                state="loading" if status == 503 else "degraded",
                reason="%s is answered %d (%s)" % (self.settings.asked, status, error_text(body)),
            )
            return
        if self.api.model and body.get("model") not in (self.api.model, None):
            result.update(state="degraded", reason=router.refuse_answer(self.api.model, body))
            return
        if self.api.model and result["n_ctx"] is None:  # it is loaded by now
            self._describe(result)
        self.body = body
        _read_answer(result, body)
        if self.settings.embeddings:  # nothing is generated, its text is read
            result["tokens"] = count(result["prompt_tokens"])
        result["seconds_to_answer"] = seconds
        unused = [
            worker["endpoint"]
            for worker in result["workers"]
            if not worker["connected"] or 0 in (worker["bytes_sent"], worker["bytes_received"])
        ]
        if not result["tokens"]:
            result.update(state="degraded", reason=f"{self.settings.asked} is answered without a token")
        elif unused:
            result.update(
                state="degraded",
                reason=f"it answers, but not over {', '.join(unused)}: compare tensor_split with --rpc",
            )
        else:
            result["reason"] = "it answered %d tokens in %.1f s" % (result["tokens"], result["seconds_to_answer"])

    def _ask(self, prompt: str, max_tokens: int, timeout: float) -> Answer:
        if self.settings.reranking:
            return self.api.rerank(prompt, timeout)
        if self.settings.embeddings:
            return self.api.embed(prompt, timeout)
        return self.api.chat(prompt, max_tokens, timeout)

    def unanswered(self, error: NoAnswer, timeout: float) -> Result:
        """The changes of the result after a request without a response."""
        if error.kind == "timeout":
            # A queue that moves is a healthy head.
            progress, seen, after = self._watch(timeout)
            if progress and seen.working:
                return {
                    "state": "busy",
                    "reason": f"no turn for a completion in {timeout:g} s, other requests make progress",
                    "progress": True,
                }
            since = "" if progress else ", no progress since" + _waits_for(after)
            reason = f"no answer to a completion in {timeout:g} s{since}"
            return {"state": "degraded", "reason": reason, "progress": progress}
        again, _hopeless = self._look()
        again["reason"] = f"it broke off while it answered a completion ({error}); now: {again['reason']}"
        if again["state"] in SERVING:
            again["state"] = "degraded"
        return again


def key_of(unit: str, folder: str = paths.KEYS) -> str | None:
    """The API key of a managed unit, from the file of its service; None without one.

    The process's own --api-key-file is not used: it could name any file of root's.
    """
    service = service_of(unit)
    if service is None:
        return None
    path = os.path.join(folder, service)
    try:
        return first_key(_files.read(path).decode("utf-8", "replace"), path)
    except FileNotFoundError:
        return None
    except (OSError, Refusal) as error:
        raise Refusal(
            f"the API key of {unit} cannot be read ({error}): run with become, or put the key file right with site.yml"
        ) from None


def _counted(seen: Sample) -> dict[Any, float]:
    return {key: value for key, value in seen.counters.items() if key[1] in PROGRESS}


def _waits_for(workers: Sequence[Connection]) -> str:
    endpoints = awaited(workers)
    return ": it waits for " + " and ".join(endpoints) if endpoints else ""


def _read_answer(result: Result, body: dict[str, Any]) -> None:
    choice = (rows(body.get("choices")) or [{}])[0]
    message = table(choice.get("message"))
    timings = table(body.get("timings"))
    usage = table(body.get("usage"))
    result["answer"] = message.get("content") or message.get("reasoning_content") or ""
    result["tokens"] = count(usage.get("completion_tokens", timings.get("predicted_n")))
    result["prompt_tokens"] = usage.get("prompt_tokens", timings.get("prompt_n"))
    # llama-server reports the rate of a single token as if it had taken no time.
    result["tokens_per_second"] = _rate(timings.get("predicted_per_second")) if result["tokens"] > 1 else None
    result["prompt_tokens_per_second"] = _rate(timings.get("prompt_per_second"))
    if body.get("model"):
        result["model"] = body["model"]


def _rate(value: Any) -> float | None:
    """Tokens a second."""
    return float(min(value, 1e9)) if isinstance(value, (int, float)) and 0 < value < math.inf else None
