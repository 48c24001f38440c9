# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine counts, as Prometheus reads it: numbers of requests and times, and never what was asked or answered.
Private to the collection."""

import bisect
import time
from collections.abc import Mapping
from typing import Any

from .._exporter.exposition import Family, render
from .replicas import Fleet

TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds; from a short answer of a small model to the longest prompt.
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
# Names that nothing serves and that are counted by themselves: clients may send any number of them.
NAMES, OTHER = 32, "other"


class Histogram:
    """Of one service."""

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def saw(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def tell(self, family: Family, service: str) -> None:
        below = 0
        for bound, count in zip(BOUNDS + (float("inf"),), self.counts):
            below += count
            family.add_part("_bucket", below, service=service, le="+Inf" if bound == float("inf") else f"{bound:g}")
        family.add_part("_sum", round(self.sum, 4), service=service)
        family.add_part("_count", below, service=service)


class Counts:
    """Since the engine began."""

    def __init__(self) -> None:
        self.read = time.time()  # when what is configured was read
        self._requests: dict[tuple[str, str], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self._first: dict[str, Histogram] = {}
        self._queue: dict[str, Histogram] = {}
        self._retries: dict[str, int] = {}
        self._fallbacks: dict[str, int] = {}
        self._unknown: dict[str, int] = {}
        self._context: dict[str, int] = {}

    def ended(self, fields: Mapping[str, Any]) -> None:
        """A request, as the access log has it."""
        service = fields["service"] or ""
        _one_more(self._requests, (service, str(fields["status"] or 499)))
        if not service:
            return
        # The access log rounds when it is written.
        self._seconds.setdefault(service, Histogram()).saw(fields["seconds"] or 0.0)
        self._queue.setdefault(service, Histogram()).saw(fields["queued"])
        if fields["ttfb"] is not None:
            self._first.setdefault(service, Histogram()).saw(fields["ttfb"])
        if fields["tries"] > 1:
            _one_more(self._retries, service, fields["tries"] - 1)
        if fields["fallback"]:
            _one_more(self._fallbacks, fields["fallback"])
        if fields.get("refused") == "context":
            _one_more(self._context, service)

    def unknown(self, name: str) -> None:
        """A model was asked for that no service has."""
        _one_more(self._unknown, name if name in self._unknown or len(self._unknown) < NAMES else OTHER)

    def text(self, fleet: Fleet) -> str:
        """The page."""
        found = []

        def family(name: str, kind: str, words: str) -> Family:
            found.append(Family("llama_gateway_" + name, kind, words))
            return found[-1]

        requests = family("requests_total", "counter", "Requests that ended; 499: the client left.")
        for (service, code), count in sorted(self._requests.items()):
            requests.add(count, service=service, code=code)
        for name, histograms, words in (
            ("seconds", self._seconds, "Seconds from a request to the end of its answer."),
            ("first_byte_seconds", self._first, "Seconds to the first byte of its answer."),
            ("queue_seconds", self._queue, "Seconds that it waited for a slot."),
        ):
            one = family(name, "histogram", words)
            for service, histogram in sorted(histograms.items()):
                histogram.tell(one, service)
        for name, counts, words in (
            ("retries_total", self._retries, "Servers that a request was sent to after the first."),
            ("fallbacks_total", self._fallbacks, "Requests of a service that went to its fallback."),
            ("context_refused_total", self._context, "Requests that were longer than a slot."),
        ):
            one = family(name, "counter", words)
            for service in fleet.pools:
                one.add(counts.get(service, 0), service=service)
        unknown = family("names_unknown_total", "counter", "Requests for a model that no service has.")
        for name, count in sorted(self._unknown.items()):
            unknown.add(count, name=name)
        queued = family("queued", "gauge", "Requests that wait for a slot.")
        flight = family("in_flight", "gauge", "Requests at a server.")
        state = family("endpoint_state", "gauge", "The state that holds.")
        for service, pool in fleet.pools.items():
            queued.add(len(pool.queue), service=service)
            # A node may have several of one service, those of jobs: a sample is told once.
            nodes: dict[str, int] = {}
            for endpoint in pool.endpoints:
                _one_more(nodes, endpoint.where.node, endpoint.in_flight)
            for node, count in nodes.items():
                flight.add(count, service=service, node=node)
            for node, seen in sorted({(one.where.node, one.state) for one in pool.endpoints}):
                state.add(1, service=service, node=node, state=seen)
        family("read_seconds", "gauge", "When the configuration was read, since 1970.").add(round(self.read, 1))
        return render(found)


def _one_more(counts: dict[Any, int], key: Any, more: int = 1) -> None:
    counts[key] = counts.get(key, 0) + more
