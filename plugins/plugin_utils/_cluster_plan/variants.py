# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variants that serve one model with the same flags: as deployed, on its head's node only, over RPC on loopback,
with one worker. Private to the collection."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._model.memory import Shape
from ...module_utils._plan.split import with_output
from ...module_utils._settings import WORKER_KEYS
from .._intent.records import Groups, Models, Services
from .lines import ceiling
from .plan import memory_plan

Map = Mapping[str, Any]
# Keys that depend on the workers.
OF_WORKERS = ("workers", "tensor_split", "force_split", *WORKER_KEYS)
# Assumed before anything is measured: MiB/s of loading, and tokens/s.
LOADING, GENERATING = 200, 10


class Variant(NamedTuple):
    """name: all, local, loopback or one; title: for an operator. running: whether it is deployed so. workers: their
    nodes. ceiling: tokens/s that the bandwidth of its devices allows one request, None where it is not known. why: it
    is not tried, empty where it is; fits: whether its memory is enough, as far as that is known."""

    name: str
    title: str
    running: bool
    workers: list[str]
    rpc_endpoints: list[str]
    tensor_split: list[int]
    loopback: bool
    ceiling: float | None
    why: str
    fits: bool


class Known(NamedTuple):
    """The arguments of memory_plan() beside services."""

    models: Models
    groups: Groups
    nodes: Mapping[str, Map]
    headers: Sequence[dict[str, Any]]
    builds: Map
    previous: Sequence[dict[str, Any]]


def variants(
    services: Services,
    head: Map,
    models: Models,
    groups: Groups,
    nodes: Mapping[str, Map],
    headers: Sequence[dict[str, Any]],
    builds: Map,
    previous: Sequence[dict[str, Any]],
    plan: Map,
    tokens: int,
) -> dict[str, Any]:
    """-> {variants: what is to be measured, in this order, minutes: about how long the service is away for it}

    head: an entry of node_serving(); plan: what memory_plan() made of the other arguments, which are its own; tokens:
    that each variant is to generate.
    """
    facts = Known(models, groups, nodes, headers, builds, previous)
    name, node, workers = head["service"], head["node"], list(head["workers"])
    deployed = next((one for one in plan["services"].get(name, []) if one["node"] == node), None)
    shape = _shape(services[name], facts)
    bare = {key: value for key, value in services[name].items() if key not in OF_WORKERS}
    single, why, fits = _planned(services, name, dict(bare, head=node), [node], facts)
    local = Variant(
        name="local",
        title=f"only {node}",
        running=not workers,
        workers=[],
        rpc_endpoints=[],
        tensor_split=single["tensor_split"] if single else [],
        loopback=False,
        ceiling=_ceiling(single, shape, facts.nodes),
        why=why if workers else "",
        fits=fits,
    )
    # llama.cpp has the devices of RPC first, the head's own cards after them with nothing; main memory is not listed.
    loopback = local._replace(
        name="loopback",
        title="RPC on loopback",
        running=False,
        tensor_split=with_output(single["counts"]) if single and single["devices"][0]["kind"] == "GPU" else [],
        loopback=True,
        why=why,
    )
    found = [local, loopback]
    if workers:
        split = Variant(
            name="all",
            title=f"{len(workers)} workers" if workers[1:] else f"worker {workers[0]}",
            running=True,
            workers=workers,
            rpc_endpoints=list(head["rpc_endpoints"]),
            tensor_split=list(head["tensor_split"] or []),
            loopback=False,
            ceiling=_ceiling(deployed, shape, facts.nodes),
            why="",
            fits=True,
        )
        found = [split, *found]
    if workers[1:]:
        first = workers[0]
        service = dict(services[name], workers=first, force_split=True)
        service.pop("tensor_split", None)
        one, why, fits = _planned(services, name, service, [node, first], facts)
        found.append(
            split._replace(
                name="one",
                title=f"worker {first}",
                running=False,
                workers=[first],
                rpc_endpoints=split.rpc_endpoints[:1],
                tensor_split=one["tensor_split"] if one else [],
                ceiling=_ceiling(one, shape, facts.nodes),
                why=why,
                fits=fits,
            )
        )
    return {"variants": [one._asdict() for one in found], "minutes": _minutes(found, deployed, int(tokens))}


def _minutes(found: Sequence[Variant], deployed: Map | None, tokens: int) -> int:
    """Each of them, and at the end the service itself, loads the model."""
    away = len([one for one in found if not (one.running or one.why)])
    weights = sum(row["weights_mib"] for row in deployed["devices"]) if deployed else 0
    return math.ceil(((away + 1) * weights / LOADING + away * tokens / GENERATING) / 60) or 1


def _planned(
    services: Services, name: str, service: Map, nodes: Sequence[str], facts: Known
) -> tuple[dict[str, Any] | None, str, bool]:
    """-> (the plan of a service on only these nodes, why it cannot be tried, whether it fits)"""
    plan = memory_plan(
        {**services, name: service},
        facts.models,
        facts.groups,
        {node: facts.nodes[node] for node in nodes if node in facts.nodes},
        facts.headers,
        facts.builds,
        facts.previous,
    )
    part = next(iter(plan["services"].get(name, [])), None)
    entry = f"llama_services.{name}."
    refused = [one.partition(": ")[2] for one in plan["refused"] if one.startswith(entry)]
    why = "; ".join(refused) or plan["unplanned"].get(name, "")
    return part, why, bool(part is None or part["fits"])


def _shape(service: Map, facts: Known) -> Shape | None:
    """The shape in the model's header; None if it was not read."""
    wanted = (service.get("model"), service.get("quant"))
    headers = [
        one["shape"]
        for one in facts.headers
        if one.get("shape") and (one["item"]["model"], one["item"]["quant"]) == wanted
    ]
    return Shape.of(headers[0]) if headers else None


def _ceiling(part: Map | None, shape: Shape | None, nodes: Mapping[str, Map]) -> float | None:
    return ceiling(part, shape, nodes) if part and shape else None
