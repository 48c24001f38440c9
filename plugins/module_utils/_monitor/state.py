# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the samples of all nodes say together. Private to the collection."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._exporter.exposition import Sample
from .._llama.api import table
from .._llama.server import ANSWERING
from .._text import printable
from .read import Follower, Reading

# Seconds after which samples are old: a sampler writes each two.
OLD = 15.0
# Seconds that a rate of the fabric needs.
SHORTEST = 1.5
# Of one host or page.
MOST_ALERTS, MOST_SERVICES, MOST_SAMPLES = 200, 64, 1000
# Of a service with replicas the best of them counts.
ORDER = ("ready", "sleeping", "loading", "starting", "unknown", "down")
PAGE = "page"


class Endpoint(NamedTuple):
    """A head or router of a service."""

    service: str
    node: str
    state: str
    wanted: bool
    slots: int | None
    busy: int | None
    waiting: int | None
    used: int | None
    limit: int | None
    speed: float | None  # tokens/s of an answer, as the server counts
    links: int
    links_up: int
    model: str


class Card(NamedTuple):
    node: str
    gpu: str
    name: str
    busy: float | None
    used: float | None
    total: float | None
    watts: float | None
    celsius: float | None
    throttled: tuple[str, ...]
    foreign: int


class Unit(NamedTuple):
    node: str
    unit: str
    active: bool
    wanted: bool
    restarts: int


class Repair(NamedTuple):
    at: float
    node: str
    unit: str
    reason: str


class Node(NamedTuple):
    """error: why nothing new is known of it, since: for how many seconds."""

    name: str
    error: str
    since: float
    held: bool
    received: float | None  # bytes/s over the fabric
    sent: float | None
    fabric: str  # up, down or nothing


class Gateway(NamedTuple):
    """error, since: as of a node."""

    host: str
    error: str
    since: float
    waiting: int | None
    at_work: int | None
    not_ready: list[str]  # endpoints that get no request, as SERVICE on NODE: STATE


class Alert(NamedTuple):
    name: str
    severity: str
    where: str
    summary: str


class Cluster(NamedTuple):
    """alerts_error: why alerts are not known; None where there is no alertmanager to ask."""

    endpoints: list[Endpoint]
    nodes: list[Node]
    units: list[Unit]
    cards: list[Card]
    repairs: list[Repair]
    gateways: list[Gateway]
    alerts: list[Alert]
    alerts_error: str | None


class Samples:
    """Of one page, by name."""

    def __init__(self, one: Follower) -> None:
        self._kept = one.kept
        self._by_name: dict[str, list[Sample]] = {}
        for sample in one.last.samples if one.last else ():
            family = self._by_name.setdefault(sample.name, [])
            if len(family) < MOST_SAMPLES and math.isfinite(sample.value):
                family.append(sample)

    def of(self, name: str, **labels: str) -> list[Sample]:
        """With these labels."""
        found = self._by_name.get(name, [])
        return [one for one in found if all(one.labels.get(key) == value for key, value in labels.items())]

    def value(self, name: str, **labels: str) -> float | None:
        found = self.of(name, **labels)
        return found[0].value if found else None

    def whole(self, name: str, **labels: str) -> int | None:
        value = self.value(name, **labels)
        return int(value) if value is not None and abs(value) < 2**62 else None

    def total(self, name: str) -> int | None:
        found = self.of(name)
        return int(sum(one.value for one in found)) if found else None

    def rate(self, name: str) -> float | None:
        """Per second, of a counter over all its labels; None where it is not known, or began anew."""
        first, last = self._kept[0], self._kept[-1]
        before, now = (sum(one.value for one in seen.samples if one.name == name) for seen in (first, last))
        seconds = last.at - first.at
        known = self.of(name) and seconds >= SHORTEST and now >= before
        return (now - before) / seconds if known and math.isfinite(now) else None


def put_together(followed: Sequence[Follower], now: float | None = None) -> Cluster:
    """now: of the monotonic clock."""
    moment = time.monotonic() if now is None else now
    found = Cluster([], [], [], [], [], [], [], None)
    for one in followed:
        if one.source.kind == "alerts":
            told = [_alert(alert) for alert in (one.last.alerts if one.last else ())[:MOST_ALERTS]]
            told.sort(key=lambda alert: (alert.severity != PAGE, alert.name, alert.where))
            found = found._replace(alerts=[] if one.error else told, alerts_error=one.error)
        elif one.source.kind == "gateway":
            found.gateways.append(_gateway(one, moment))
        else:
            _node(one, moment, found)
    found.endpoints.sort(key=lambda one: (one.service, one.node))
    found.repairs.sort(key=lambda one: -one.at)
    return found


