# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics of the engine for Prometheus: numbers of requests and times, without any text of prompts or answers.
Private to the collection."""

import bisect
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from .._exporter.exposition import Family, render
from .replicas import NO_WORD, WAITING, Fleet

TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Bounds in seconds, from a short answer of a small model to the longest prompt.
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
# Unknown names that are counted separately: clients may send any number of them.
NAMES, OTHER = 32, "other"
SECONDS = (
    ("seconds", "Seconds from a request to the end of its answer."),
    ("first_byte_seconds", "Seconds to the first byte of its answer."),
    ("queue_seconds", "Seconds that it waited for a slot."),
)
OF_SERVICES = (
    ("retries", "Servers that a request was sent to after the first."),
    ("fallbacks", "Requests of a service that went to its fallback."),
    ("context_refused", "Requests that were longer than a slot."),
)


class Histogram:
    """A histogram of one service."""

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def write(self, family: Family, service: str) -> None:
        below = 0
        for bound, count in zip((*(f"{one:g}" for one in BOUNDS), "+Inf"), self.counts):
            below += count
            family.add_part("_bucket", below, service=service, le=bound)
        family.add_part("_sum", round(self.sum, 4), service=service)
        family.add_part("_count", below, service=service)


class Counts:
    """Counters since the engine's start."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._unknown: Counter[str] = Counter()
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._seconds: dict[str, dict[str, Histogram]] = defaultdict(lambda: defaultdict(Histogram))

    def ended(self, fields: Mapping[str, Any]) -> None:
        """Counts a request by the fields of its log entry."""
        service = fields["service"] or ""
        self._requests[service, str(fields["status"] or 499)] += 1
        if not service:
            return
        self._seconds["seconds"][service].add(fields["seconds"] or 0.0)
        self._seconds["queue_seconds"][service].add(fields["queued"])
        if fields["ttfb"] is not None:
            self._seconds["first_byte_seconds"][service].add(fields["ttfb"])
        self._counts["retries"][service] += max(0, fields["tries"] - 1)
        self._counts["context_refused"][service] += fields.get("refused") == "context"
        if fields["fallback"]:
            self._counts["fallbacks"][fields["fallback"]] += 1

    def unknown(self, name: str) -> None:
        """Counts a request for an unknown model."""
        self._unknown[name if name in self._unknown or len(self._unknown) < NAMES else OTHER] += 1

    def text(self, fleet: Fleet) -> str:
        """The text of /metrics."""
        found = []

        def family(name: str, kind: str, words: str) -> Family:
            found.append(Family("llama_gateway_" + name, kind, words))
            return found[-1]

        requests = family("requests_total", "counter", "Requests that ended; 499: the client left.")
        for (service, code), count in sorted(self._requests.items()):
            requests.add(count, service=service, code=code)
        for name, words in SECONDS:
            one = family(name, "histogram", words)
            for service, histogram in sorted(self._seconds[name].items()):
                histogram.write(one, service)
        for name, words in OF_SERVICES:
            one = family(name + "_total", "counter", words)
            for service in fleet.pools:
                one.add(self._counts[name][service], service=service)
        unknown = family("names_unknown_total", "counter", "Requests for a model that no service has.")
        for name, count in sorted(self._unknown.items()):
            unknown.add(count, name=name)
        queued = family("queued", "gauge", "Requests that wait for a slot.")
        flight = family("in_flight", "gauge", "Requests at a server.")
        state = family("endpoint_state", "gauge", "The state that holds.")
        for service, pool in fleet.pools.items():
            queued.add(len(pool.queue), service=service)
            # A node may have several endpoints of one service, started by jobs: they are one sample.
            nodes: Counter[str] = Counter()
            for endpoint in pool.endpoints:
                nodes[endpoint.where.node] += endpoint.in_flight
            for node, count in nodes.items():
                flight.add(count, service=service, node=node)
            for node, seen in sorted({(one.where.node, one.state) for one in pool.endpoints}):
                state.add(1, service=service, node=node, state=seen)
            if pool.state == WAITING:
                state.add(1, service=service, node=(pool.waiting or NO_WORD).node, state=WAITING)
        return render(found)
