# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One service in its place: what it is planned with, beside what others have claimed. Private to the collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._llama.drafts import model_of
from ...module_utils._model.describe import NO_MODEL
from ...module_utils._model.memory import leaving
from ...module_utils._plan import table
from ...module_utils._plan.devices import Device
from ...module_utils._plan.place import Case, Plan, ServicePlan, cache_words, plan, plan_experts, slot_context
from ...module_utils._plan.split import per_device, with_output
from ...module_utils._plan.stored import inputs_of
from ...module_utils._settings import is_stopped, resolved, value
from ...module_utils._text import Refusal
from .._intent.check import hopeless
from .._intent.routers import as_service, quants
from . import refusals, routers
from .cluster import ON_ITS_NODE, Claims, Cluster, Misfit, Placed, View
from .companions import load


def place(cluster: Cluster, name: str, claims: Claims, uncounted: Sequence[str]) -> Placed:
    """A service with the cards that it may use. uncounted: services before it whose claims are not known."""
    service, devices = cluster.services[name], cluster.devices
    hosts = cluster.hosts(name)
    if "cards" not in service:
        placed = _running_or_stopped(View(cluster, devices, claims), name)
        pinned = {node: devices[node] for node in hosts if any(one.pinned for one in devices.get(node, ()))}
        placed.cards = {node: [one.word() for one in found] for node, found in pinned.items()} or None
        return placed
    # The cards that a count of them chose in an earlier run: others would mean a restart.
    earlier: dict[str, set[str]] = {}
    for part in cluster.earlier(name, hosts) if isinstance(service["cards"], int) else ():
        for row in part.plan.devices:
            earlier.setdefault(row.node, set()).update([row.device] if row.kind == "GPU" else [])
    unknown = [other for other in uncounted if other != name]
    try:
        own = {node: _own_cards(cluster, name, node, claims, unknown, earlier) for node in hosts if node in devices}
        lacks = _placed(View(cluster, {**devices, **own}, claims), name).misfits if earlier else []
        # The other replicas keep their cards.
        moves = hosts if service.get("workers") else [lack.described.node for lack in lacks]
        for node in [node for node in own if lacks and node in moves]:
            own[node] = _own_cards(cluster, name, node, claims, unknown, {})
    except Refusal as problem:
        return Placed(name, refused=[str(problem)], cards={})
    placed = _running_or_stopped(View(cluster, {**devices, **own}, claims), name)
    # Without a card a unit sees none.
    placed.cards = {node: [device.word() for device in found if device.kind == "GPU"] for node, found in own.items()}
    return placed


def _own_cards(
    cluster: Cluster,
    name: str,
    node: str,
    claims: Claims,
    uncounted: Sequence[str],
    earlier: Mapping[str, set[str]],
) -> list[Device]:
    """The devices of a node that a service may use. Errors: Refusal."""
    wanted, devices = cluster.services[name]["cards"], cluster.devices[node]
    cards = [device for device in devices if device.kind == "GPU"]
    entry = f"llama_services.{name}"
    if wanted == []:
        main = cluster.nodes[node].get("main")
        if cards and not main:
            key = "build: accelerator cpu" if cluster.needs_no_card(cluster.services[name]) else "cards: []"
            raise Refusal(
                "%s.%s seen, the main memory of %s is needed to plan it: add {main: true, memory_mib: 64000} to its "
                "llama_devices" % (entry, key, node)
            )
        return [Device(**main)] if cards and main else devices
    if isinstance(wanted, list):
        known = [int(card.device[3:]) for card in cards]
        for index in [index for index in wanted if index not in known]:
            raise Refusal(
                "%s.cards: %d seen, %s has %s, one that nvidia-smi or vulkaninfo prints there is needed: correct "
                "it" % (entry, index, node, ", ".join(map(str, known)) or "no card")
            )
        return [card for card in cards if int(card.device[3:]) in wanted]
    if wanted > len(cards):
        raise Refusal(
            "%s.cards: %d seen, at most the %d of %s are allowed: lower it" % (entry, wanted, len(cards), node)
        )
    same = [card for card in cards if card.device in earlier.get(node, ())]
    if len(same) == wanted:
        return same
    others = [other for other in uncounted if node in cluster.hosts(other)]
    if others:
        raise Refusal(
            "%s.cards: %d seen beside %s on %s, whose plan is not known without all of its nodes, a plan of it is "
            "needed to count cards: run without --limit, or write indices" % (entry, wanted, table.join(others), node)
        )

    def taken(card: Device) -> tuple[int, int, int]:
        """The least of other services first, then the largest by whole GiB. By what the inventory puts there, not by
        what is free now: the choice is in the digest of the unit."""
        own = claims.get((node, card.device), {})
        return (sum(own.values()), -round(card.total_mib / 1024), int(card.device[3:]))

    chosen = sorted(cards, key=taken)[:wanted]
    return [card for card in cards if card in chosen]