def _since(one: Follower, moment: float) -> float:
    """Seconds since the last reading."""
    return max(0.0, moment - (one.last.at if one.last else one.began))


def _age(last: Reading, samples: Samples, moment: float) -> float | None:
    """Seconds since the sampler wrote, by the clock of its own host: those of two hosts may differ."""
    written = samples.value("llama_sampler_timestamp_seconds")
    if written is None:
        return None
    # A page without a date is the sampler's own, which drops what is old.
    age = abs(last.clock - written) if last.clock is not None else 0.0
    return age + moment - last.at


def _node(one: Follower, moment: float, cluster: Cluster) -> None:
    name = one.source.name
    samples = Samples(one)
    error, since = one.error, _since(one, moment)
    age = _age(one.last, samples, moment) if one.last else None
    if not error and age is None:
        error = "no samples of a sampler"
    elif not error and age is not None and age > OLD:
        error, since = "the sampler does not write", age
    interfaces = samples.of("llama_fabric_up")
    held = samples.value("llama_node_held") == 1
    cluster.nodes.append(
        Node(
            name,
            error,
            since,
            held,
            None if error else samples.rate("llama_fabric_received_bytes_total"),
            None if error else samples.rate("llama_fabric_sent_bytes_total"),
            "" if error or not interfaces else "up" if all(up.value for up in interfaces) else "down",
        )
    )
    heads = samples.of("llama_unit_active", role="head") + samples.of("llama_unit_active", role="router")
    services = {head.labels.get("service", "") for head in heads + samples.of("llama_endpoint_state")}
    for service in sorted(services)[:MOST_SERVICES]:
        cluster.endpoints.append(_endpoint(name, service, samples, held, bool(error)))
    # What was repaired when the node was last heard of was so, whatever came after.
    for repair in samples.of("llama_watchdog_last_repair_seconds"):
        words = [printable(repair.labels.get(key, "")) for key in ("unit", "reason")]
        cluster.repairs.append(Repair(repair.value, name, *words))
    if error:
        return
    for unit in samples.of("llama_unit_active"):
        labels = {"unit": unit.labels.get("unit", "")}
        wanted = samples.value("llama_unit_wanted", **labels) == 1
        restarts = samples.whole("llama_unit_restarts_total", **labels) or 0
        cluster.units.append(Unit(name, printable(labels["unit"]), unit.value == 1, wanted, restarts))
    cluster.cards.extend(_card(name, info, samples) for info in samples.of("llama_gpu_info")[:MOST_SERVICES])


def _endpoint(node: str, service: str, seen: Samples, held: bool, lost: bool) -> Endpoint:
    own = {"service": service}
    units = [one for role in ("head", "router") for one in seen.of("llama_unit_active", role=role, **own)]
    names = {one.labels.get("unit", "") for one in units}
    wanted = not units or any(seen.value("llama_unit_wanted", unit=name) == 1 for name in names)
    states = seen.of("llama_endpoint_state", **own)
    state = printable(states[0].labels.get("state", "")) if states else "unknown"
    if units and not any(one.value for one in units):
        # A head is asked each 15 s, systemd each two.
        starts = any(seen.value("llama_unit_starting", unit=name) == 1 for name in names)
        state = "starting" if starts else "down" if wanted else "held" if held else "stopped"
    elif units:
        asked = seen.value("llama_endpoint_asked_seconds", **own) or math.inf
        # What it said was said by another process.
        if any((seen.value("llama_unit_started_seconds", unit=name) or 0.0) > asked for name in names):
            state = "loading"
    links = seen.of("llama_rpc_link_up", **own)
    models = [one.labels.get("model", "") for one in seen.of("llama_model_info", **own)]
    return Endpoint(
        printable(service),
        node,
        "unknown" if lost else state,
        wanted,
        seen.whole("llama_slots", **own),
        None if lost else seen.whole("llama_slots_busy", **own),
        None if lost else seen.whole("llama_requests_deferred", **own),
        None if lost else seen.whole("llama_context_used_tokens", **own),
        seen.whole("llama_context_slot_tokens", **own),
        None if lost else seen.value("llama_generation_tokens_per_second", **own),
        len(links),
        0 if lost else sum(1 for one in links if one.value),
        printable(", ".join(models)),
    )


