# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines below the tables of a plan: speed, full prompts, threads, reading of weights. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...module_utils._model.memory import Shape
from ...module_utils._plan.full_prompt import NOT_KNOWN, full_prompt
from ...module_utils._settings import is_stopped, kind_of, value
from .cluster import Cluster, Placed

Map = Mapping[str, Any]


def lines(cluster: Cluster, placed: Mapping[str, Placed], found: Map, only: str) -> list[str]:
    """The lines below the tables of a plan: speed, full prompts, threads. found: of memory_plan(); only: one
    service."""
    said, prompts, unknown = [], [], []
    for name, one in sorted(placed.items()):
        said += _speed(cluster, one) if cluster.complete and name == (only or name) else []
        reads = {"embeddings", "reranking", "models"} & {key for key, given in cluster.services[name].items() if given}
        for part in one.parts if name == (only or name) and name not in found["unchanged"] and not reads else ():
            label = f"{name} on {part.node}" if len(one.parts) > 1 else name
            words = full_prompt(part.slot_ctx_size, part.inputs, cluster.measured.get((name, part.node)))
            prompts += [f"{label}: {words}"] if words else []
            unknown += [] if words else [label]
    prompts += [f"{', '.join(unknown)}: {NOT_KNOWN}"] if unknown else []
    return said + prompts + _threads(cluster, found["threads"], only) + _load_modes(found["load_modes"], only)


def _speed(cluster: Cluster, placed: Placed) -> list[str]:
    """A line with the most tokens/s of a service, of each model of a router; of replicas the slowest one counts."""
    rates: dict[str, list[float | None]] = {}
    for part in placed.parts:
        drafts = cluster.services[placed.name].get("draft")
        whole = None if drafts else placed.shapes.get((part.node, part.model))
        rate = ceiling(part.as_dict(), whole, cluster.nodes) if whole else None
        rates.setdefault(part.model, []).append(rate)
    slowest = {model: min(filter(None, own)) for model, own in rates.items() if all(own)}
    words = [
        f"{rate:.{0 if rate >= 10 else 1}f}" + (f" ({model})" if len(rates) > 1 else "")
        for model, rate in slowest.items()
    ]
    return [f"{placed.name}: at most {', '.join(words)} tokens/s, one request at a time"] if words else []


def ceiling(part: Map, shape: Shape, nodes: Mapping[str, Map]) -> float | None:
    """Tokens/s of one request that the devices of a plan can read weights for: one after the other, each its layers, of
    experts those that a token uses. The cache is left out, so it is never reached. None where a bandwidth is not known,
    or where a draft model answers for several tokens at once."""
    described = [device for node in nodes.values() for device in (*node["devices"], node.get("main") or {}) if device]
    speeds = {(one["node"], one["device"]): float(one.get("bandwidth") or 0) for one in described}
    rows = [row for row in part["devices"] if row["layers"]]
    if shape.draft or sum(row["layers"] for row in rows) != shape.block_count:
        return None
    used = shape.n_expert_used / shape.n_expert if shape.n_expert else 1.0
    sizes: list[tuple[tuple[str, str], float]] = []
    for row in rows:
        place = (row["node"], row["device"])
        sizes += [(place, shape.output_bytes)] if row["last_layer"] == shape.block_count - 1 else []
        for block in range(row["first_layer"], row["last_layer"] + 1):
            experts = shape.expert_bytes[block]
            kept = (part["node"], "main") if block < part["cpu_moe"] else place
            sizes += [(place, shape.block_bytes[block] - experts), (kept, experts * used)]
    if any(size and not speeds.get(place) for place, size in sizes):
        return None
    seconds = sum(size / speeds[place] / 1e9 for place, size in sizes if size)
    return float(f"{1 / seconds:.4g}") if seconds else None


def threads(cluster: Cluster, placed: Mapping[str, Placed]) -> dict[str, dict[str, int]]:
    """{service: {node: threads}} of those that give none and compute in main memory beside others of their node: each
    has an equal part of the physical cores that the others leave. A single one has llama-server's own number.

    It follows from the inventory and from what a node has, never from what is free.
    """
    found: dict[str, dict[str, int]] = {}
    for node, facts in cluster.nodes.items():
        cores = int(facts.get("physical_cores") or 0)
        names = [name for name in sorted(cluster.services) if _computes(cluster, placed[name], node)]
        given = [cluster.services[name].get("threads", 0) for name in names]
        share = max((cores - sum(given)) // max(given.count(0), 1), 1)
        for name in names if cores and len(names) > 1 else ():
            if "threads" not in cluster.services[name]:
                found.setdefault(name, {})[node] = share
    return found


def load_modes(cluster: Cluster) -> dict[str, dict[str, str]]:
    """{service: {node of a head: load_mode}} of those whose build does not choose."""
    found = {}
    for name, service in cluster.services.items():
        modes = {node: cluster.load_mode(service, node) for node in cluster.heads(name)}
        found[name] = {node: mode for node, mode in modes.items() if mode != value(service, "load_mode")}
    return {name: own for name, own in found.items() if own}


def _load_modes(found: Mapping[str, Mapping[str, str]], only: str) -> list[str]:
    names = [name for name in sorted(found) if name == (only or name)]
    words = "load_mode: auto is dio, since mapped weights would lie twice in a memory that card and node share"
    return [f"{', '.join(names)}: {words}"] if names else []


def _computes(cluster: Cluster, placed: Placed, node: str) -> bool:
    """Whether a service that runs has layers or experts in the main memory of a node, its head's."""
    service = cluster.services[placed.name]
    elsewhere = kind_of(service) != "server" or is_stopped(service) or service.get("workers")
    if elsewhere or node not in cluster.heads(placed.name):
        return False
    if service.get("cards") == [] or cluster.devices[node][0].kind == "main":
        return True
    experts = next((part.plan.cpu_moe for part in placed.parts if part.node == node), service.get("cpu_moe"))
    return value(service, "n_gpu_layers") != "auto" or bool(experts)


def _threads(cluster: Cluster, found: Mapping[str, Mapping[str, int]], only: str) -> list[str]:
    by_node: dict[str, list[str]] = {}
    for name, own in sorted(found.items()):
        for node, count in own.items() if name == (only or name) else ():
            by_node.setdefault(node, []).append("%s %d" % (name, count))
    parts = [
        f"{', '.join(words)} of the {int(cluster.nodes[node]['physical_cores'])} cores of {node}"
        for node, words in sorted(by_node.items())
    ]
    return [f"threads of services in main memory: {'; '.join(parts)}"] if parts else []