def _running_or_stopped(view: View, name: str) -> Placed:
    """A stopped service takes nothing from the others: it is planned beside the running ones, else as if it were the
    only one."""
    placed = _placed(view, name)
    if not is_stopped(view.cluster.services[name]):
        return placed
    lacks = placed.misfits
    placed = _placed(view._replace(claims={}), name) if lacks else placed
    shortages = "".join(", " + lack.shortage() for lack in lacks)
    verdict = f"{'does not fit' if lacks else 'fits'} beside what runs{shortages}"
    placed.lines = [f"{name}: stopped, not counted; it {verdict}"] if placed.parts else []
    placed.rows = []
    return placed


def _placed(view: View, name: str) -> Placed:
    cluster, placed = view.cluster, Placed(name)
    service, heads, workers = cluster.services[name], cluster.heads(name), cluster.workers(name)
    absent = [host for host in heads + workers if host not in cluster.nodes]
    # Each replica has a plan of its own.
    there = [head for head in heads if head in cluster.nodes] if not workers else []
    if absent and not there:
        placed.uncounted = len(absent) < len(heads + workers) and not cluster.same(name)
        _without(view, placed, refusals.absent(absent), absent)
        return placed
    if absent:
        placed.why = refusals.absent(absent)
        placed.refused += [refusals.not_planned(name, placed.why, absent)] if cluster.complete else []
    for head in there or heads:
        own = {host: cluster.nodes[host] for host in [head, *workers]}
        placed.refused += refusals.threads(name, service, own, head)
        placed.refused += refusals.no_numa_node(name, service, head, cluster.nodes[head])
    (_router if "models" in service else _server)(view, placed, there or heads)
    return placed


def _without(view: View, placed: Placed, why: str, absent: Sequence[str] = ()) -> None:
    """A service that cannot be planned: it had a plan, or has layers per node, for which the cards of its nodes are
    enough."""
    cluster, name = view.cluster, placed.name
    service, same = cluster.services[name], cluster.same(name)
    split = value(service, "tensor_split")
    placed.rows = [row for part in same for row in part.plan.devices]
    placed.why = why
    too_large = hopeless({name: service}, cluster.models, cluster.groups, cluster.nodes)
    placed.refused += too_large
    # plan.yml does not see the disks of nodes. A router and a draft name the model before the reason.
    if not too_large and (cluster.complete and not why.endswith(ON_ITS_NODE) or NO_MODEL in why):
        placed.refused.append(refusals.not_planned(name, why, absent))
    if isinstance(split, dict) and not absent:
        # Layers per node need no header, but the cards of each node.
        holders = cluster.workers(name) + [head for head in cluster.heads(name)[:1] if split.get(head)]
        nodes = [node for node in holders for _device in view.devices[node]]
        rendered = with_output(per_device(split, nodes)) if len(nodes) > 1 else []
        placed.rendered = {"layers": {node: split.get(node, 0) for node in holders}, "tensor_split": rendered}
        return
    decided = service.get("workers") or service.get("cpu_moe") == "auto" or routers.counts_models(service)
    heads = [head for head in cluster.heads(name) if head in cluster.nodes]
    # Without a head no command line is written in this run.
    if cluster.complete or too_large or not decided or not heads:
        return
    same = [part for part in same if part.node in heads]
    if len(same) == len(heads) * len(quants(service)) and split in (
        "auto",
        {node: count for node, count in same[0].layers.items() if node in split},
    ):
        placed.parts = same
    else:
        placed.refused.append(refusals.without_plan(name, service, why, absent))


