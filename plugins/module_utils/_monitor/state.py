# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of the cluster, from the samples of all nodes. Rows are dictionaries, as --json prints them. Private to the
collection."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from .._exporter.exposition import Sample
from .._llama.api import table
from .._llama.server import ANSWERING
from .._text import printable
from .read import Follower

Row = dict[str, Any]
# Seconds after which samples are old: a sampler writes every two.
OLD = 15.0
# Limits for one host or page.
MOST_ALERTS, MOST_SERVICES, MOST_SAMPLES = 200, 64, 1000
# The best state of its replicas is that of a service.
ORDER = ("ready", "sleeping", "loading", "starting", "unknown", "down")
PAGE = "page"
# Exit statuses of llama-service-status.
WELL, NOT_READY, LOADING, UNKNOWN = 0, 1, 2, 3
CODES = {"loading": LOADING, "starting": LOADING, "unknown": UNKNOWN}


class Samples:
    """The finite samples of one page, by name."""

    def __init__(self, one: Follower) -> None:
        self._by_name: dict[str, list[Sample]] = {}
        for sample in one.last.samples if one.last else ():
            family = self._by_name.setdefault(sample.name, [])
            if len(family) < MOST_SAMPLES and math.isfinite(sample.value):
                family.append(sample)

    def of(self, name: str, **labels: str) -> list[Sample]:
        """The samples with these labels."""
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

    def label(self, name: str, key: str, **labels: str) -> str:
        """A printable label of all these samples."""
        return printable(", ".join(one.labels.get(key, "") for one in self.of(name, **labels)))


def put_together(followed: Sequence[Follower], now: float | None = None) -> Row:
    """{endpoints, nodes, units, cards, repairs, gateways, jobs, kept, alerts, alerts_error}; jobs: {service: what
    gateways say of its job by SLURM}; kept: [jobs, as their keeper's host samples them]; alerts_error: why alerts are
    unknown, None without an alertmanager. now: monotonic clock."""
    moment = time.monotonic() if now is None else now
    names = ("endpoints", "nodes", "units", "cards", "repairs", "gateways", "kept", "alerts")
    found: Row = {"alerts_error": None, "jobs": {}, **{name: [] for name in names}}
    for one in followed:
        if one.source.kind == "alerts":
            firing = [_alert(alert) for alert in (one.last.alerts if one.last else ())[:MOST_ALERTS]]
            firing.sort(key=lambda alert: (alert["severity"] != PAGE, alert["name"], alert["where"]))
            found.update(alerts=[] if one.error else firing, alerts_error=one.error)
        elif one.source.kind == "gateway":
            found["gateways"].append(_gateway(one, moment))
        elif one.source.kind == "status":
            found["jobs"].update(one.last.words if one.last and not one.error else ())
        else:
            _node(one, moment, found)
    found["endpoints"].sort(key=lambda one: (one["service"], one["node"]))
    found["repairs"].sort(key=lambda one: -one["at"])
    return found


def _since(one: Follower, moment: float) -> float:
    """Seconds since the last reading."""
    return max(0.0, moment - (one.last.at if one.last else one.began))


def _node(one: Follower, moment: float, cluster: Row) -> None:
    name, samples = one.source.name, Samples(one)
    error, since = one.error, _since(one, moment)
    written = samples.value("llama_sampler_timestamp_seconds")
    if not error and one.last:
        # By the clock of the node itself. A page without a date is the sampler's own, which drops old samples.
        clock = written if one.last.clock is None else one.last.clock
        age = abs(clock - written) + moment - one.last.at if written is not None and clock is not None else None
        if age is None:
            error = "no samples of a sampler"
        elif age > OLD:
            error, since = "the sampler does not write", age
    interfaces = samples.of("llama_fabric_up")
    held = samples.value("llama_node_held") == 1
    fabric = "" if error or not interfaces else "up" if all(up.value for up in interfaces) else "down"
    cluster["nodes"].append({"name": name, "error": error, "since": since, "held": held, "fabric": fabric})
    heads = samples.of("llama_unit_active", role="head") + samples.of("llama_unit_active", role="router")
    services = {head.labels.get("service", "") for head in heads + samples.of("llama_endpoint_state")}
    for service in sorted(services)[:MOST_SERVICES]:
        cluster["endpoints"].append(_endpoint(name, service, samples, held, bool(error)))
    for repair in samples.of("llama_watchdog_last_repair_seconds"):
        words = {key: printable(repair.labels.get(key, "")) for key in ("unit", "reason")}
        cluster["repairs"].append({"at": repair.value, "node": name, **words})
    if error:
        return
    for unit in samples.of("llama_unit_active"):
        labels = {"unit": unit.labels.get("unit", "")}
        cluster["units"].append(
            {
                "node": name,
                "unit": printable(labels["unit"]),
                "active": unit.value == 1,
                "wanted": samples.value("llama_unit_wanted", **labels) == 1,
                "restarts": samples.whole("llama_unit_restarts_total", **labels) or 0,
            }
        )
    for job in samples.of("llama_job_state")[:MOST_SERVICES]:
        service, state = (printable(job.labels.get(key, "")) for key in ("service", "state"))
        serves = samples.value("llama_job_serves", service=job.labels.get("service", "")) == 1
        cluster["kept"].append({"node": name, "service": service, "state": state, "serves": serves})
    cluster["cards"].extend(_card(name, info, samples) for info in samples.of("llama_gpu_info")[:MOST_SERVICES])


