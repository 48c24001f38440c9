# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a cluster for its criteria, of the nodes in this run and of earlier results. Private to the collection.

The facts are what playbooks/_report.yml (acceptance_hand) and entry point criteria of role acceptance
(acceptance_models_seen, acceptance_measured) register, llama_node, and slurm_seen of module slurm_jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._model.memory import Shape
from ...module_utils._node import paths
from .._cluster_plan.lines import ceiling
from .._intent.records import Groups, HostVars, Models, Services
from .._intent.services import node_serving
from .criteria import Seen, Service
from .jobs import jobs_seen
from .results import Results, label_of, value
from .targets import Measured

Map = Mapping[str, Any]


def gathered(
    hostvars: HostVars,
    groups: Groups,
    services: Services,
    models: Models,
    models_dir: str,
    texts: Mapping[str, str],
    now: str,
) -> Seen:
    """texts: the kept results, {path: content}. now: ISO 8601, UTC."""
    # Ansible computes the variables of a host anew each time.
    hostvars = {host: hostvars[host] for host in hostvars}
    hosts = list(groups.get("llama_nodes", []))
    # Facts of a host that failed are not used.
    hands = {
        host: facts["acceptance_hand"] for host, facts in hostvars.items() if "now" in facts.get("acceptance_hand", {})
    }
    looked = {host: hostvars[host] for host in hosts if host in hands and _has_answered(hostvars[host])}
    nodes = {host: facts["ansible_facts"]["llama_node"] for host, facts in looked.items()}
    plans: Map = next((facts["preflight_plan"] for facts in looked.values() if "preflight_plan" in facts), {})
    serving = {host: node_serving(services, models, host, groups, hostvars, models_dir, plans) for host in hosts}
    stopped: list[str] = next((found["stopped"] for found in serving.values()), [])
    wanted: dict[str, list[str]] = next((found["units"] for found in serving.values()), {})
    heads = [head for found in serving.values() for head in found["heads"] if head["unit"] not in stopped]
    jobs: Map = next((facts["slurm_seen"] for facts in looked.values() if "slurm_seen" in facts), {})
    supervised = jobs_seen(services, models, groups, hostvars, models_dir, plans, jobs)
    # A service waits for a node under maintenance.
    held = {host for host, node in nodes.items() if node.get("held")}
    waiting = {head["service"] for head in heads if {head["node"], *_workers(head)} & held}
    idle = set(stopped) | {
        unit
        for head in heads
        if head["service"] in waiting
        for unit in (head["unit"], *(share["unit"] for share in head["shares"]))
    }
    known = Known(
        kept=Results(texts),
        now=now,
        plans=plans.get("services", {}),
        nodes={host: facts.get("__preflight_memory") or {"devices": []} for host, facts in looked.items()},
        shapes={
            one["item"]["dest"]: one.get("shape")
            for facts in looked.values()
            for one in facts["acceptance_models_seen"]["models"]
            if one["there"]
        },
        cells={
            label_of(one["item"]): one["cells"][0]
            for facts in looked.values()
            for one in facts.get("acceptance_measured", {}).get("results", [])
            if one.get("cells")
        },
        targets=next((facts.get("llama_targets") or {} for facts in map(hostvars.get, hosts) if facts), {}),
    )
    return Seen(
        now=now,
        nodes=nodes,
        missing=[host for host in hosts if host not in looked],
        wanted={host: [unit for unit in units if unit not in idle] for host, units in wanted.items()},
        models={host: facts["acceptance_models_seen"]["models"] for host, facts in looked.items()},
        hashed={host: facts["acceptance_hashed"] for host, facts in looked.items() if "acceptance_hashed" in facts},
        hands=hands,
        decisions={host: nodes[host].get("files", {}).get(paths.DECISIONS) for host in nodes},
        monitoring=_verified(hostvars, groups.get("llama_monitoring", []), hands),
        jobs=len(supervised["rows"]),
        keeper=supervised["keeper"],
        services=[
            _service(head, label, known)
            for head, label in _instances([*heads, *(one for own in supervised["heads"].values() for one in own)])
            if head["service"] not in waiting
        ],
        kept=known.kept,
    )


class Known(NamedTuple):
    """The sources of figures. plans: {service: its parts}. nodes: {node: devices}. shapes: {path: dict of Shape}.
    cells: {label: cell of llama_bench, measured just now}. targets: llama_targets."""

    kept: Results
    now: str
    plans: Map
    nodes: Mapping[str, Map]
    shapes: Mapping[str, Map | None]
    cells: Mapping[str, Map]
    targets: Map


def _verified(hostvars: HostVars, hosts: Sequence[str], hands: Map) -> bool | None:
    """Whether monitoring is verified; None if it was not contacted, as an existing Prometheus."""
    monitors = [host for host in hosts if hostvars[host].get("monitoring_prometheus", "install") == "install"]
    if not all(host in hands for host in monitors):
        return False
    return True if monitors and all(hostvars[host].get("monitoring_verified") for host in monitors) else None


