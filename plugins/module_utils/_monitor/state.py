# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the samples of all nodes say together. Private to the collection."""

import time
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from .._exporter.exposition import Sample
from .._llama.api import table
from .._text import printable
from .read import Follower

# Seconds after which samples are old: a sampler writes each two.
OLD = 15.0
MOST_ALERTS = 50
READY = ("ready", "sleeping")
# Of a service with replicas the best of them counts.
ORDER = ("ready", "sleeping", "loading", "down", "unknown", "stopped")


class Endpoint(NamedTuple):
    """A head or router of a service."""

    service: str
    node: str
    state: str
    wanted: bool
    slots: Optional[int]
    busy: Optional[int]
    waiting: Optional[int]
    used: Optional[int]
    limit: Optional[int]
    rate: Optional[float]  # tokens/s generated now
    links: int
    links_up: int
    model: str


class Card(NamedTuple):
    node: str
    gpu: str
    name: str
    busy: Optional[float]
    used: Optional[float]
    total: Optional[float]
    watts: Optional[float]
    celsius: Optional[float]
    throttled: Tuple[str, ...]
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
    received: Optional[float]  # bytes/s over the fabric
    sent: Optional[float]
    fabric: str  # up, down or nothing


class Alert(NamedTuple):
    name: str
    severity: str
    where: str
    summary: str


class Cluster(NamedTuple):
    endpoints: List[Endpoint]
    nodes: List[Node]
    units: List[Unit]
    cards: List[Card]
    repairs: List[Repair]
    alerts: List[Alert]
    alerts_known: bool


