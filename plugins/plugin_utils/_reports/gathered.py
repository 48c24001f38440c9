# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the report is made of: what the nodes have said in this run, beside what was kept of earlier ones. Private to
the collection.

Nodes say it as what playbooks/_report.yml (acceptance_hand) and entry point criteria of role acceptance
(acceptance_models_seen, acceptance_measured) register, and as their fact llama_node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._llama.args import told
from ...module_utils._node import paths
from ...module_utils._plan.devices import main_memory, of_node
from .._intent.records import Groups, HostVars, Models, Services
from .._intent.services import node_serving
from .bench import value
from .criteria import Seen, Service
from .results import Results
from .targets import Measured, ceiling, share_read

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
    """texts: what is kept, {path: content}. now: ISO 8601, UTC."""
    kept = Results(texts)
    # Ansible puts the variables of a host together anew each time.
    hostvars = {host: hostvars[host] for host in hostvars}
    hosts = list(groups.get("llama_nodes", []))
    # What a host that failed or is gone has registered says nothing.
    hands = {
        host: facts["acceptance_hand"] for host, facts in hostvars.items() if "now" in facts.get("acceptance_hand", {})
    }
    looked = {host: hostvars[host] for host in hosts if host in hands and _has_answered(hostvars[host])}
    nodes = {host: facts["ansible_facts"]["llama_node"] for host, facts in looked.items()}
    held = [host for host, node in nodes.items() if node.get("held")]
    plans: Map = next((facts["preflight_plan"] for facts in looked.values() if "preflight_plan" in facts), {})
    serving = {host: node_serving(services, models, host, groups, hostvars, models_dir, plans) for host in hosts}
    stopped: list[str] = next((found["stopped"] for found in serving.values()), [])
    wanted: dict[str, list[str]] = next((found["units"] for found in serving.values()), {})
    heads = [head for found in serving.values() for head in found["heads"] if head["unit"] not in stopped]
    # A service waits for a node under maintenance.
    waiting = {head["service"] for head in heads if {head["node"], *_workers(head)} & set(held)}
    idle = set(stopped) | {
        unit for head in heads if head["service"] in waiting for unit in (head["unit"], *_worker_units(head))
    }
    speeds = {(host, device): speed for host, facts in looked.items() for device, speed in _speeds(host, facts).items()}
    shapes = {
        one["item"]["dest"]: one.get("shape")
        for facts in looked.values()
        for one in facts["acceptance_models_seen"]["models"]
        if one["there"]
    }
    cells = {
        _label(one["item"]): one["cells"][0]
        for facts in looked.values()
        for one in facts.get("acceptance_measured", {}).get("results", [])
        if one.get("cells")
    }
    # Another Prometheus is not asked.
    monitors = [
        host
        for host in groups.get("llama_monitoring", [])
        if hostvars[host].get("monitoring_prometheus", "install") == "install"
    ]
    targets: Map = next((facts.get("llama_targets") or {} for facts in map(hostvars.get, hosts) if facts), {})
    return Seen(
        now=now,
        nodes=nodes,
        missing=[host for host in hosts if host not in looked],
        wanted={host: [unit for unit in units if unit not in idle] for host, units in wanted.items()},
        models={host: facts["acceptance_models_seen"]["models"] for host, facts in looked.items()},
        hashed={host: facts["acceptance_hashed"] for host, facts in looked.items() if "acceptance_hashed" in facts},
        hands=hands,
        decisions={host: nodes[host].get("files", {}).get(paths.DECISIONS) for host in nodes},
        monitoring=_verified(hostvars, monitors, hands),
        services=[
            _service(head, label, kept, cells, plans, speeds, shapes, now, targets.get(head["service"]) or {})
            for head, label in _asked(heads)
            if head["service"] not in waiting
        ],
        kept=kept,
    )


def _verified(hostvars: HostVars, monitors: Sequence[str], hands: Map) -> bool | None:
    """Whether monitoring answered as it should; None where nobody asked it. Of a host that failed nothing is known."""
    if not all(host in hands for host in monitors):
        return False
    asked = [host for host in monitors if hostvars[host].get("monitoring_verified")]
    return True if monitors and asked == monitors else None


def _has_answered(facts: Map) -> bool:
    """Whether a node got through all that it was asked."""
    return bool(facts["ansible_facts"].get("llama_node")) and "models" in facts.get("acceptance_models_seen", {})


def _worker_units(head: Map) -> list[str]:
    return [share["unit"] for share in head["shares"]]


def _workers(head: Map) -> list[str]:
    return [share["node"] for share in head["shares"]]


def _asked(heads: Sequence[Map]) -> list[tuple[Map, str]]:
    """Each head, a router once for each of its models, with the name that its results are kept by."""
    found: list[tuple[Map, str]] = []
    for head in heads:
        for one in head.get("models") or []:
            own = {name: one[name] for name in ("model", "quant", "model_path", "args")}
            found.append((dict(head, **own), f"{_label(head)}.{one['model']}"))
        found += [] if head.get("models") else [(head, _label(head))]
    return found