def _described(
    view: View, placed: Placed, node: str, entry: tuple[str, str, str], case: Case, planned: Plan, inputs: list[Any]
) -> ServicePlan:
    """entry: model, quant, source."""
    model, quant, source = entry
    layers: dict[str, int] = {}
    for row in planned.devices:
        layers[row.node] = layers.get(row.node, 0) + row.layers
    return ServicePlan(
        planned,
        service=placed.name,
        model=model,
        quant=quant,
        source=source,
        ctx_size=case.settings.ctx_size or case.shape.context_length,
        slot_ctx_size=slot_context(case.shape, case.settings),
        cache_type=cache_words(case.settings),
        problem=None if source == "header" else view.cluster.headers.get((model, quant), {}).get("msg"),
        node=node,
        layers=layers,
        inputs=inputs,
        unplanned=list(view.cluster.services[placed.name].get("extra_args") or []),
    )


def _router(view: View, placed: Placed, hosts: Sequence[str]) -> None:
    """Every host serves every model."""
    cluster, name = view.cluster, placed.name
    service = cluster.services[name]
    cases: list[routers.Served] = []
    for model in service["models"]:
        single = resolved(as_service(service, model), cluster.models[model])
        settings = cluster.settings(single)
        try:
            shape, source = cluster.shape(model, single["quant"])
            slot_context(shape, settings)
            loaded = load(cluster, single, shape, settings)
        except Refusal as problem:
            _without(view, placed, f"{model} {single['quant']}: {problem}")
            continue
        shape, settings = loaded.shape, loaded.settings
        placed.refused += [f"llama_services.{name}.models.{model}.{key}: {words}" for key, words in loaded.refused]
        placed.refused += refusals.settings(name, single, shape, settings, [])
        cases.append(routers.Served(model, single["quant"], source, shape, settings))
    for host in hosts if len(cases) == len(service["models"]) else []:
        devices = view.of([host])
        main = view.main(host) if devices[-1].kind == "GPU" else None
        earlier, build = cluster.earlier(name, [host]), cluster.build(service)
        found = routers.decide(name, service.get("models_max"), cases, devices, main, earlier, build)
        for one, planned, inputs in zip(cases, found.plans, found.inputs, strict=True):
            case = Case(one.shape, one.settings, devices, len(devices), main)
            part = _described(view, placed, host, (one.model, one.quant, one.source), case, planned, inputs)._replace(
                models_max=found.loaded
            )
            placed.parts.append(part)
            if not one.settings.embeddings:
                placed.shapes[host, one.model] = one.shape
            placed.refused += refusals.tensors(name, case, planned)
            if not planned.fits:
                beside = view.beside([*devices, *([main] if main else [])])
                placed.misfits.append(Misfit(name, case, part, [], beside))
        placed.refused += found.refused
        held = [row.total_mib - row.margin_mib for row in found.claims if row.kind == "main"]
        placed.refused += refusals.limit(name, service, "memory_max", sum(held))
        placed.rows += found.claims
        placed.lines += found.lines


def _server(view: View, placed: Placed, heads: Iterable[str]) -> None:
    cluster = view.cluster
    service = cluster.services[placed.name]
    settings, second = cluster.settings(service), model_of(service.get("draft"))
    try:
        shape, source = cluster.shape(service["model"], service["quant"])
        slot_context(shape, settings)
        if second:
            try:
                shape = shape._replace(draft=cluster.shape(*second)[0])
            except Refusal as problem:
                raise Refusal(f"its draft model {' '.join(second)}: {problem}") from None
        loaded = load(cluster, service, shape, settings)
        # Experts are known of a header, or of a description where no earlier plan was made with a header.
        described = any(shape.expert_bytes) and not any(part.source == "header" for part in cluster.same(placed.name))
        if value(service, "cpu_moe") and source != "header" and not described:
            raise Refusal(refusals.UNKNOWN_EXPERTS if any(shape.expert_bytes) else refusals.NO_EXPERTS)
    except Refusal as problem:
        _without(view, placed, str(problem))
        return
    placed.refused += [f"llama_services.{placed.name}.{key}: {words}" for key, words in loaded.refused]
    for head in heads:
        entry = (service["model"], service["quant"], source)
        _head(view, placed, head, entry, Case(loaded.shape, loaded.settings, view.of([head]), 0), loaded.inputs)