class Samples:
    """Of one page, by name."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_name: Dict[str, List[Sample]] = {}
        for one in samples:
            self._by_name.setdefault(one.name, []).append(one)

    def of(self, name: str, **labels: str) -> List[Sample]:
        """With these labels."""
        found = self._by_name.get(name, [])
        return [one for one in found if all(one.labels.get(key) == value for key, value in labels.items())]

    def value(self, name: str, **labels: str) -> Optional[float]:
        found = self.of(name, **labels)
        return found[0].value if found else None

    def whole(self, name: str, **labels: str) -> Optional[int]:
        value = self.value(name, **labels)
        return int(value) if value is not None and abs(value) < 2**62 else None


def put_together(followed: Sequence[Follower], now: Optional[float] = None) -> Cluster:
    """now: of the monotonic clock."""
    moment = time.monotonic() if now is None else now
    endpoints: List[Endpoint] = []
    nodes: List[Node] = []
    units: List[Unit] = []
    cards: List[Card] = []
    repairs: List[Repair] = []
    alerts: List[Alert] = []
    known = False
    for one in followed:
        if one.source.kind == "alerts":
            known = one.now is not None and not one.now.error
            alerts = [_alert(alert) for alert in (one.now.alerts if one.now else [])[:MOST_ALERTS]]
        elif one.source.kind == "node":
            _node(one, moment, endpoints, nodes, units, cards, repairs)
    endpoints.sort(key=lambda one: (one.service, one.node))
    repairs.sort(key=lambda one: -one.at)
    return Cluster(endpoints, nodes, units, cards, repairs, sorted(alerts, key=lambda one: one.severity), known)


def _node(
    one: Follower,
    moment: float,
    endpoints: List[Endpoint],
    nodes: List[Node],
    units: List[Unit],
    cards: List[Card],
    repairs: List[Repair],
) -> None:
    name = one.source.name
    last = one.last
    error = one.now.error if one.now else "no answer yet"
    since = moment - (last.at if last else one.began)
    seen = Samples(last.samples if last else [])
    written = seen.value("llama_sampler_timestamp_seconds")
    if not error and last and written is None:
        error = "no samples of a sampler"
    elif not error and _stands_still(one, written, moment):
        error, since = "the sampler does not write", moment - one.began
    before = Samples(one.before.samples if one.before else [])
    seconds = last.at - one.before.at if last and one.before else 0.0
    interfaces = seen.of("llama_fabric_up")
    nodes.append(
        Node(
            name,
            error,
            max(0.0, since),
            seen.value("llama_node_held") == 1,
            _rate(seen, before, seconds, "llama_fabric_received_bytes_total"),
            _rate(seen, before, seconds, "llama_fabric_sent_bytes_total"),
            "" if not interfaces else "up" if all(up.value for up in interfaces) else "down",
        )
    )
    for state in seen.of("llama_endpoint_state"):
        endpoints.append(_endpoint(name, state, seen, before, seconds, bool(error)))
    # What ran there when it was last heard of says nothing now; what was repaired then still was.
    for unit in [] if error else seen.of("llama_unit_active"):
        labels = {"unit": unit.labels.get("unit", "")}
        wanted, restarts = seen.value("llama_unit_wanted", **labels), seen.whole("llama_unit_restarts_total", **labels)
        units.append(Unit(name, printable(labels["unit"]), unit.value == 1, wanted == 1, restarts or 0))
    for repair in seen.of("llama_watchdog_last_repair_seconds"):
        reason = printable(repair.labels.get("reason", ""))
        repairs.append(Repair(repair.value, name, printable(repair.labels.get("unit", "")), reason))
    cards.extend(_card(name, info, seen) for info in ([] if error else seen.of("llama_gpu_info")))


def _stands_still(one: Follower, written: Optional[float], moment: float) -> bool:
    """Whether the sampler has written nothing for a while. By its own stamps: clocks of two hosts may differ."""
    if one.source.place.startswith("/"):
        return written is not None and abs(time.time() - written) > OLD
    before = one.before
    stamp = Samples(before.samples).value("llama_sampler_timestamp_seconds") if before else None
    return before is not None and one.last is not None and stamp == written and one.last.at - before.at > OLD


def _endpoint(node: str, state: Sample, seen: Samples, before: Samples, seconds: float, lost: bool) -> Endpoint:
    service = state.labels.get("service", "")
    own = {"service": service}
    wanted = seen.of("llama_unit_wanted", role="head", **own) + seen.of("llama_unit_wanted", role="router", **own)
    links = seen.of("llama_rpc_link_up", **own)
    models = [one.labels.get("model", "") for one in seen.of("llama_model_info", **own)]
    return Endpoint(
        printable(service),
        node,
        "unknown" if lost else printable(state.labels.get("state", "")),
        any(one.value for one in wanted) if wanted else True,
        seen.whole("llama_slots", **own),
        seen.whole("llama_slots_busy", **own),
        seen.whole("llama_requests_deferred", **own),
        seen.whole("llama_context_used_tokens", **own),
        seen.whole("llama_context_slot_tokens", **own),
        _rate(seen, before, seconds, "llama_generated_tokens_total", **own)
        or seen.value("llama_generation_tokens_per_second", **own),
        len(links),
        sum(1 for one in links if one.value),
        printable(", ".join(models)),
    )


def _rate(seen: Samples, before: Samples, seconds: float, name: str, **labels: str) -> Optional[float]:
    """Per second; None where it is not known, or the counter began anew."""
    now, then = seen.value(name, **labels), before.value(name, **labels)
    if now is None or then is None or seconds <= 0 or now < then:
        return None
    return (now - then) / seconds


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


def _alert(told: Dict[str, Any]) -> Alert:
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


def verdicts(cluster: Cluster) -> List[Verdict]:
    """One for each service, by name."""
    by_service: Dict[str, List[Endpoint]] = {}
    for one in cluster.endpoints:
        by_service.setdefault(one.service, []).append(one)
    return [_verdict(service, endpoints) for service, endpoints in sorted(by_service.items())]


def _verdict(service: str, endpoints: Sequence[Endpoint]) -> Verdict:
    wanted = [one for one in endpoints if one.wanted and one.state != "stopped"]
    if not wanted:
        return Verdict(service, "stopped", WELL, "stopped, as it is to be")
    best = min(wanted, key=lambda one: ORDER.index(one.state) if one.state in ORDER else len(ORDER))
    ready = [one for one in wanted if one.state in READY]
    parts = ["%s on %s" % (one.state, one.node) for one in wanted]
    short = [one for one in ready if one.links_up < one.links]
    parts += ["%d of %d workers connected on %s" % (one.links_up, one.links, one.node) for one in short]
    code = {"loading": LOADING, "unknown": UNKNOWN}.get(best.state, NOT_READY)
    return Verdict(
        service, best.state, WELL if ready and not short else code if not ready else NOT_READY, ", ".join(parts)
    )


def code_of(found: Sequence[Verdict], cluster: Cluster) -> int:
    """The worst of all. What cannot be told is no answer that all is well."""
    codes = {one.code for one in found}
    if any(node.error for node in cluster.nodes):
        codes.add(UNKNOWN)
    for code in (NOT_READY, UNKNOWN, LOADING):
        if code in codes:
            return code
    return WELL if found else UNKNOWN
