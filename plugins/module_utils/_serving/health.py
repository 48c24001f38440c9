# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a llama-server able to answer, and over all of its workers? Never touches an RPC port. Private to the collection.

States: loading, ready, busy, degraded or down, see _llama/server.py; one that sleeps is ready. /health alone cannot
tell: it stays 200 with dead workers, and so do /slots and /metrics while a worker hangs.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _files
from .._llama.api import Answer, LlamaApi, NoAnswer, count, error_text, first_key, parse_metrics, rows, table
from .._llama.args import Told
from .._llama.args import told as told_by
from .._llama.server import CONTEXT_MOST, PROGRESS, SLOTS_MOST
from .._node import paths
from .._node.sockets import Connection, Worker, awaited, connections, strays, traffic
from .._node.units import Properties, failed_in_a_row, number, parse_show, service_of, systemctl_show, unit_kind
from .._text import Refusal
from . import router

Result = dict[str, Any]
STATES = ("loading", "ready", "busy", "degraded", "down")
SERVING = ("ready", "busy")
# Seconds for an endpoint that answers from memory, and between two looks.
LOOK = 5
POLL = 0.5
# Seconds for which a service that works may work for llama-watchdog, which asks an idle one for a token.
MOMENT = 2.0
# A unit that systemd has restarted so often while it was waited for ends again and again: a model it cannot load, a
# card that is full.
MOST_RESTARTS = 3


class Sample(NamedTuple):
    """What moves while a head works, each None when it cannot be had. silent: builds of January 2026 answer /slots
    between two batches only."""

    slots: list[dict[str, Any]] | None
    metrics: list[float] | None
    requests: float | None
    silent: bool
    workers: list[Connection] | None