def _head(
    view: View, placed: Placed, head: str, entry: tuple[str, str, str], case: Case, more: list[list[Any]]
) -> None:
    """A head with its workers. entry: model, quant, source; case: on the devices of the head only; more: inputs of
    what is loaded beside the model."""
    cluster, name, own, shape = view.cluster, placed.name, case.devices, case.shape
    service, workers = cluster.services[name], cluster.workers(name)
    experts, split, force = value(service, "cpu_moe"), value(service, "tensor_split"), value(service, "force_split")
    # Only in candidates of tune.yml, whose head sees no card then.
    beside = workers == [head]
    main = view.main(head) if own[-1].unified or not workers else None
    # llama.cpp computes on a head's main memory only where there is nothing else.
    local = 0 if workers and (own[0].kind == "main" or beside) else len(own)
    devices = view.of(workers) + own[:local]
    refused = refusals.settings(name, service, shape, case.settings, devices)
    refused += refusals.model(name, service, shape, own[0], main)
    counts = None
    if isinstance(split, dict):
        refused += refusals.layers(name, service, shape, split, [] if local else [head])
        counts = per_device(split, [device.node for device in devices])
    placed.refused += refused
    if refused:
        return
    inputs = [*entry, *inputs_of(shape, case.settings, devices)]
    # Not what main memory it has: a kernel's update changes that.
    inputs += [[experts]] if experts else []
    second = model_of(service.get("draft"))
    inputs += [["draft", *(second or (service["draft"]["type"],))]] if service.get("draft") else []
    inputs += more
    whole, offloaded = shape, value(service, "n_gpu_layers")
    if offloaded != "auto":
        inputs += [["n_gpu_layers", offloaded]]
        shape = leaving(whole, whole.block_count + 1 - offloaded)
    case = Case(shape, case.settings, devices, local, main, counts)
    planned = None
    earlier = next((part.plan for part in cluster.earlier(name, [head]) if part.inputs == inputs), None)
    if experts:
        case, planned = plan_experts(case, experts, force, earlier)
    elif counts is None and earlier:
        planned = case._replace(counts=earlier.counts).plan(force)
    if not planned or not (planned.fits or experts):
        planned = case.plan(force)
    planned = _with_head(planned, own[-1]) if beside else planned
    part = _described(view, placed, head, entry, case, planned, inputs)
    placed.parts.append(part)
    if not case.settings.embeddings:
        placed.shapes[head, part.model] = whole
    mode = cluster.load_mode(service, head)
    placed.refused += refusals.memory_max(name, {**service, "load_mode": mode}, part)
    placed.refused += refusals.tensors(name, case, planned)
    # One device is enough wherever it is; the head's own are looked at first.
    one = plan(shape, case.settings, own + view.of(workers), len(own)) if workers and not (force or beside) else planned
    if one is not planned and one.topology != "split" and one.fits:
        placed.refused.append(refusals.needs_no_split(name, part, one, head))
    elif not planned.fits:
        words = refusals.own_words(case, whole, force)
        others = view.beside(devices + ([main] if main else []))
        placed.misfits.append(Misfit(name, case, part, words, others))
    elif not counts and workers:
        idle = [worker for worker in workers if not part.layers[worker]]
        placed.refused += [table.idle_workers(f"llama_services.{name}.workers", part, idle)] if idle else []
    placed.rows += planned.devices if planned.fits else []
    if planned.fits:
        placed.lines += _sharing(view, cluster.title(name, head), planned)


def _with_head(planned: Plan, own: Device) -> Plan:
    """A worker's plan with what its head keeps beside it, where the device is main memory or works there."""
    if own.kind == "GPU" and not own.unified:
        return planned
    row = planned.devices[-1]
    more = max(0, sum(planned.host.values()) - own.spare_mib)
    row = row._replace(compute_mib=row.compute_mib + more, total_mib=row.total_mib + more)
    fits = planned.fits and row.total_mib <= (row.free_mib or 0)
    return planned._replace(devices=[*planned.devices[:-1], row], fits=fits)


def _sharing(view: View, title: str, planned: Plan) -> list[str]:
    """A line on the services that a new one shares devices with."""
    rows = {(row.node, row.device): row.kind for row in planned.devices}
    shared = {place: view.claims[place] for place in rows if view.claims.get(place)}
    kinds = {rows[place] for place in shared}
    memory = table.join([words for kind, words in (("GPU", "cards"), ("main", "main memory")) if kind in kinds])
    names = sorted({name for claims in shared.values() for name in claims})
    return [f"{title} shares {memory} with {table.join(names)}, all of them fit"] if names else []
