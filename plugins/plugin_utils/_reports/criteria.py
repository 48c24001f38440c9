# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ten success criteria. Private to the collection. docs/report.md says what each one means."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._node import paths
from ...module_utils._node.units import units_of
from .._access.units import build_refusals
from .results import Results
from .targets import FIRST_TOKEN, SHARE, Measured, share

Map = Mapping[str, Any]
Row = tuple[Measured, str, bool | None]
MET, NOT_MET, NOT_HERE = "met", "not met", "not measurable here"
# Without a hand.
HOURS = 24


class Criterion(NamedTuple):
    """name: of CRITERIA. value: what was seen. evidence: where it comes from. measured_at: ISO 8601, of the oldest that
    it rests on. needed: what is needed and what to do, of one that is not met."""

    name: str
    verdict: str
    value: str
    evidence: str
    measured_at: str | None
    needed: str = ""

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()

    def refusal(self) -> str:
        return f"verify: {self.name}: {self.value}, {self.needed}"


class Service(NamedTuple):
    """A head that is to run, or a model of a router. head: of node_serving; workers: its nodes; report, wire, drill:
    the latest of its kind, None without one."""

    measured: Measured
    head: Map
    workers: Sequence[str]
    report: Map | None
    wire: Map | None
    generates: bool = True


class Seen(NamedTuple):
    """What is known of a cluster.

    now: ISO 8601. nodes: {node: its fact llama_node}, of those that were looked at; missing: the others. wanted: {node:
    units that are to run}. models: {node: entries of model_facts}. hashed: {node: {path: None or what is wrong with
    it}}, of those whose models this run has hashed. hands: {host: of llama_hand}. decisions: {node:
    [size, time] of the log, None without one}. monitoring: whether it answered as it should, None where the inventory
    has no host for it.
    """

    now: str
    nodes: Mapping[str, Map]
    missing: Sequence[str]
    wanted: Mapping[str, Sequence[str]]
    models: Mapping[str, Sequence[Map]]
    hands: Mapping[str, Map]
    decisions: Mapping[str, Sequence[float] | None]
    monitoring: bool | None
    services: Sequence[Service]
    kept: Results
    hashed: Mapping[str, Mapping[str, str | None]] = {}  # noqa: RUF012 - nobody changes it


def criteria(seen: Seen) -> list[Criterion]:
    return [judge(seen, name) for name, judge in CRITERIA.items()]


def _one_version(seen: Seen, name: str) -> Criterion:
    refused = build_refusals(seen.nodes, seen.wanted)
    found = {
        one.get("current_build") or release: None
        for node in seen.nodes.values()
        for release, one in node.get("build", {}).get("of", {}).items()
    }
    where = "build.json and every file of each build"
    if refused or seen.missing:
        value, needed = _first(seen, refused)
        return Criterion(name, NOT_MET, value, where, seen.now, needed)
    value = f"{' and '.join(found) or 'no build'}, whole and the same on {_count(len(seen.nodes), 'node')}"
    return Criterion(name, MET, value, where, seen.now)


def _first(seen: Seen, refused: Sequence[str]) -> tuple[str, str]:
    """The first sentence, in its two parts; nodes that were not looked at come first."""
    if seen.missing:
        return "%s not looked at" % ", ".join(
            seen.missing
        ), "all nodes are needed: run verify.yml, and look at the errors of these"
    value, _comma, needed = refused[0].rpartition(", ")
    return value, needed


def _models(seen: Seen, name: str) -> Criterion:
    items = [(node, one) for node, found in seen.models.items() for one in found]
    bad = [f"{one['item']['dest']} on {node}" for node, one in items if not one["there"]]
    where = "the record that was written when its bytes were hashed, and that the file is the one of then"
    wrong = [f"{node}: {told}" for node, found in seen.hashed.items() for told in found.values() if told]
    if wrong and not seen.missing:
        value, _colon, _step = "; ".join(wrong).rpartition(": ")
        needed = "the bytes that were published are needed: run site.yml with --tags model"
        return Criterion(name, NOT_MET, value, "hashed just now", seen.now, needed)
    if bad or seen.missing:
        value = f"{', '.join(bad)} not whole or not proved" if bad else f"{', '.join(seen.missing)} not looked at"
        needed = "a file that was proved by its sha256 is needed: run site.yml with --tags model"
        return Criterion(name, NOT_MET, value, where, seen.now, needed)
    value = f"{len(items)} of {len(items)}"
    hashed = [path for found in seen.hashed.values() for path in found]
    if hashed:
        value += ", hashed just now" if len(hashed) == len(items) else f", {len(hashed)} of them hashed just now"
    return Criterion(name, MET, value, where, seen.now)


