# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The servers of this node: state, slots, and work since the previous sample. Private to the collection."""

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

# Seconds between two samples.
LOOK = 15.0
# Seconds of generation below which a rate means nothing.
SHORT = 0.2
# Counters that are kept.
GENERATED, SECONDS = "tokens_predicted_total", "tokens_predicted_seconds_total"
COUNTED = PROGRESS + (SECONDS,)


class Server:
    """A head or router of this node. Only one thread calls look()."""

    def __init__(self, watched: Watched, stopped: bool) -> None:
        self._watched, self._stopped = watched, stopped
        self._unit = Unit(watched.unit)
        self._links = Links([str(end) for end in watched.settings.get("rpc_endpoints") or []])
        self._process: Any = None
        self._moved: tuple[Any, float] = (None, time.monotonic())  # progress, and the time of its last change
        self._before: dict[tuple[str | None, str], float] = {}  # counters of the server
        self._totals: dict[str, float] = {}  # over all processes and models since the sampler started
        self._rate: float | None = None

    def look(self) -> list[Family]:
        probed = time.time()
        process = self._unit.look(time.monotonic())
        if process != self._process:
            self._process, self._rate, self._before = process, None, {}
        if process is None:
            seen = Sample("stopped" if self._stopped else "down")
        else:
            key = self._watched.settings.get("api_key_file")
            url = str(self._watched.settings.get("url"))
            api = LlamaApi(url, read_api_key(key) if key else None, pid=process[0])
            seen = probe(api, self._watched.kind == "router")
        return self._families(seen, self._still(seen), probed)

    def _still(self, seen: Sample) -> float:
        """Seconds without progress of the running requests."""
        now = time.monotonic()
        first = not self._before  # the process may have worked for days
        grown = self._grown(seen)
        received = self._links.look()[1] if seen.requests else None
        moving = [(one["model"], count(one.get("id_task")), progress(one)) for one in seen.working]
        if not seen.requests or any(grown.values()) or (moving, received) != self._moved[0]:
            self._moved = ((moving, received), now)
        tokens, seconds = grown.get(GENERATED, 0.0), grown.get(SECONDS, 0.0)
        if tokens > 0 and seconds > SHORT and not first:
            self._rate = tokens / seconds
        return now - self._moved[1]

    def _grown(self, seen: Sample) -> dict[str, float]:
        """The growth of each counter over all models of a router; unloading a model subtracts nothing."""
        grown: dict[str, float] = {}
        if seen.models is not None:
            self._before = {key: value for key, value in self._before.items() if key[0] in seen.models}
        for key, value in seen.counters.items():
            if key[1] not in COUNTED:
                continue
            before = self._before.get(key, 0.0)
            # A smaller value comes from another process.
            grown[key[1]] = grown.get(key[1], 0.0) + (value - before if value >= before else value)
            self._before[key] = value
        for name, more in grown.items():
            self._totals[name] = self._totals.get(name, 0.0) + more
        return grown

    def _families(self, seen: Sample, still: float, probed: float) -> list[Family]:
        found, service = Families(), self._watched.service
        kept = read_json(paths.BASELINES.replace("*", service)).get("tokens_per_second")
        for name, value in (
            ("llama_endpoint_ready", int(seen.state in ANSWERING)),
            ("llama_endpoint_asked_seconds", round(probed, 3)),
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
            found.add(name, value, service=service)
        found.add("llama_endpoint_state", 1, service=service, state=seen.state)
        return found.all()
