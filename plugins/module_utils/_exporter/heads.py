# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a head or router says of itself, asked rarely: each question is a line in its journal. Private to the
collection."""

from __future__ import annotations

import time
from typing import Any

from .._llama.api import LlamaApi, NoAnswer, count, parse_metrics, read_api_key, rows, table
from .._node import paths
from .._serving.health import SLOTS_MOST
from .._watchdog.samples import MODELS_MOST, PROGRESS, Links, Unit
from .config import Watched, read_json
from .exposition import Family

# Seconds between two looks, and for an answer.
LOOK, ANSWER = 15.0, 5.0
# Seconds of generation from which a rate means something.
SHORT = 0.2
# Tokens between two looks that the watchdog has asked for: one in seven seconds.
WATCHDOG = 4
# What is kept of a page of metrics.
GENERATED, SECONDS = "tokens_predicted_total", "tokens_predicted_seconds_total"
COUNTED = PROGRESS + (SECONDS,)
# More than any server counts.
MOST = 2.0**60


class Seen:
    """One look. models: of a router, that are loaded."""

    def __init__(self) -> None:
        self.state = "down"
        self.slots: int | None = None
        self.busy: int | None = None
        self.context: int | None = None
        self.used: int | None = None
        self.requests: float | None = None
        self.deferred: float | None = None
        self.counters: dict[tuple[str | None, str], float] = {}  # (model of a router, name): value
        self.moving: list[Any] = []  # what changes while somebody is at work, beside the counters


class Asked:
    """A head or router of this node. look() is called by one thread alone."""

    def __init__(self, told: Watched, stopped: bool) -> None:
        self._told, self._stopped = told, stopped
        self._unit = Unit(told.unit)
        self._links = Links([str(end) for end in told.told.get("rpc_endpoints") or []])
        self._state: str | None = None  # at the last look
        self._process: Any = None
        self._moved: tuple[Any, float] = (None, time.monotonic())  # what moves, and since when it is so
        self._before: dict[tuple[str | None, str], float] = {}  # as the server counts
        self._totals: dict[str, float] = {}  # over all processes and models since this began
        self._rate: float | None = None
        self._asked = 0.0
        self._requested = time.monotonic()  # when somebody was last seen to ask

    def look(self) -> list[Family]:
        self._asked = time.time()
        process = self._unit.look(time.monotonic())
        seen = Seen()
        if process != self._process:
            self._process, self._rate, self._before = process, None, {}
        if process is None:
            seen.state = "stopped" if self._stopped else "down"
        else:
            try:
                self._ask(seen)
            except NoAnswer as error:
                seen.state = "down" if error.kind in ("timeout", "stranger") else "loading"
        still = self._still(seen)
        self._state = seen.state
        return self._families(seen, still)

    def api(self) -> LlamaApi:
        key = self._told.told.get("api_key_file")
        process = self._process[0] if self._process else 0
        return LlamaApi(str(self._told.told.get("url")), read_api_key(key) if key else None, pid=process)

    def _ask(self, seen: Seen) -> None:
        """Errors: NoAnswer, where it does not say how it is."""
        api = self.api()
        if self._told.kind == "router":
            status, body = api.get("/models", ANSWER)
            seen.state = "ready" if status == 200 else "loading" if status == 503 else "down"
            models = (rows(table(body).get("data")) or [])[:MODELS_MOST] if status == 200 else []
            loaded = [str(one.get("id")) for one in models if table(one.get("status")).get("value") == "loaded"]
            seen.requests = seen.deferred = 0.0
            end = time.monotonic() + LOOK
            self._before = {key: value for key, value in self._before.items() if key[0] in loaded}
            for name in loaded:
                if time.monotonic() < end:
                    self._work(seen, api.of(name), of_model=True)
            return
        # The one answer that does not wake a server that sleeps.
        status, props = api.get("/props", ANSWER)
        if status == 503:
            seen.state = "loading"
            return
        if status != 200:
            seen.state = "down"
            return
        seen.state = "sleeping" if table(props).get("is_sleeping") else "ready"
        seen.slots = min(count(table(props).get("total_slots")), SLOTS_MOST) or None
        seen.context = count(table(table(props).get("default_generation_settings")).get("n_ctx")) or None
        if seen.state == "ready":
            self._work(seen, api)

    def _work(self, seen: Seen, api: LlamaApi, of_model: bool = False) -> None:
        """Adds what a server with a model has to do. One that is too busy to say so serves all the same: some builds
        are silent between two batches."""
        before = seen.requests
        try:
            self._add(seen, api, of_model)
        except NoAnswer as error:
            if error.kind == "timeout" and seen.requests == before:
                seen.requests = (before or 0.0) + 1.0

    def _add(self, seen: Seen, api: LlamaApi, of_model: bool) -> None:
        status, text = api.get("/metrics", ANSWER, of_model=of_model)
        metrics = parse_metrics(text) if status == 200 and isinstance(text, str) else {}
        for name in COUNTED:
            if metrics.get(name, MOST) < MOST:
                seen.counters[api.model, name] = metrics[name]
        busy = metrics.get("requests_processing")
        seen.requests = (seen.requests or 0.0) + busy if busy is not None else seen.requests
        seen.deferred = (seen.deferred or 0.0) + metrics.get("requests_deferred", 0.0) if metrics else seen.deferred
        if busy == 0:
            seen.busy, seen.used = seen.busy or 0, seen.used or 0
            if not of_model:
                return
        status, body = api.get("/slots", ANSWER, of_model=of_model)
        slots = (rows(body) or [])[:SLOTS_MOST] if status == 200 else []
        if of_model and slots:
            seen.slots = (seen.slots or 0) + len(slots)
            seen.context = max([seen.context or 0] + [count(one.get("n_ctx")) for one in slots]) or None
        working = [one for one in slots if one.get("is_processing")]
        seen.busy = (seen.busy or 0) + len(working)
        seen.used = max([seen.used or 0] + [_used(one) for one in working])
        seen.moving += [(api.model, count(one.get("id_task")), _progress(one)) for one in working]
        if busy is None:
            seen.requests = (seen.requests or 0.0) + len(working)

    def _still(self, seen: Seen) -> float:
        """Seconds for which requests have been at work and nothing has moved."""
        now = time.monotonic()
        first = not self._before  # of a process that may have worked for days
        grown = self._grown(seen)
        if seen.requests or grown.get(GENERATED, 0.0) > WATCHDOG:
            self._requested = now
        received = self._links.look()[1] if seen.requests else None
        if not seen.requests or any(grown.values()) or (seen.moving, received) != self._moved[0]:
            self._moved = ((seen.moving, received), now)
        tokens, seconds = grown.get(GENERATED, 0.0), grown.get(SECONDS, 0.0)
        # What took no time was no work.
        if tokens > 0 and seconds > SHORT and not first:
            self._rate = tokens / seconds
        return now - self._moved[1]

    def _grown(self, seen: Seen) -> dict[str, float]:
        """By how much each counter has grown, over all models of a router: one that was unloaded takes nothing back."""
        grown: dict[str, float] = {}
        for key, value in seen.counters.items():
            before = self._before.get(key, 0.0)
            # One that has fallen is another process's.
            grown[key[1]] = grown.get(key[1], 0.0) + (value - before if value >= before else value)
            self._before[key] = value
        for name, more in grown.items():
            self._totals[name] = self._totals.get(name, 0.0) + more
        return grown

    def idle(self) -> float | None:
        """Seconds for which a loaded server has had nothing to do; None for one that must not be asked for anything."""
        return time.monotonic() - self._requested if self._state == "ready" else None

    def _families(self, seen: Seen, still: float) -> list[Family]:
        service = self._told.service
        found = []

        def gauge(name: str, words: str, value: Any, kind: str = "gauge", **labels: Any) -> None:
            family = Family(name, kind, words)
            family.add(value, service=service, **labels)
            found.append(family)

        gauge("llama_endpoint_state", "The state that holds.", 1, state=seen.state)
        gauge("llama_endpoint_ready", "Whether the endpoint answers.", int(seen.state in ("ready", "sleeping")))
        gauge("llama_endpoint_asked_seconds", "When that was so, since 1970.", round(self._asked, 3))
        gauge("llama_slots", "Slots of the server.", seen.slots)
        gauge("llama_slots_busy", "Slots at work.", seen.busy)
        gauge("llama_context_slot_tokens", "Context of a slot.", seen.context)
        gauge("llama_context_used_tokens", "Tokens in the fullest slot at work.", seen.used)
        gauge("llama_requests_processing", "Requests at work.", seen.requests)
        gauge("llama_requests_deferred", "Requests that wait for a slot.", seen.deferred)
        for metric, name, words in (
            ("prompt_tokens_total", "llama_prompt_tokens_total", "Tokens of prompts that were read."),
            (GENERATED, "llama_generated_tokens_total", "Tokens that were generated."),
        ):
            gauge(name, words, self._totals.get(metric), kind="counter")
        gauge(
            "llama_busy_without_tokens_seconds",
            "How long requests have been at work while nothing moved.",
            round(still, 1) if seen.requests else 0,
        )
        gauge("llama_generation_tokens_per_second", "Of the last answers, as the server counts.", self._rate)
        kept = read_json(paths.BASELINES.replace("*", service))
        baseline = kept.get("tokens_per_second")
        gauge(
            "llama_baseline_tokens_per_second",
            "What upgrade.yml has measured.",
            baseline if isinstance(baseline, (int, float)) else None,
        )
        return found


def _progress(slot: dict[str, Any]) -> tuple[int, int]:
    """Of a slot at work, tokens (of its prompt that were read, generated)."""
    step = slot.get("next_token")
    step = step[0] if isinstance(step, list) and step else step
    return count(slot.get("n_prompt_tokens_processed")), count(table(step).get("n_decoded"))


def _used(slot: dict[str, Any]) -> int:
    """Tokens that a slot at work holds, or is about to."""
    read, generated = _progress(slot)
    return max(count(slot.get("n_prompt_tokens")), read) + generated
