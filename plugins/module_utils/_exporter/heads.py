# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a head or router says of itself, asked rarely: each question is a line in its journal. Private to the
collection."""

from __future__ import annotations

import time
from typing import Any

from .._llama.api import LlamaApi, count, read_api_key
from .._llama.server import ANSWERING, PROGRESS, Sample, probe, progress
from .._node import paths
from .._watchdog.samples import Links, Unit
from .config import Watched, read_json
from .exposition import Family
from .metrics import Families

# Seconds between two looks.
LOOK = 15.0
# Seconds of generation from which a rate means something.
SHORT = 0.2
# Tokens between two looks that the watchdog has asked for: one in seven seconds.
WATCHDOG = 4
# What is kept of a page of metrics.
GENERATED, SECONDS = "tokens_predicted_total", "tokens_predicted_seconds_total"
COUNTED = PROGRESS + (SECONDS,)


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
        if process != self._process:
            self._process, self._rate, self._before = process, None, {}
        if process is None:
            seen = Sample("stopped" if self._stopped else "down")
        else:
            seen = probe(self.api(), self._told.kind == "router")
        still = self._still(seen)
        self._state = seen.state
        return self._families(seen, still)

    def api(self) -> LlamaApi:
        key = self._told.told.get("api_key_file")
        process = self._process[0] if self._process else 0
        return LlamaApi(str(self._told.told.get("url")), read_api_key(key) if key else None, pid=process)

    def _still(self, seen: Sample) -> float:
        """Seconds for which requests have been at work and nothing has moved."""
        now = time.monotonic()
        first = not self._before  # of a process that may have worked for days
        grown = self._grown(seen)
        if seen.requests or grown.get(GENERATED, 0.0) > WATCHDOG:
            self._requested = now
        received = self._links.look()[1] if seen.requests else None
        moving = [(one["model"], count(one.get("id_task")), progress(one)) for one in seen.working]
        if not seen.requests or any(grown.values()) or (moving, received) != self._moved[0]:
            self._moved = ((moving, received), now)
        tokens, seconds = grown.get(GENERATED, 0.0), grown.get(SECONDS, 0.0)
        # What took no time was no work.
        if tokens > 0 and seconds > SHORT and not first:
            self._rate = tokens / seconds
        return now - self._moved[1]

    def _grown(self, seen: Sample) -> dict[str, float]:
        """By how much each counter has grown, over all models of a router: one that was unloaded takes nothing back."""
        grown: dict[str, float] = {}
        if seen.models is not None:
            self._before = {key: value for key, value in self._before.items() if key[0] in seen.models}
        for key, value in seen.counters.items():
            if key[1] not in COUNTED:
                continue
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

    def _families(self, seen: Sample, still: float) -> list[Family]:
        found = Families()
        kept = read_json(paths.BASELINES.replace("*", self._told.service)).get("tokens_per_second")
        for name, value in (
            ("llama_endpoint_ready", int(seen.state in ANSWERING)),
            ("llama_endpoint_asked_seconds", round(self._asked, 3)),
            ("llama_slots", seen.slots),
            ("llama_slots_busy", seen.busy),
            ("llama_context_slot_tokens", seen.context),
            ("llama_context_used_tokens", seen.used),
            ("llama_requests_processing", seen.requests),
            ("llama_requests_deferred", seen.deferred),
            ("llama_prompt_tokens_total", self._totals.get("prompt_tokens_total")),
            ("llama_generated_tokens_total", self._totals.get(GENERATED)),
            ("llama_busy_without_tokens_seconds", round(still, 1) if seen.requests else 0),
            ("llama_generation_tokens_per_second", self._rate),
            ("llama_baseline_tokens_per_second", kept if isinstance(kept, (int, float)) else None),
        ):
            found.add(name, value, service=self._told.service)
        found.add("llama_endpoint_state", 1, service=self._told.service, state=seen.state)
        return found.all()