def _card(node: str, info: Sample, seen: Samples) -> Card:
    gpu = info.labels.get("gpu", "")
    reasons = [one.labels.get("reason", "") for one in seen.of("llama_gpu_throttled", gpu=gpu) if one.value]
    return Card(
        node,
        printable(gpu),
        printable(info.labels.get("name", "")),
        seen.value("llama_gpu_utilization_ratio", gpu=gpu),
        seen.value("llama_gpu_memory_used_bytes", gpu=gpu),
        seen.value("llama_gpu_memory_total_bytes", gpu=gpu),
        seen.value("llama_gpu_power_watts", gpu=gpu),
        seen.value("llama_gpu_temperature_celsius", gpu=gpu),
        tuple(printable(one) for one in reasons),
        seen.whole("llama_gpu_foreign_processes", gpu=gpu) or 0,
    )


def _gateway(one: Follower, moment: float) -> Gateway:
    samples = Samples(one)
    error, since = one.error, _since(one, moment)
    if not error and not samples.of("llama_gateway_endpoint_state"):
        error = "no samples of a gateway"
    states = [
        tuple(printable(state.labels.get(key, "")) for key in ("service", "node", "state"))
        for state in samples.of("llama_gateway_endpoint_state")
        if state.value == 1
    ]
    return Gateway(
        one.source.name,
        error,
        since,
        None if error else samples.total("llama_gateway_queued"),
        None if error else samples.total("llama_gateway_in_flight"),
        [] if error else ["%s on %s: %s" % state for state in sorted(states) if state[2] != "ready"],
    )


def _alert(told: dict[str, Any]) -> Alert:
    labels, notes = table(told.get("labels")), table(told.get("annotations"))
    where = " ".join(str(labels[key]) for key in ("service", "unit", "node") if labels.get(key))
    return Alert(
        printable(labels.get("alertname", "")),
        printable(labels.get("severity", "")),
        printable(where),
        printable(notes.get("summary", "")),
    )


class Verdict(NamedTuple):
    """Of a service: the state of its best endpoint, and a sentence. code: as llama-service-status exits."""

    service: str
    state: str
    code: int
    words: str


WELL, NOT_READY, LOADING, UNKNOWN = 0, 1, 2, 3
CODES = {"loading": LOADING, "starting": LOADING, "unknown": UNKNOWN}


def verdicts(endpoints: Sequence[Endpoint]) -> list[Verdict]:
    """One for each service, by name."""
    by_service: dict[str, list[Endpoint]] = {}
    for one in endpoints:
        by_service.setdefault(one.service, []).append(one)
    return [_verdict(service, own) for service, own in sorted(by_service.items())]


def _verdict(service: str, endpoints: Sequence[Endpoint]) -> Verdict:
    wanted = [one for one in endpoints if one.wanted]
    parts = [f"{one.state} on {one.node}{'' if one.wanted else ', as it is to be'}" for one in endpoints]
    if not wanted:
        # What runs all the same was started by hand.
        parts = [part.replace("as it is", "where it is not") if part.startswith(ANSWERING) else part for part in parts]
        return Verdict(service, endpoints[0].state, WELL, ", ".join(parts))
    best = min(wanted, key=lambda one: ORDER.index(one.state) if one.state in ORDER else len(ORDER))
    ready = [one for one in wanted if one.state in ANSWERING]
    short = [one for one in ready if one.links_up < one.links]
    parts += ["%d of %d workers connected on %s" % (one.links_up, one.links, one.node) for one in short]
    code = NOT_READY if ready else CODES.get(best.state, NOT_READY)
    return Verdict(service, best.state, WELL if len(ready) > len(short) else code, ", ".join(parts))


def code_of(found: Sequence[Verdict], lost: bool) -> int:
    """The worst of all. lost: whether some node says nothing: what cannot be told is no answer that all is well."""
    codes = {one.code for one in found} | ({UNKNOWN} if lost else set())
    for code in (NOT_READY, UNKNOWN, LOADING):
        if code in codes:
            return code
    return WELL if found else UNKNOWN
