# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a head or router says of itself, asked rarely: each question is a line in its journal. Private to the
collection."""

import time
from typing import Any, Dict, List, Optional, Tuple

from .._llama.api import LlamaApi, NoAnswer, count, parse_metrics, read_api_key, rows, table
from .._llama.args import told as told_by
from .._node import paths
from .._node.units import unit_info
from .._serving.conversation import Conversation
from .._serving.health import SERVING, SLOTS_MOST, Head
from .._watchdog.samples import MODELS_MOST, Unit
from .config import Watched, read_json
from .exposition import Family

# Seconds between two looks, for an answer, and between two proofs of a conversation; seconds without a request before
# one, so that it disturbs nobody.
LOOK, ANSWER, PROOF, IDLE = 15.0, 5.0, 3600.0, 60.0
# Seconds of generation from which a rate means something.
SHORT = 0.2
STATES = ("ready", "loading", "down", "stopped", "sleeping")
WORDS = "Hello. Answer with one word."


class Seen:
    """One look. models: of a router, that are loaded."""

    def __init__(self) -> None:
        self.state = "down"
        self.slots: Optional[int] = None
        self.busy: Optional[int] = None
        self.context: Optional[int] = None
        self.used: Optional[int] = None
        self.requests: Optional[float] = None
        self.deferred: Optional[float] = None
        self.counters: Dict[str, float] = {}


class Asked:
    """A head or router of this node. look() is called by one thread alone."""

    def __init__(self, told: Watched, stopped: bool) -> None:
        self._told, self._stopped = told, stopped
        self._unit = Unit(told.unit)
        self._props: Tuple[Any, Optional[int], Optional[int]] = (None, None, None)  # process, slots, context
        self._moved: Tuple[Any, float] = (None, time.monotonic())  # what moves, and since when it is so
        self._before: Dict[str, float] = {}
        self._rate: Optional[float] = None
        self._requested = time.monotonic()  # when somebody was last seen to ask
        self._proof: Optional[Tuple[bool, float]] = None
        self._proved = time.monotonic() - PROOF + 2 * IDLE

    def look(self) -> List[Family]:
        process = self._unit.look(time.monotonic())
        seen = Seen()
        if process is None:
            seen.state = "stopped" if self._stopped else "down"
        else:
            try:
                self._ask(seen, process)
            except NoAnswer as error:
                seen.state = "down" if error.kind == "timeout" else "loading"
        still = self._still(seen)
        if seen.state == "ready" and self._told.kind == "head":
            self._prove(seen)
        return self._families(seen, still)

    def _api(self) -> LlamaApi:
        key = self._told.told.get("api_key_file")
        return LlamaApi(str(self._told.told.get("url")), read_api_key(key) if key else None)

    def _ask(self, seen: Seen, process: Any) -> None:
        api = self._api()
        if self._told.kind == "router":
            status, body = api.get("/models", ANSWER)
            seen.state = "ready" if status == 200 else "loading" if status == 503 else "down"
            models = (rows(table(body).get("data")) or [])[:MODELS_MOST] if status == 200 else []
            loaded = [str(one.get("id")) for one in models if table(one.get("status")).get("value") == "loaded"]
            seen.requests = seen.deferred = 0.0
            for name in loaded:
                self._of(seen, api.of(name), of_model=True)
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
            self._of(seen, api)

    def _of(self, seen: Seen, api: LlamaApi, of_model: bool = False) -> None:
        """Adds what a server with a model says."""
        status, text = api.get("/metrics", ANSWER, of_model=of_model)
        metrics = parse_metrics(text) if status == 200 and isinstance(text, str) else {}
        for name, value in metrics.items():
            if name.endswith("_total"):
                seen.counters[name] = seen.counters.get(name, 0.0) + value
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
        for one in working:
            key = "slot %s" % one.get("id_task")
            seen.counters[key] = float(_used(one))

    def _still(self, seen: Seen) -> float:
        """Seconds for which requests have been at work and nothing has moved."""
        now = time.monotonic()
        name = "tokens_predicted_total"
        if seen.requests or seen.counters.get(name) != self._before.get(name):
            self._requested = now
        moving = sorted(seen.counters.items())
        if not seen.requests or moving != self._moved[0]:
            self._moved = (moving, now)
        self._rates(seen)
        return now - self._moved[1]

    def _rates(self, seen: Seen) -> None:
        names = ("tokens_predicted_total", "tokens_predicted_seconds_total")
        now = [seen.counters.get(name) for name in names]
        before = [self._before.get(name) for name in names]
        if None not in now and None not in before:
            tokens, seconds = [float(one or 0) - float(other or 0) for one, other in zip(now, before)]
            # What took no time was no work.
            if tokens > 0 and seconds > SHORT:
                self._rate = tokens / seconds
            elif tokens < 0:
                self._rate = None  # another process
        self._before = dict(seen.counters)

    def _prove(self, seen: Seen) -> None:
        """Once an hour, of a service that nobody asks: what it answers can be used."""
        now = time.monotonic()
        if now - self._proved < PROOF or seen.requests or now - self._requested < IDLE:
            return
        self._proved = now
        told = self._told.told
        line = told_by(unit_info([self._told.unit])[0].arguments)
        endpoints = [str(one) for one in told.get("rpc_endpoints") or []]
        head = Head(self._api(), endpoints, self._told.unit, own_key=True, told=line)
        asked: Dict[str, Any] = {"prompt": WORDS, "max_tokens": 16, "timeout": 120.0}
        result = head.check(0, asked)
        if result["state"] == "ready":
            Conversation(head, head.told, result, **asked).hold(False)
        if result["state"] in SERVING or result["state"] == "degraded":
            self._proof = (result["state"] in SERVING, time.time())
        # What it cost is no request of anybody's.
        self._before = {}

    def _families(self, seen: Seen, still: float) -> List[Family]:
        service = self._told.service
        found = []

        def gauge(name: str, words: str, value: Any, kind: str = "gauge", **labels: Any) -> None:
            family = Family(name, kind, words)
            family.add(value, service=service, **labels)
            found.append(family)

        gauge("llama_endpoint_state", "The state that holds.", 1, state=seen.state)
        gauge("llama_endpoint_ready", "Whether the endpoint answers.", int(seen.state in ("ready", "sleeping")))
        gauge("llama_slots", "Slots of the server.", seen.slots)
        gauge("llama_slots_busy", "Slots at work.", seen.busy)
        gauge("llama_context_slot_tokens", "Context of a slot.", seen.context)
        gauge("llama_context_used_tokens", "Tokens in the fullest slot at work.", seen.used)
        gauge("llama_requests_processing", "Requests at work.", seen.requests)
        gauge("llama_requests_deferred", "Requests that wait for a slot.", seen.deferred)
        for metric, name, words in (
            ("prompt_tokens_total", "llama_prompt_tokens_total", "Tokens of prompts that were read."),
            ("tokens_predicted_total", "llama_generated_tokens_total", "Tokens that were generated."),
        ):
            gauge(name, words, seen.counters.get(metric), kind="counter")
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
        if self._proof:
            gauge("llama_conversation_ok", "Whether the last proof held.", int(self._proof[0]))
            gauge("llama_conversation_timestamp_seconds", "When it was asked, since 1970.", round(self._proof[1], 1))
        return found


def _used(slot: Dict[str, Any]) -> int:
    """Tokens in a slot at work."""
    step = slot.get("next_token")
    step = step[0] if isinstance(step, list) and step else step
    prompt = max(count(slot.get("n_prompt_tokens")), count(slot.get("n_prompt_tokens_processed")))
    return prompt + count(table(step).get("n_decoded"))