def _has_answered(facts: Map) -> bool:
    """Whether no task failed on a node."""
    return bool(facts["ansible_facts"].get("llama_node")) and "models" in facts.get("acceptance_models_seen", {})


def _workers(head: Map) -> list[str]:
    return [share["node"] for share in head["shares"]]


def _instances(heads: Sequence[Map]) -> list[tuple[Map, str]]:
    """(head, label of its results), a router once for each of its models."""
    found: list[tuple[Map, str]] = []
    for head in heads:
        for one in head.get("models") or []:
            own = {name: one[name] for name in ("model", "quant", "model_path", "args")}
            found.append((dict(head, **own), f"{label_of(head)}.{one['model']}"))
        found += [] if head.get("models") else [(head, label_of(head))]
    return found


def _service(head: Map, label: str, known: Known) -> Service:
    report = known.kept.latest("verify", label)
    # Another quant, of a trial or before a switch, has other figures.
    wanted = head["model"], head.get("quant")
    history = [one for one in known.kept.history("benchmark", label) if (one.get("model"), one.get("quant")) == wanted]
    benchmark: Map = history[-1] if history else {}
    parts = [
        one for one in known.plans.get(head["service"], []) if (one["node"], one["model"]) == (head["node"], wanted[0])
    ]
    single = _single(benchmark)
    limit, why = _ceiling(parts, known.shapes.get(head["model_path"]), known.nodes)
    measured = Measured(
        label=label,
        model=head["model"],
        quant=head.get("quant") or "",
        ceiling=limit,
        no_ceiling=why,
        devices=(report or {}).get("plan") or [],
        seen_at=(report or {}).get("measured_at"),
        peaks=_peaks(benchmark),
        utilization={
            (node, card["index"]): card["utilization"]
            for node, card in _cards([single] if single else [])
            if card["utilization"] is not None
        },
        utilization_at=benchmark.get("measured_at"),
        stages=max(1, len([row for row in parts[0]["devices"] if row["layers"]]) if parts else 0),
        targets=known.targets.get(head["service"]) or {},
        **_figures(known.cells.get(label), single, benchmark, report, known.now),
    )
    return Service(
        measured=measured,
        workers=_workers(head),
        report=report,
        wire=known.kept.latest("wire", label) or known.kept.latest("wire", head["service"]),
        generates=head["serves"] == "text",
    )


def _ceiling(parts: Sequence[Map], shape: Map | None, nodes: Mapping[str, Map]) -> tuple[float | None, str]:
    """(tokens/s that memory allows, or None, and why it is unknown)"""
    if shape is None:
        return None, "the header of its model was not read"
    limit = ceiling(parts[0], Shape.of(dict(shape)), nodes) if parts else None
    unknown = "a bandwidth is not known (llama_devices may give it)" if parts else "no plan says what a token reads"
    return limit, "" if limit else unknown


def _figures(now_cell: Map | None, single: Map | None, benchmark: Map, report: Map | None, now: str) -> dict[str, Any]:
    """The figures of an undisturbed measurement of this run, else of the last benchmark, else of verify's answer."""
    for cell, evidence, moment in (
        (now_cell, "three requests of this run", now),
        (single, "benchmark", benchmark.get("measured_at")),
    ):
        rate = value(cell or {}, "figures.request_tokens_per_second.p50")
        if cell and rate and not cell.get("others") and not cell["figures"]["errors"]:
            first = [value(cell, f"figures.time_to_first_{what}.p50") for what in ("token", "reasoning")]
            return {
                "rate": rate,
                "first_token": min((one for one in first if one is not None), default=None),
                "queue": value(cell, "figures.queue_seconds.p50"),
                "evidence": evidence,
                "measured_at": moment,
            }
    if not report or not report.get("tokens_per_second"):
        return {}
    evidence = "the answer that verify got"
    return {"rate": report["tokens_per_second"], "evidence": evidence, "measured_at": report["measured_at"]}


def _single(benchmark: Map) -> Map | None:
    """The cell of one request at a time without other text before it, of the shortest prompt."""
    found = [cell for cell in benchmark.get("cells") or [] if cell["concurrency"] == 1 and not cell["depth"]]
    return min(found, key=lambda cell: cell["figures"]["prompt_tokens"] or 0, default=None)


def _peaks(benchmark: Map) -> dict[str, dict[int, float]]:
    """{node: {card: the most MiB in use}}"""
    found: dict[str, dict[int, float]] = {}
    for node, card in _cards(benchmark.get("cells") or []):
        if card["memory_peak_mib"] is not None:
            peaks = found.setdefault(node, {})
            peaks[card["index"]] = max(peaks.get(card["index"], 0), card["memory_peak_mib"])
    return found


def _cards(cells: Sequence[Map]) -> list[tuple[str, Map]]:
    return [
        (node, card)
        for cell in cells
        for node, did in (cell.get("nodes") or {}).items()
        for card in (did or {}).get("cards") or []
    ]