def _systemd(seen: Seen, name: str) -> Criterion:
    bad, count = [], 0
    for node, wanted in seen.wanted.items():
        known = {unit.name: unit for unit in units_of(seen.nodes.get(node, {}).get("units", []))}
        for one in wanted:
            unit = known.get(one)
            sound = unit and unit.ours and unit.enabled and unit.active_state == "active" and not unit.stale
            count += 1
            bad += [] if sound else [f"{one} on {node}"]
    where = "systemd"
    if bad or seen.missing:
        value = f"{', '.join(bad or seen.missing)} not running as configured"
        needed = "units that are enabled and run with their configuration are needed: run site.yml"
        return Criterion(name, NOT_MET, value, where, seen.now, needed)
    return Criterion(name, MET, f"{_count(count, 'unit')}, enabled and running", where, seen.now)


def _all_work(seen: Seen, name: str) -> Criterion:
    """By what its workers did for an answer: the report of wire truth, else the bytes that verify counted."""
    bad, unknown, sources, dates = [], [], set(), []
    for one in seen.services:
        wrong, blind = _work(one, seen.missing)
        bad += [f"{one.measured.label}: {sentence}" for sentence in wrong]
        unknown += [f"{one.measured.label}: {blind}"] if blind else []
        proof = one.wire or one.report
        if proof:
            dates.append(proof["measured_at"])
            sources.add("wire truth" if one.wire else "the answer that verify got")
    where, date = " and ".join(sorted(sources)) or "nothing", min(dates, default=None)
    if bad:
        needed = "every worker has to hold its layers and to work: see docs/symptoms.md"
        return Criterion(name, NOT_MET, "; ".join(bad), where, date, needed)
    if unknown or not seen.services:
        return Criterion(name, NOT_HERE, "; ".join(unknown) or "no service runs", where, date)
    workers = sum(len(one.workers) for one in seen.services)
    value = f"{_count(len(seen.services), 'service')} with {_count(workers, 'worker')}"
    return Criterion(name, MET, value, where, date)


def _work(one: Service, missing: Sequence[str]) -> tuple[list[str], str]:
    """What is wrong with the work of a service's nodes, and why nobody can say."""
    if one.head["node"] in missing:
        return [f"{one.head['node']} not looked at"], ""
    if one.wire and one.report and one.wire["measured_at"] < one.report.get("measured_at", ""):
        # Whoever keeps a service busy keeps it from being looked at.
        return [], f"its wire was last looked at on {one.wire['measured_at']}"
    if one.wire and one.wire["verdict"] == "not judged":
        return [], "its bytes, or who else reaches its workers, could not be judged"
    if one.wire:
        return [] if one.wire["verdict"] == "true" else one.wire.get("sentences") or ["refused"], ""
    if not one.report:
        return [], "no answer of it was kept"
    idle = [
        f"worker {worker['node']} holds {worker['layers']} layers and moved {worker['bytes_sent']} bytes"
        for worker in one.report["workers"]
        if not worker["layers"] or worker["bytes_sent"] == 0
    ]
    counted = all(worker["bytes_sent"] is not None for worker in one.report["workers"])
    return idle, "" if counted else "its bytes were not counted"


def _throughput(seen: Seen, name: str) -> Criterion:
    """By the share of the bandwidth ceiling: what the notes want of tokens/s may be more than these cards can do."""
    rows: list[Row] = []
    for one in _generating(seen):
        percent = share(one)
        if one.rate is None:
            rows.append((one, "not measured", None))
        elif percent is None:
            rows.append((one, f"{one.rate:.1f} tokens/s, {one.no_ceiling}", None))
        else:
            text = f"{one.rate:.1f} tokens/s, {percent:.1f} % of the ceiling"
            rows.append((one, text, percent >= SHARE.acceptable))
    needed = f"{SHARE.acceptable:g} % of what memory allows are needed: run doctor.yml"
    return _figures(name, rows, needed)


def _first_token(seen: Seen, name: str) -> Criterion:
    rows: list[Row] = [
        (one, "not measured", None)
        if one.first_token is None
        else (one, f"{one.first_token:.2f} s", one.first_token < FIRST_TOKEN.acceptable)
        for one in _generating(seen)
    ]
    needed = "less than %g s are needed: run doctor.yml, and benchmark.yml to see where they go"
    return _figures(name, rows, needed % FIRST_TOKEN.acceptable)


def _generating(seen: Seen) -> list[Measured]:
    return [one.measured for one in seen.services if one.generates]