class Head:
    """A llama-server (head or router) as seen from its own node.

    api: LlamaApi. endpoints: 'host:port' of the workers it must be connected to. unit: its systemd unit, whose
    processes must own these connections; without it any process of this node may. own_key: whether to take the API key
    from the service's own key file.
    health_only: ask /health alone, the one question that needs no key; what serves is then "ready".
    told: by its command line; of a router by that of the model that is asked. A server that serves embeddings alone is
    asked for one where others are for a completion, one of reranking for scores.
    """

    def __init__(
        self,
        api: LlamaApi,
        endpoints: Sequence[str] = (),
        unit: str | None = None,
        own_key: bool = False,
        health_only: bool = False,
        told: Told | None = None,
    ) -> None:
        self.api = api
        self.endpoints = list(endpoints)
        self.unit = unit
        self.own_key = own_key
        self.health_only = health_only
        self.told = told or told_by([])
        self.models: list[router.Model] = []  # of a router
        self.body: dict[str, Any] = {}  # of the last answer to deep
        self.pid: int | None = None
        self._restarts: int | None = None  # of the unit at the first look
        self._astray = False  # connected to others than its workers, which no waiting changes

    def check(self, wait: float = 0, deep: dict[str, Any] | None = None) -> Result:
        """State of the head -> result of llama_health, see there.

        wait: seconds to look again every half second until it serves. deep: None, or {prompt, max_tokens, timeout}.
        Errors: Refusal when the question itself is wrong or not permitted.
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
        if deep and result["state"] in SERVING:
            if self.models and not self.api.model:
                # Whichever costs least: that all of them answer is asked of each by its name.
                self.api, self.told = self.api.of(self.models[0].name), self.models[0].told
                deep = dict(deep, timeout=max(deep["timeout"], wait))  # it may have to be loaded first
            self._deep(result, **deep)
        return result

    def _look(self) -> tuple[Result, bool]:
        """One look -> (result, whether waiting is hopeless)."""
        result = dict.fromkeys(
            ("model", "slots", "slots_busy", "n_ctx", "answer", "tokens", "prompt_tokens", "progress")
        )
        result["models"] = None
        result.update(dict.fromkeys(("tokens_per_second", "prompt_tokens_per_second", "seconds_to_answer")))
        shown = self._show_unit()
        self.pid = number(shown, "MainPID") or None if shown else None
        if shown and self.pid:
            self.api.use_key(key_of(shown["Id"]) if self.own_key else self.api.key, self.pid)
        # Sockets of a unit that does not run are nobody's.
        seen = connections(self.endpoints, self.pid) if self.endpoints and (self.pid or not self.unit) else []
        connected = {one.endpoint for one in seen if one.connected}
        result["workers"] = [Worker(endpoint, endpoint in connected)._asdict() for endpoint in self.endpoints]
        result["state"], result["reason"] = self._judge(result, shown)
        return result, shown is not None and result["state"] not in SERVING and self._fails_for_good(result, shown)

    def _fails_for_good(self, result: Result, shown: Properties) -> bool:
        """Whether waiting for the unit is of no use; says so in the result's reason where systemd does not."""
        if self._astray or shown.get("ActiveState") == "failed":
            return self._astray or result["state"] == "down"
        restarts = number(shown, "NRestarts")
        # A start by hand counts from 0 again.
        before = self._restarts = restarts if self._restarts is None else min(self._restarts, restarts)
        # The back-off counts too, also what ended before anybody looked.
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
                # What the programs say that run before the server: they wait for workers, or after loads that failed.
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
        sleeping, silent = self._describe(result)
        lost = [worker["endpoint"] for worker in result["workers"] if not worker["connected"]]
        if lost and not sleeping:
            return (
                "degraded",
                "%s of %d workers without an established connection: %s: %s"
                % (len(lost), len(self.endpoints), ", ".join(lost), self._lost_way()),
            )
        if silent:
            return "busy", f"it is too busy to answer /slots in {LOOK:g} s"
        if self.models:
            return router.state(self.models)
        if result["slots_busy"]:
            return "busy", "%d of %s slots work" % (result["slots_busy"], result["slots"] or "its")
        if sleeping:
            return "ready", "it sleeps, the next request loads the model"
        if self.api.model and result["model"] is None:
            return "ready", f"{self.api.model} is not loaded, the next request loads it"
        return "ready", "it is idle"

    def _lost_way(self) -> str:
        """What to do about workers without a connection."""
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

    def _describe(self, result: Result) -> tuple[bool, bool]:
        """Fills in model, slots, n_ctx, slots_busy as far as the server tells -> (whether it sleeps, whether it is too
        busy to tell)."""
        props, _silent = self._get("/props")
        kind = unit_kind(self.unit)[0] if self.unit else None
        if isinstance(props, dict) and props.get("role") == "router" and kind != "head":
            self.models, silent = router.describe(self.api, result, LOOK)
            return False, silent
        if isinstance(props, dict):
            result["model"] = props.get("model_alias") or props.get("model_path")
            result["slots"] = count(props.get("total_slots"), SLOTS_MOST) or None
            result["n_ctx"] = count(table(props.get("default_generation_settings")).get("n_ctx"), CONTEXT_MOST) or None
        sample = self._sample(sockets=False)
        if sample.slots is not None:
            result["slots"] = len(sample.slots)
            result["slots_busy"] = sum(1 for slot in sample.slots if slot.get("is_processing"))
        elif sample.requests is not None:
            result["slots_busy"] = int(sample.requests)
        return isinstance(props, dict) and bool(props.get("is_sleeping")), sample.silent

    def _get(self, path: str) -> tuple[Any, bool]:
        """-> (body of a 200 or None, whether nothing came): /slots and /metrics can be switched off, a router has no
        slots itself."""
        try:
            status, body = self.api.get(path, LOOK, of_model=True)
        except NoAnswer as error:
            return None, error.kind == "timeout"
        return (body if status == 200 else None), False

    def _sample(self, sockets: bool = True) -> Sample:
        slots, silent = self._get("/slots")
        text, _silent = self._get("/metrics")
        metrics = parse_metrics(text) if isinstance(text, str) else {}
        return Sample(
            slots=rows(slots),
            metrics=[metrics[name] for name in PROGRESS if name in metrics] or None,
            requests=metrics.get("requests_processing"),
            silent=silent,
            workers=connections(self.endpoints, self.pid) if sockets and self.endpoints else None,
        )

    def _watch(self, timeout: float) -> tuple[bool, Sample]:
        """Waits for progress -> (whether there was any within timeout seconds, last sample).

        llama-server's counters move once a batch and the sockets once a micro-batch, so timeout has to exceed the
        slowest of these; without sockets and counters (None) nothing can be seen to move.
        """
        start = time.monotonic()
        first = now = self._sample()
        while time.monotonic() - start < timeout:
            time.sleep(POLL)
            now = self._sample()
            counted = ((first.slots, now.slots), (first.metrics, now.metrics))
            if any(new is not None and new != old for old, new in counted) or _moved(first.workers, now.workers):
                return True, now
        return False, now

    def _deep(self, result: Result, prompt: str, max_tokens: int, timeout: float) -> None:
        """Turns 'it says it is up' into 'it works'; changes result."""
        if result["state"] == "busy":
            result["progress"], sample = self._watch(timeout)
            if not result["progress"]:
                result.update(
                    state="degraded",
                    reason=f"{result['reason']}, no progress in {timeout:g} s{_waits_for(sample)}",
                )
            return
        before = connections(self.endpoints, self.pid) if self.endpoints else []
        start = time.monotonic()
        try:
            status, body = self._ask(prompt, max_tokens, timeout)
        except NoAnswer as error:
            result.update(self.unanswered(error, timeout))
            return
        seconds = round(time.monotonic() - start, 3)
        if self.endpoints:
            result["workers"] = [one._asdict() for one in traffic(before, connections(self.endpoints, self.pid))]
        if status != 200 or not isinstance(body, dict):
            result.update(
                state="loading" if status == 503 else "degraded",
                reason="%s is answered %d (%s)" % (self.told.asked, status, error_text(body)),
            )
            return
        if self.api.model and body.get("model") not in (self.api.model, None):
            result.update(state="degraded", reason=router.refuse_answer(self.api.model, body))
            return
        if self.api.model and result["n_ctx"] is None:  # it is loaded by now
            self._describe(result)
        self.body = body
        _read_answer(result, body)
        if self.told.embeddings:  # nothing is generated, its text is read
            result["tokens"] = count(result["prompt_tokens"])
        result["seconds_to_answer"] = seconds
        unused = [
            worker["endpoint"]
            for worker in result["workers"]
            if not worker["connected"] or 0 in (worker["bytes_sent"], worker["bytes_received"])
        ]
        if not result["tokens"]:
            result.update(state="degraded", reason=f"{self.told.asked} is answered without a token")
        elif unused:
            result.update(
                state="degraded",
                reason=f"it answers, but not over {', '.join(unused)}: compare tensor_split with --rpc",
            )
        else:
            result["reason"] = "it answered %d tokens in %.1f s" % (result["tokens"], result["seconds_to_answer"])

    def _ask(self, prompt: str, max_tokens: int, timeout: float) -> Answer:
        if self.told.reranking:
            return self.api.rerank(prompt, timeout)
        if self.told.embeddings:
            return self.api.embed(prompt, timeout)
        return self.api.chat(prompt, max_tokens, timeout)

    def unanswered(self, error: NoAnswer, timeout: float) -> Result:
        """What a completion without HTTP answer means -> changes of the result."""
        if error.kind == "timeout":
            # Another request may have come first: a queue that moves is a healthy head.
            progress, sample = self._watch(timeout)
            if progress and any(slot.get("is_processing") for slot in sample.slots or []):
                return {
                    "state": "busy",
                    "reason": f"no turn for a completion in {timeout:g} s, other requests make progress",
                    "progress": True,
                }
            since = "" if progress else ", no progress since" + _waits_for(sample)
            reason = f"no answer to a completion in {timeout:g} s{since}"
            return {"state": "degraded", "reason": reason, "progress": progress}
        again, _hopeless = self._look()
        again["reason"] = f"it broke off while it answered a completion ({error}); now: {again['reason']}"
        if again["state"] in SERVING:
            again["state"] = "degraded"
        return again


def key_of(unit: str, folder: str = paths.KEYS) -> str | None:
    """The key of a unit of ours, from the file of its service's name; None where there is no such file.

    What the unit's process says of its arguments is not believed: one that was taken over would have root read any file
    to it.
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


def _moved(first: list[Connection] | None, now: list[Connection] | None) -> bool:
    """Whether a worker answered between two samples; what is sent to a hanging worker is still acknowledged by its
    kernel."""
    return any(worker.bytes_received for worker in traffic(first or [], now or []))


def _waits_for(sample: Sample) -> str:
    endpoints = awaited(sample.workers or [])
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