def _label(head: Map) -> str:
    return str(head.get("label") or head["service"]).replace(" on ", ".")


def _speeds(host: str, facts: Map) -> dict[str, float | None]:
    """{device: GB/s} of a node's cards and of its main memory."""
    seen = facts["ansible_facts"].get("nvidia_smi") or {}
    described = facts.get("llama_devices") or []
    environment = dict(facts.get("rpc_worker_environment") or {}, **(facts.get("head_server_environment") or {}))
    # Only bandwidths are read: any size of main memory will do.
    cards = of_node(host, seen.get("gpus") or [], 1, 0, (), environment.get("CUDA_VISIBLE_DEVICES"), described)
    main: Map = next((one for one in described if one.get("main")), {})
    own = [card.bandwidth for card in cards if card.unified]
    found = {"main": main_memory(host, dict(main, memory_mib=0), 0).bandwidth or next(iter(own), None)}
    found.update({card.device: card.bandwidth for card in cards})
    # Older Ansible hands out numbers of templates as text.
    return {device: float(speed) if speed else None for device, speed in found.items()}


def _service(
    head: Map,
    label: str,
    kept: Results,
    cells: Mapping[str, Map],
    plans: Map,
    speeds: Mapping[tuple[str, str], float | None],
    shapes: Mapping[str, Map | None],
    now: str,
    targets: Map,
) -> Service:
    report = kept.latest("verify", label)
    # Another quant, of a trial or of before a switch, has other figures.
    what = head["model"], head.get("quant")
    own_benchmarks = [one for one in kept.history("benchmark", label) if (one.get("model"), one.get("quant")) == what]
    benchmark = own_benchmarks[-1] if own_benchmarks else None
    own = [
        plan
        for plan in plans.get("services", {}).get(head["service"], [])
        if plan["node"] == head["node"] and plan["model"] == head["model"]
    ]
    rows = own[0]["devices"] if own else []
    limit = _limit(rows, speeds, shapes.get(head["model_path"]))
    alone = _alone(benchmark)
    measured = Measured(
        label=label,
        model=head["model"],
        quant=head.get("quant") or "",
        ceiling=limit if isinstance(limit, float) else None,
        no_ceiling=limit if isinstance(limit, str) else "",
        devices=(report or {}).get("plan") or [],
        seen_at=(report or {}).get("measured_at"),
        peaks=_peaks(benchmark),
        utilization=_utilization(alone),
        utilization_at=(benchmark or {}).get("measured_at"),
        stages=max(1, len([row for row in rows if row["layers"]])),
        targets=targets,
        **_figures(cells.get(label), alone, benchmark, report, now),
    )
    return Service(
        measured=measured,
        head=head,
        workers=_workers(head),
        report=report,
        wire=kept.latest("wire", label) or kept.latest("wire", head["service"]),
        generates=not told(head.get("args") or []).embeddings,
    )


def _limit(rows: Sequence[Map], speeds: Mapping[tuple[str, str], float | None], shape: Map | None) -> float | str:
    if shape is None:
        return "the header of its model was not read"
    return ceiling(rows, speeds, share_read(shape))


def _figures(
    now_cell: Map | None, alone: Map | None, benchmark: Map | None, report: Map | None, now: str
) -> dict[str, Any]:
    """What was measured just now, undisturbed, else in the last benchmark, else while verify asked."""
    for cell, evidence, moment in (
        (now_cell, "three requests of this run", now),
        (alone, "benchmark", (benchmark or {}).get("measured_at")),
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
    if report and report.get("tokens_per_second"):
        return {
            "rate": report["tokens_per_second"],
            "evidence": "the answer that verify got",
            "measured_at": report["measured_at"],
        }
    return {}


def _alone(benchmark: Map | None) -> Map | None:
    """The cell of one request at a time, without other text before it, of the shortest prompt."""
    found = [
        cell
        for cell in (benchmark or {}).get("cells") or []
        if cell["concurrency"] == 1 and not cell["depth"] and not cell["rate"]
    ]
    return min(found, key=lambda cell: cell["figures"]["prompt_tokens"] or 0) if found else None


def _peaks(benchmark: Map | None) -> dict[str, dict[int, float]]:
    """{node: {card: MiB that it had in use at most}}"""
    found: dict[str, dict[int, float]] = {}
    for node, card in _cards((benchmark or {}).get("cells") or []):
        if card["memory_peak_mib"] is not None:
            known = found.setdefault(node, {})
            known[card["index"]] = max(known.get(card["index"], 0), card["memory_peak_mib"])
    return found


def _utilization(cell: Map | None) -> dict[tuple[str, int], float]:
    return {
        (node, card["index"]): card["utilization"]
        for node, card in _cards([cell] if cell else [])
        if card["utilization"] is not None
    }


def _cards(cells: Sequence[Map]) -> list[tuple[str, Map]]:
    return [
        (node, card)
        for cell in cells
        for node, did in (cell.get("nodes") or {}).items()
        for card in (did or {}).get("cards") or []
    ]
