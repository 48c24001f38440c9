# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would fit in place of what does not, what is done about shared devices, and what more would fit beside all of
it; each computed. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.left import leaving
from ...module_utils._model.memory import Shape
from ...module_utils._plan.context import allowed_context
from ...module_utils._plan.devices import Device
from ...module_utils._plan.place import Case, Plan, plan_experts
from ...module_utils._plan.suggest import CONTEXT_STEP, largest, nearest
from ...module_utils._plan.table import join
from ...module_utils._settings import context, value
from .._intent.check import weights
from . import refusals
from .cluster import Claims, Cluster, Misfit, Placed, View, claim

# A service could have at least so many times its context.
WORTH_IT = 1.25


def own_words(case: Case, whole: Shape, force: bool) -> list[str]:
    """Words for a split that the plan would choose, and for the most layers on the cards that fit. whole: the model
    with the layers that are left to main memory."""
    automatic = case._replace(counts=None).plan(force)
    if case.counts and automatic.fits:
        rows = [row for row in automatic.devices if row.layers or row.kind == "GPU"]
        return ["set tensor_split to auto (%s)" % ", ".join("%s %d" % (row.node, row.layers) for row in rows)]
    for blocks in range(case.shape.block_count - 1, 0, -1) if case.shape.left else ():
        if case._replace(shape=leaving(whole, whole.block_count - blocks)).plan().fits:
            return ["lower n_gpu_layers to %d" % (blocks + 1)]
    return []


def misfit_sentence(view: View, placed: Mapping[str, Placed], one: Misfit) -> str:
    """Why a server does not fit, and what would. view: with the claims of all that are placed; a node that is named is
    claimed, so that no other service is sent there too."""
    cluster, service = view.cluster, view.cluster.services[one.name]
    words = list(one.words)
    if not words:
        if len(cluster.heads(one.name)) > 1:
            words = [f"leave {one.described.node} out of head"]
        elif not (one.case.counts or "models" in service):
            words = _other_node(view, one)
        model = cluster.models[one.described.model]
        sizes = {quant: weights(model, quant)[0] for quant in model["quants"]}
        sizes[""] = sizes.pop(one.described.quant)
        words += nearest(one.case, one.described.quant, sizes, not words)
    for name in sorted({name for claims in one.beside.values() for name in claims if name in placed}):
        words += _larger_cpu_moe(one, name, placed[name].least)
    if one.name in cluster.typed:  # both ways to say it are refused together
        words = [said.replace("set cache to", "set cache_type_k and cache_type_v to") for said in words]
    return refusals.does_not_fit(one.name, service, one.described, words, one.beside)


def _other_node(view: View, one: Misfit) -> list[str]:
    """Words for another node that would hold a service, an idle one first."""
    cluster, case, service = view.cluster, one.case, view.cluster.services[one.name]
    used, without = {device.node for device in case.devices}, service.get("cards") == []
    heads: list[tuple[str, Case]] = []
    workers: list[tuple[str, Case]] = []
    for idle in (True, False):
        for node in cluster.nodes:
            main = view.main(node)
            own = [main] if without and main else view.of([node])
            names = sorted({name for device in own for name in view.claims.get((node, device.device), {})})
            if node in used or not own or own[0].kind != case.devices[-1].kind or idle == bool(names):
                continue
            beside = f" beside {join(names)}" if names else ""
            drop = " and drop workers" if service.get("workers") else ""
            heads.append((f"make {node} its head{beside}{drop}", case._replace(devices=own, local=len(own), main=main)))
            joined = case._replace(devices=own + list(case.devices), main=None)
            workers.append((f"add {node} to workers{beside}", joined))
    if without:
        own = view.of([case.devices[-1].node])
        key = f"write accelerator auto in llama_builds.{value(service, 'build')}"
        words = key if cluster.needs_no_card(service) else "drop cards"
        heads += [(words, case._replace(devices=own, local=len(own), main=None))] if own[0].kind == "GPU" else []
    # Neither goes with workers.
    elsewhere = without or "cpu_moe" in service or case.shape.left
    for words, tried in heads + (workers if case.local and not elsewhere else []):
        planned = tried.plan()
        if planned.fits:
            claim(view.claims, one.name, planned.devices)
            return [words]
    return []


