# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ten success criteria, explained in docs/measuring.md. Private to the collection."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._node import paths
from ...module_utils._node.units import units_of
from ...module_utils._text import counted
from .._access.units import build_refusals
from .results import Results
from .targets import FIRST_TOKEN, SHARE, Measured, share

Map = Mapping[str, Any]
Row = tuple[Measured, str, "bool | None"]
MET, NOT_MET, NOT_HERE = "met", "not met", "not measurable here"
HOURS = 24


class Criterion(NamedTuple):
    """value: the observation. evidence: its source. measured_at: ISO 8601, of its oldest part. needed: the need and the
    next step if it is not met. name: of CRITERIA."""

    verdict: str
    value: str
    evidence: str
    measured_at: str | None
    needed: str = ""
    name: str = ""

    def refusal(self) -> str:
        return f"verify: {self.name}: {self.value}, {self.needed}"


class Service(NamedTuple):
    """A head that is to run, or a model of a router. workers: their nodes; report, wire: the latest of the kind, None
    without one."""

    measured: Measured
    workers: Sequence[str]
    report: Map | None
    wire: Map | None
    generates: bool = True


class Seen(NamedTuple):
    """The facts of a cluster.

    now: ISO 8601. nodes: {node: its fact llama_node}; missing: nodes without facts. wanted: {node: units that are to
    run}. models: {node: entries of model_facts}. hashed: {node: {path: None or its error}} of nodes whose models this
    run has hashed. hands: {host: of node_history}. decisions: {node: [size, time] of the log, None without one}.
    monitoring: whether it was verified, None without a host for it. jobs: the number of services that SLURM runs;
    keeper: why the keeper of their jobs is not believed, or empty.
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
    hashed: Mapping[str, Mapping[str, str | None]] = {}  # noqa: RUF012 - it is never changed
    jobs: int = 0
    keeper: str = ""


def criteria(seen: Seen) -> list[Criterion]:
    return [
        (_missing if seen.missing and judge in OF_ALL_NODES else judge)(seen)._replace(name=name)
        for name, judge in CRITERIA.items()
    ]


def _judged(wrong: Sequence[str], needed: str, value: str, evidence: str, measured_at: str | None) -> Criterion:
    if wrong:
        return Criterion(NOT_MET, "; ".join(wrong), evidence, measured_at, needed)
    return Criterion(MET, value, evidence, measured_at)


def _missing(seen: Seen) -> Criterion:
    needed = "all nodes are needed: run verify.yml, and look at the errors of these"
    return _judged([f"{', '.join(seen.missing)} not looked at"], needed, "", "the errors of this run", seen.now)


def _one_version(seen: Seen) -> Criterion:
    refused = build_refusals(seen.nodes, seen.wanted)
    wrong, _comma, needed = refused[0].rpartition(", ") if refused else ("", "", "")
    found = {
        one.get("current_build") or release: None
        for node in seen.nodes.values()
        for release, one in node.get("build", {}).get("of", {}).items()
    }
    value = f"{' and '.join(found) or 'no build'}, whole and the same on {counted(len(seen.nodes), 'node')}"
    return _judged([wrong] if wrong else [], needed, value, "build.json and every file of each build", seen.now)


def _models(seen: Seen) -> Criterion:
    found = [(node, problem) for node, models in seen.hashed.items() for problem in models.values()]
    wrong = [f"{node}: {problem.rpartition(': ')[0]}" for node, problem in found if problem]
    if wrong:
        needed = "the bytes that were published are needed: run site.yml with --tags model"
        return _judged(wrong, needed, "", "hashed just now", seen.now)
    items = [(node, one) for node, models in seen.models.items() for one in models]
    bad = [f"{one['item']['dest']} on {node} not whole or not verified" for node, one in items if not one["there"]]
    value = f"{len(items)} of {len(items)}"
    if found:
        value += ", hashed just now" if len(found) == len(items) else f", {len(found)} of them hashed just now"
    where = "the record of its hash, and the unchanged file (inode, size, time)"
    needed = "a file that was verified by its sha256 is needed: run site.yml with --tags model"
    return _judged(bad, needed, value, where, seen.now)


def _supervised(seen: Seen) -> Criterion:
    wanted = [(node, name) for node, names in seen.wanted.items() for name in names]
    sound = {
        (node, unit.name)
        for node, facts in seen.nodes.items()
        for unit in units_of(facts.get("units", []))
        if unit.managed and unit.enabled and unit.active_state == "active" and not unit.stale
    }
    bad = [f"{name} on {node} not running as configured" for node, name in wanted if (node, name) not in sound]
    bad += [f"keeper of the jobs: {seen.keeper}"] * bool(seen.keeper)
    needed = "units that are enabled and run with their configuration are needed: run site.yml"
    value = f"{counted(len(wanted), 'unit')}, enabled and running"
    where = "systemd"
    if seen.jobs:
        value, where = f"{value}, {counted(seen.jobs, 'job')} of SLURM with a keeper", "systemd, the keeper of the jobs"
    return _judged(bad, needed, value, where, seen.now)


def _all_work(seen: Seen) -> Criterion:
    """By the split proof, else by the bytes of the workers for the answer to verify."""
    found = [(one.measured.label, *_work(one)) for one in seen.services]
    bad = [f"{label}: {sentence}" for label, wrong, _unknown in found for sentence in wrong]
    unknown = [f"{label}: {why}" for label, _wrong, why in found if why]
    proofs = [one.wire or one.report for one in seen.services]
    date = min((proof["measured_at"] for proof in proofs if proof), default=None)
    sources = {"split proof" if one.wire else "the answer that verify got" for one in seen.services if one.report}
    where = " and ".join(sorted(sources)) or "nothing"
    if not bad and (unknown or not seen.services):
        return Criterion(NOT_HERE, "; ".join(unknown) or "no service runs", where, date)
    workers = sum(len(one.workers) for one in seen.services)
    value = f"{counted(len(seen.services), 'service')} with {counted(workers, 'worker')}"
    return _judged(bad, "every worker has to hold its layers and to work: see docs/operations.md", value, where, date)


def _work(one: Service) -> tuple[list[str], str]:
    """(faults of a service's workers, why they cannot be judged)"""
    if one.wire and one.report and one.wire["measured_at"] < one.report.get("measured_at", ""):
        # The proof leaves out busy services.
        return [], f"its wire was last looked at on {one.wire['measured_at']}"
    if one.wire and one.wire["verdict"] == "not judged":
        return [], "its bytes, or open ports of its workers, could not be judged"
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


def _throughput(seen: Seen) -> Criterion:
    """By the share of the bandwidth ceiling: the tokens/s of the notes may exceed it."""
    rows: list[Row] = []
    for one in _generating(seen):
        percent, rate = share(one), f"{one.rate or 0:.1f} tokens/s"
        words = one.no_ceiling if percent is None else f"{percent:.1f} % of the ceiling"
        text = "not measured" if one.rate is None else f"{rate}, {words}"
        rows.append((one, text, None if percent is None else percent >= SHARE.acceptable))
    return _figures(rows, f"{SHARE.acceptable:g} % of what memory allows are needed: run doctor.yml")


def _first_token(seen: Seen) -> Criterion:
    rows: list[Row] = [
        (one, "not measured", None)
        if one.first_token is None
        else (one, f"{one.first_token:.2f} s", one.first_token < FIRST_TOKEN.acceptable)
        for one in _generating(seen)
    ]
    needed = "less than %g s are needed: run doctor.yml, and benchmark.yml to see where they go"
    return _figures(rows, needed % FIRST_TOKEN.acceptable)


def _generating(seen: Seen) -> list[Measured]:
    return [one.measured for one in seen.services if one.generates]


def _figures(rows: Sequence[Row], needed: str) -> Criterion:
    """rows: of each service its figure in words, and whether it is good enough, None if unknown."""
    judged = [verdict for _one, _text, verdict in rows]
    verdict = NOT_MET if False in judged else NOT_HERE if None in judged or not judged else MET
    shown = [row for row in rows if row[2] is False] if verdict == NOT_MET else rows
    value = "; ".join(f"{one.label} {text}" for one, text, _verdict in shown) or "no service generates"
    where = " and ".join(sorted({one.evidence for one, _text, _verdict in shown if one.evidence})) or "nothing"
    date = min((one.measured_at for one, _text, _verdict in shown if one.measured_at), default=None)
    return Criterion(verdict, value, where, date, needed if verdict == NOT_MET else "")


def _restarts(seen: Seen) -> Criterion:
    wanted = [(host, unit) for host, units in seen.wanted.items() for unit in units]
    restarts = {host: one.get("restart", {}) for host, one in seen.hands.items()}
    bad = [f"{unit} on {host}" for host, unit in wanted if restarts.get(host, {}).get(unit) != "always"]
    starts = [(one["recovered"], host) for host, one in seen.hands.items() if one.get("recovered")]
    value = f"{counted(len(wanted), 'unit')} with Restart=always, which none needed in the last day"
    if starts:
        start, host = max(starts, key=lambda one: float(one[0]["at"]))
        value = f"{start['unit']} on {host} was started again by systemd at {iso(start['at'])}"
    wrong = [f"{', '.join(bad)} without Restart=always"] if bad else []
    where = "Restart= of each unit, and the journal"
    return _judged(wrong, "Restart=always is needed: run site.yml", value, where, seen.now)


def _monitoring(seen: Seen) -> Criterion:
    where = "Prometheus, its targets and rules"
    if seen.monitoring is None:
        return Criterion(NOT_HERE, "no host of llama_monitoring has an installed Prometheus", where, None)
    wrong = [] if seen.monitoring else ["a host of llama_monitoring did not prove it"]
    needed = "everything has to be scraped: run verify.yml --tags monitoring"
    return _judged(wrong, needed, "everything is scraped and every rule known", where, seen.now)


def _decisions(seen: Seen) -> Criterion:
    written = {node: found for node, found in seen.decisions.items() if found}
    if written:
        node, (_size, moment) = max(written.items(), key=lambda one: one[1][1])
        return Criterion(MET, f"written on {node}", paths.DECISIONS, iso(moment))
    if any(seen.kept.latest("benchmark", one.measured.label) for one in seen.services):
        needed = "it is needed once something was measured: run decisions.yml"
        return Criterion(NOT_MET, f"no {paths.DECISIONS} on a head's node", paths.DECISIONS, seen.now, needed)
    return Criterion(
        NOT_HERE, "nothing was measured yet that it would rest on: run benchmark.yml", paths.DECISIONS, None
    )


def _without_manual_change(seen: Seen) -> Criterion:
    """Fewer hours are no failure: an operator can only wait."""
    last = [(one["now"] - one["at"], host, one) for host, one in seen.hands.items() if one.get("at") is not None]
    where = "times of files and the journal of each node"
    if not last or seen.missing:
        return Criterion(NOT_HERE, "no node knows", where, None)
    seconds, host, change = min(last, key=lambda one: one[0])
    hours = max(0.0, seconds) / 3600
    value = "%d of %d hours, %s on %s at %s" % (min(HOURS, int(hours)), HOURS, change["what"], host, iso(change["at"]))
    return Criterion(*((MET, value) if hours >= HOURS else (NOT_HERE, value + ", not yet")), where, seen.now)


def iso(moment: float) -> str:
    """ISO 8601 of seconds since 1970."""
    return datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


CRITERIA: dict[str, Callable[[Seen], Criterion]] = {
    "binaries of one version": _one_version,
    "model complete and verified": _models,
    "workers and head supervised": _supervised,
    "all GPUs active": _all_work,
    "throughput": _throughput,
    "restart on failure": _restarts,
    "first token < 5 s": _first_token,
    "monitoring works": _monitoring,
    "decisions documented": _decisions,
    "24 h without a manual change": _without_manual_change,
}
# Not met while a node was not looked at.
OF_ALL_NODES = (_one_version, _models, _supervised, _all_work)