def _figures(name: str, rows: Sequence[Row], needed: str) -> Criterion:
    """rows: of each service its figure in words, and whether it is good enough, None where nobody can say."""
    judged = [verdict for _one, _text, verdict in rows]
    verdict = NOT_MET if False in judged else NOT_HERE if None in judged or not judged else MET
    shown = [row for row in rows if row[2] is False] if verdict == NOT_MET else rows
    value = "; ".join(f"{one.label} {text}" for one, text, _verdict in shown) or "no service generates"
    where = " and ".join(sorted({one.evidence for one, _text, _verdict in shown if one.evidence})) or "nothing"
    date = min((one.measured_at for one, _text, _verdict in shown if one.measured_at), default=None)
    return Criterion(name, verdict, value, where, date, needed if verdict == NOT_MET else "")


def _restarts(seen: Seen, name: str) -> Criterion:
    wanted = [(host, unit) for host, units in seen.wanted.items() for unit in units]
    bad = [
        f"{unit} on {host}"
        for host, unit in wanted
        if seen.hands.get(host, {}).get("restart", {}).get(unit) != "always"
    ]
    seen_at = [
        (hand["recovered"]["at"], hand["recovered"]["unit"], host)
        for host, hand in seen.hands.items()
        if hand.get("recovered")
    ]
    where = "Restart= of each unit"
    if bad:
        needed = "Restart=always is needed: run site.yml"
        return Criterion(name, NOT_MET, f"{', '.join(bad)} without Restart=always", where, seen.now, needed)
    if not seen_at:
        value = f"{_count(len(wanted), 'unit')} with Restart=always, which none needed in the last day"
        return Criterion(name, MET, value, where, seen.now)
    at, unit, host = max(seen_at)
    value = f"{unit} on {host} was started again by systemd at {iso(at)}"
    return Criterion(name, MET, value, where + ", and the journal", seen.now)


def _monitoring(seen: Seen, name: str) -> Criterion:
    where = "Prometheus, its targets and rules"
    if seen.monitoring is None:
        return Criterion(name, NOT_HERE, "no host of llama_monitoring has a Prometheus of ours", where, None)
    if not seen.monitoring:
        needed = "everything has to be scraped: run verify.yml --tags monitoring"
        return Criterion(name, NOT_MET, "a host of llama_monitoring did not prove it", where, seen.now, needed)
    return Criterion(name, MET, "everything is scraped and every rule known", where, seen.now)


def _decisions(seen: Seen, name: str) -> Criterion:
    written = {node: found for node, found in seen.decisions.items() if found}
    where = paths.DECISIONS
    if written:
        node, (_size, moment) = max(written.items(), key=lambda one: one[1][1])
        return Criterion(name, MET, f"written on {node}", where, iso(moment))
    if any(seen.kept.latest("benchmark", one.measured.label) for one in seen.services):
        needed = "it is needed once something was measured: run decisions.yml"
        return Criterion(name, NOT_MET, f"no {paths.DECISIONS} on a head's node", where, seen.now, needed)
    return Criterion(name, NOT_HERE, "nothing was measured yet that it would rest on: run benchmark.yml", where, None)


def _without_a_hand(seen: Seen, name: str) -> Criterion:
    """Fewer hours are no failure: no operator can do anything about them but wait."""
    last = [(hand["now"] - hand["at"], host, hand) for host, hand in seen.hands.items() if hand.get("at") is not None]
    where = "times of files and the journal of each node"
    if not last or seen.missing:
        return Criterion(name, NOT_HERE, "no node could say", where, None)
    seconds, host, hand = min(last, key=lambda one: one[0])
    hours = max(0.0, seconds) / 3600
    value = "%d of %d hours, %s on %s at %s" % (min(HOURS, int(hours)), HOURS, hand["what"], host, iso(hand["at"]))
    if hours >= HOURS:
        return Criterion(name, MET, value, where, seen.now)
    return Criterion(name, NOT_HERE, value + ", not yet", where, seen.now)


def _count(number: int, what: str) -> str:
    return "%d %s%s" % (number, what, "" if number == 1 else "s")


def iso(moment: float) -> str:
    """Of seconds since 1970."""
    return datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


CRITERIA: dict[str, Callable[[Seen, str], Criterion]] = {
    "binaries of one version": _one_version,
    "model complete and verified": _models,
    "workers and head under systemd": _systemd,
    "all GPUs active": _all_work,
    "throughput": _throughput,
    "restart on failure": _restarts,
    "first token < 5 s": _first_token,
    "monitoring works": _monitoring,
    "decisions documented": _decisions,
    "24 h without a hand": _without_a_hand,
}