def _larger_cpu_moe(one: Misfit, name: str, least: Sequence[Plan]) -> list[str]:
    """Words for a neighbour with cpu_moe auto that could leave it room. least: its plans with all experts there."""

    def beside(device: Device) -> Device:
        place = (device.node, device.device)
        needed = sum(row.total_mib for part in least for row in part.devices if (row.node, row.device) == place)
        return device._replace(claimed_mib=device.claimed_mib - (one.beside.get(place, {}).get(name) or 0) + needed)

    main = beside(one.case.main) if one.case.main else None
    case = one.case._replace(devices=[beside(device) for device in one.case.devices], main=main)
    fits = least and all(part.fits for part in least) and case.plan().fits
    return [f"write a larger cpu_moe for {name}"] if fits else []


def sharing(name: str, others: Sequence[str], case: Case, planned: Plan) -> list[str]:
    """What is done about a service that shares devices with others, and the other choices: apart, or alternating. case:
    main is the head's main memory where it keeps something; a shape without experts there has as few there as fit."""
    names, devices, local = ", ".join(others), case.devices, case.local
    kinds = {device.kind for device in [*devices, *([case.main] if case.main else [])] if device.claimed_mib}
    memory = join([words for kind, words in (("GPU", "cards"), ("main", "main memory")) if kind in kinds])
    apart = [device for device in devices if not device.claimed_mib]
    left = sorted({device.node for device in devices} - {device.node for device in apart})
    own = sum(not device.claimed_mib for device in devices[len(devices) - local :])
    # The head cannot be left out.
    possible = apart and left and (own or not local)
    alone = Case(case.shape, case.settings, apart, own).plan() if possible else None
    main = case.main._replace(claimed_mib=0) if case.main else None
    freed = case._replace(devices=[device._replace(claimed_mib=0) for device in devices], main=main, counts=None)
    experts = planned.cpu_moe and not case.shape.cpu_moe
    free = plan_experts(freed, "auto")[1] if experts else freed.plan(True)
    decision = f"beside {names}, as in the table" if planned.fits else f"none, it does not fit beside {names}"
    if alone and alone.fits:
        decision += f"; to keep them apart leave {join(left)} out of workers"
    return [
        f"{name} shares {memory} with {names}:",
        f"  beside {names}, as in the table: {_choice(planned)}",
        *([f"  apart, with {join(left)} left out of workers: {_choice(alone)}"] if alone else []),
        f"  alternating, with {names} stopped: {_choice(free)}",
        "  decision: " + decision,
    ]


def _choice(planned: Plan) -> str:
    shares = [
        "%s %d layers, %d of %d MiB" % (row.node, row.layers, row.total_mib, row.free_mib or 0)
        for row in planned.devices
    ]
    return f"{'fits' if planned.fits else 'does not fit'} ({'; '.join(shares)})"


def more_context(cluster: Cluster, placed: Placed, claims: Claims) -> int:
    """The most tokens of a slot, by steps, that fit beside all other services with the layers where they are; 0 where
    that is hardly more than it has. They are claimed, so that no other service is offered the same memory. Embeddings
    of a longer text would need larger buffers."""
    name, service = placed.name, cluster.services[placed.name]
    cases: list[Case] = []
    for part in placed.parts:
        case = placed.made[part.node, part.model][0] if (part.node, part.model) in placed.made else None
        if not case or not part.plan.fits or case.settings.embeddings or "models" in service or not context(service):
            return 0
        main = _others(claims, name, case.main) if case.main else None
        devices = [_others(claims, name, device) for device in case.devices]
        cases.append(case._replace(devices=devices, main=main, counts=part.plan.counts))
    most = allowed_context(service, cases[0].shape, cases[0].settings.build) if cases else 0

    def settings(case: Case, tokens: int) -> Any:
        return case.settings._replace(ctx_size=tokens * (case.settings.parallel or 1))

    def plans(tokens: int) -> list[Plan]:
        return [case._replace(settings=settings(case, tokens)).plan(True) for case in cases]

    found = largest(lambda tokens: all(one.fits for one in plans(tokens)), most + CONTEXT_STEP) if most else 0
    if found < WORTH_IT * max((part.slot_ctx_size for part in placed.parts), default=0):
        return 0
    for planned in plans(found):
        claim(claims, name, planned.devices)
    return found


def _others(claims: Claims, name: str, device: Device) -> Device:
    """A device with what all others have of it, those that were placed later too."""
    own = claims.get((device.node, device.device), {})
    return device._replace(claimed_mib=sum(mib for other, mib in own.items() if other != name))