def _endpoint(node: str, service: str, seen: Samples, held: bool, lost: bool) -> Row:
    """A head or router. lost: its node does not respond."""
    own = {"service": service}
    units = [one for role in ("head", "router") for one in seen.of("llama_unit_active", role=role, **own)]
    names = {one.labels.get("unit", "") for one in units}
    wanted = not units or any(seen.value("llama_unit_wanted", unit=name) == 1 for name in names)
    states = seen.of("llama_endpoint_state", **own)
    state = printable(states[0].labels.get("state", "")) if states else "unknown"
    if units and not any(one.value for one in units):
        # A head is probed every 15 s, systemd every two.
        starts = any(seen.value("llama_unit_starting", unit=name) == 1 for name in names)
        state = "starting" if starts else "down" if wanted else "held" if held else "stopped"
    elif units:
        probed = seen.value("llama_endpoint_asked_seconds", **own) or math.inf
        # The probed process has been replaced.
        if any((seen.value("llama_unit_started_seconds", unit=name) or 0.0) > probed for name in names):
            state = "loading"
    links = seen.of("llama_rpc_link_up", **own)
    current: Row = {
        "state": state,
        "busy": seen.whole("llama_slots_busy", **own),
        "waiting": seen.whole("llama_requests_deferred", **own),
        "used": seen.whole("llama_context_used_tokens", **own),
        "speed": seen.value("llama_generation_tokens_per_second", **own),
        "links_up": sum(1 for one in links if one.value),
    }
    return {
        **(dict(dict.fromkeys(current), state="unknown", links_up=0) if lost else current),
        "service": printable(service),
        "node": node,
        "wanted": wanted,
        "slots": seen.whole("llama_slots", **own),
        "limit": seen.whole("llama_context_slot_tokens", **own),
        "links": len(links),
        "model": seen.label("llama_model_info", "model", **own),
    }


def _card(node: str, info: Sample, seen: Samples) -> Row:
    gpu = info.labels.get("gpu", "")
    reasons = [one.labels.get("reason", "") for one in seen.of("llama_gpu_throttled", gpu=gpu) if one.value]
    return {
        "node": node,
        "gpu": printable(gpu),
        "name": printable(info.labels.get("name", "")),
        "busy": seen.value("llama_gpu_utilization_ratio", gpu=gpu),
        "used": seen.value("llama_gpu_memory_used_bytes", gpu=gpu),
        "total": seen.value("llama_gpu_memory_total_bytes", gpu=gpu),
        "watts": seen.value("llama_gpu_power_watts", gpu=gpu),
        "celsius": seen.value("llama_gpu_temperature_celsius", gpu=gpu),
        "throttled": [printable(one) for one in reasons],
        "foreign": seen.whole("llama_gpu_foreign_processes", gpu=gpu) or 0,
    }


def _gateway(one: Follower, moment: float) -> Row:
    """not_ready: endpoints that get no request."""
    samples = Samples(one)
    states = samples.of("llama_gateway_endpoint_state")
    error = one.error or ("" if states else "no samples of a gateway")
    ends = [[printable(end.labels.get(key, "")) for key in ("service", "node", "state")] for end in states if end.value]
    return {
        "host": one.source.name,
        "error": error,
        "since": _since(one, moment),
        "waiting": None if error else samples.total("llama_gateway_queued"),
        "at_work": None if error else samples.total("llama_gateway_in_flight"),
        "not_ready": [] if error else ["{} on {}: {}".format(*end) for end in sorted(ends) if end[2] != "ready"],
    }


def _alert(alert: Row) -> Row:
    labels, notes = table(alert.get("labels")), table(alert.get("annotations"))
    where = " ".join(str(labels[key]) for key in ("service", "unit", "node") if labels.get(key))
    found = (labels.get("alertname", ""), labels.get("severity", ""), where, notes.get("summary", ""))
    return dict(zip(("name", "severity", "where", "summary"), map(printable, found)))


def verdicts(endpoints: Sequence[Row], kept: Sequence[Row]) -> list[Row]:
    """[{service, state: of its best endpoint, code: exit status of llama-service-status, words}], by name. kept: of
    put_together()."""
    by_service: dict[str, list[Row]] = {}
    for one in endpoints:
        by_service.setdefault(one["service"], []).append(one)
    found = [_verdict(service, own) for service, own in by_service.items()] + [_job(one) for one in kept]
    return sorted(found, key=lambda one: one["service"])


def _job(one: Row) -> Row:
    code = WELL if one["serves"] else LOADING if one["state"] == "running" else NOT_READY
    words = f"job of SLURM {one['state']}, " + ("serves" if one["serves"] else f"see llama-jobs list on {one['node']}")
    return {"service": one["service"], "state": one["state"], "code": code, "words": words}


def _verdict(service: str, endpoints: Sequence[Row]) -> Row:
    wanted = [one for one in endpoints if one["wanted"]]
    ready = [one for one in wanted if one["state"] in ANSWERING]
    short = [one for one in ready if one["links_up"] < one["links"]]
    parts = []
    for one in endpoints:
        # An unwanted one that runs was started manually.
        note = "where it is not to be" if one["state"] in ANSWERING else "as it is to be"
        parts.append(f"{one['state']} on {one['node']}{'' if one['wanted'] else ', ' + note}")
    parts += ["%d of %d workers connected on %s" % (one["links_up"], one["links"], one["node"]) for one in short]
    best = min(wanted or endpoints[:1], key=lambda one: (*ORDER, one["state"]).index(one["state"]))
    code = NOT_READY if ready else CODES.get(best["state"], NOT_READY)
    well = not wanted or len(ready) > len(short)
    return {"service": service, "state": best["state"], "code": WELL if well else code, "words": ", ".join(parts)}


def code_of(found: Sequence[Row], lost: bool) -> int:
    """The worst code. lost: a node does not respond."""
    codes = {one["code"] for one in found} | ({UNKNOWN} if lost else set())
    return next((code for code in (NOT_READY, UNKNOWN, LOADING) if code in codes), WELL if found else UNKNOWN)
