# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The services of an inventory as they are placed one after the other. Private to the collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...module_utils._model.describe import NO_MODEL
from ...module_utils._model.left import leaving
from ...module_utils._model.memory import Settings, Shape
from ...module_utils._plan import table
from ...module_utils._plan.devices import Device
from ...module_utils._plan.experts import plan_experts
from ...module_utils._plan.full_prompt import Measured, measured
from ...module_utils._plan.place import Plan, Row, ServicePlan, cache_words, plan, settings_for, slot_context
from ...module_utils._plan.split import per_device, with_output
from ...module_utils._plan.stored import inputs_of, kept
from ...module_utils._settings import is_stopped, resolved, value
from ...module_utils._text import Refusal
from .._intent.builds import builds_of, dialect_of, entry_of, extra_types
from .._intent.check import hopeless, weights
from .._intent.hosts import expand
from .._intent.models import are_local
from .._intent.records import Groups, Models, Services
from .._intent.routers import quants, served_alone
from . import own_cards, refusals, routers, sharing
from .elsewhere import misfit_refusal
from .estimate import estimate, tells_experts, with_draft
from .misfits import Beside, Misfit, fewer_layers, layers


class Made(NamedTuple):
    """What the plan of a server on its head's node was made of."""

    shape: Shape
    settings: Settings
    devices: list[Device]
    local: int
    main: Device | None
    planned: Plan
    whole: Shape  # with its experts and layers that are kept in main memory


class Inventory:
    def __init__(
        self,
        services: Services,
        models: Models,
        groups: Groups,
        nodes: Mapping[str, Mapping[str, Any]],
        headers: Iterable[dict[str, Any]],
        builds: Mapping[str, Any] | None,
        previous: Iterable[dict[str, Any]],
        complete: bool,
    ) -> None:
        self.models, self.groups, self.nodes = models, groups, nodes
        self.complete, self.builds = complete, builds_of({"llama_builds": builds})
        self.services: Services = {
            name: own_cards.seen(resolved(one, models.get(one.get("model", ""))), self.builds)
            for name, one in services.items()
        }
        self.devices = {node: [Device(**device) for device in facts["devices"]] for node, facts in nodes.items()}
        self.headers = {(one["item"]["model"], one["item"]["quant"]): one for one in headers}
        self.previous: dict[tuple[str, str], list[ServicePlan]] = {}  # by service and the head's node
        self.measured: dict[tuple[str, str], Measured | None] = {}
        for item, plans, read in ((one["item"], kept(one), measured(one)) for one in previous):
            self.previous.update({(item, plans[0].node): plans} if plans else {})
            self.measured.update({(item, plans[0].node): read} if plans else {})
        self.planned: dict[str, list[ServicePlan]] = {}
        self.unplanned: dict[str, str] = {}
        self.rendered: dict[str, dict[str, Any]] = {}
        self.refused: list[str] = []
        self.sharing: list[str] = []
        self.uncounted: list[str] = []
        self.claimed: dict[tuple[str, str], dict[str, int]] = {}  # MiB by device and service
        self.misfits: list[Misfit] = []
        self.typed = {name for name, one in services.items() if {"cache_type_k", "cache_type_v"} & set(one)}
        self.first: Sequence[str] = ()  # services that choose their devices before the others
        self.made = dict[tuple[str, str, str], Made]()
        self.least: dict[str, list[Plan]] = {}  # of those with cpu_moe auto: with all experts in main memory

    def _settings_of(self, service: Mapping[str, Any]) -> Settings:
        build = dialect_of(entry_of(service, self.builds))
        return settings_for(service, build, extra_types(service, self.builds))

    def order(self, name: str) -> tuple[bool, bool, bool, bool, bool, str]:
        """What leaves no choice is placed first, then what can leave a card to others only as a whole, then what can
        leave a part of it, and last what takes nothing."""
        service = self.services[name]
        free = not isinstance(service.get("tensor_split"), dict)
        last = service.get("cpu_moe") == "auto" or routers.counts_models(service)
        return (is_stopped(service), "models_max" not in service, free, name not in self.first, last, name)

    def earlier(self, name: str, nodes: Iterable[str]) -> list[ServicePlan]:
        """What was kept of a service on the nodes of these heads."""
        return [part for node in dict.fromkeys(nodes) for part in self.previous.get((name, node), [])]

    def add(self, name: str) -> None:
        service = self.services[name]
        heads = self._heads(name)
        workers = expand(service.get("workers", ""), self.groups)
        strangers = [host for host in heads + workers if host not in self.nodes]
        # Each replica has a plan of its own.
        there = [head for head in heads if head in self.nodes] if not workers else []
        if strangers and not there:
            known = len(strangers) == len(heads + workers) or self._same(name)
            self.uncounted.extend([] if known else [name])
            self._without(name, refusals.absent(strangers), strangers)
            return
        if strangers:
            self.unplanned[name] = refusals.absent(strangers)
            self.refused.extend([refusals.not_planned(name, self.unplanned[name], strangers)] if self.complete else [])
        for head in there or heads:
            own = {host: self.nodes[host] for host in [head, *workers]}
            self.refused.extend(refusals.threads(name, service, own, head))
            self.refused.extend(refusals.no_numa_node(name, service, head, self.nodes[head]))
        if "models" in service:
            self._add_router(name, service, there or heads)
        else:
            self._add_server(name, service, there or heads)

    def _heads(self, name: str) -> list[str]:
        return expand(self.services[name]["head"], self.groups)

    def _same(self, name: str) -> list[ServicePlan]:
        """What an earlier run planned for its models."""
        wanted = quants(self.services[name])
        return [part for part in self.earlier(name, self._heads(name)) if part.quant == wanted.get(part.model)]

    def _without(self, name: str, why: str, strangers: Sequence[str] = ()) -> None:
        """A service that cannot be planned: it had a plan, or has layers per node, for which the cards of its nodes are
        enough."""
        service, same = self.services[name], self._same(name)
        split = value(service, "tensor_split")
        for part in same:
            self.claim(name, part.plan.devices)
        self.unplanned[name] = why
        told = hopeless({name: service}, self.models, self.groups, self.nodes)
        self.refused.extend(told)
        # plan.yml does not see the disks of nodes. A router and a draft name the model before the reason.
        if not told and (self.complete and not why.endswith(refusals.ON_ITS_NODE) or NO_MODEL in why):
            self.refused.append(refusals.not_planned(name, why, strangers))
        if isinstance(split, dict) and not strangers:
            self._render(name, service)
            return
        decided = service.get("workers") or service.get("cpu_moe") == "auto" or routers.counts_models(service)
        if self.complete or told or not decided:
            return
        heads = [head for head in self._heads(name) if head in self.nodes]
        if not heads:
            return  # nobody's command line is written in this run
        same = [part for part in same if part.node in heads]
        if len(same) == len(heads) * len(quants(service)) and split in (
            "auto",
            {node: count for node, count in same[0].layers.items() if node in split},
        ):
            self.planned[name] = same
        else:
            self.refused.append(refusals.without_plan(name, service, why, strangers))

    def _render(self, name: str, service: Mapping[str, Any]) -> None:
        """Layers per node need no header, but the cards of each node."""
        head, workers = expand(service["head"], self.groups)[0], expand(service.get("workers", ""), self.groups)
        layers = service["tensor_split"]
        holders = workers + ([head] if layers.get(head) else [])
        nodes = [node for node in holders for _device in self.devices[node]]
        split = with_output(per_device(layers, nodes)) if len(nodes) > 1 else []
        self.rendered[name] = {"layers": {node: layers.get(node, 0) for node in holders}, "tensor_split": split}

    def _shape(self, model: str, quant: str) -> tuple[Shape, str]:
        """-> (Shape, header, catalog or assumed); raises Refusal."""
        known = self.headers.get((model, quant), {})
        if known.get("shape"):
            return Shape.of(known["shape"]), "header"
        size = weights(self.models[model], quant)[0]
        facts = self.models[model].get("header")
        if size and facts:
            return estimate(facts, size), "assumed" if facts.get("assumed") else "catalog"
        urls = self.models[model]["quants"][quant].get("urls")
        if self.complete and urls and are_local(urls):
            raise Refusal(refusals.ON_ITS_NODE)
        raise Refusal(known.get("msg") or f"its header was not read and llama_models.{model} has no header")

    def devices_of(self, nodes: Iterable[str]) -> list[Device]:
        return [self._claimed(device) for node in nodes for device in self.devices[node]]

    def _claimed(self, device: Device) -> Device:
        return device._replace(claimed_mib=sharing.claimed_mib(self.claimed, device, self.nodes))

    def main_memory(self, node: str) -> Device | None:
        """The main memory of a node, where it is known."""
        main = self.nodes[node].get("main")
        return self._claimed(Device(**main)) if main else None

    def claim(self, name: str, rows: Iterable[Row]) -> None:
        for row in rows:
            if row.total_mib:
                self.claimed.setdefault((row.node, row.device), {})[name] = row.total_mib

    def _described(
        self,
        name: str,
        node: str,
        model: str,
        quant: str,
        source: str,
        shape: Shape,
        settings: Settings,
        planned: Plan,
        inputs: list[Any],
    ) -> ServicePlan:
        layers: dict[str, int] = {}
        for row in planned.devices:
            layers[row.node] = layers.get(row.node, 0) + row.layers
        return ServicePlan(
            planned,
            service=name,
            model=model,
            quant=quant,
            source=source,
            ctx_size=settings.ctx_size or shape.context_length,
            slot_ctx_size=slot_context(shape, settings),
            cache_type=cache_words(settings),
            problem=None if source == "header" else self.headers.get((model, quant), {}).get("msg"),
            node=node,
            layers=layers,
            inputs=inputs,
            unplanned=list(self.services[name].get("extra_args") or []),
        )

    def _add_router(self, name: str, service: Mapping[str, Any], hosts: Sequence[str]) -> None:
        """Every host serves every model."""
        self.planned.pop(name, None)
        cases = [case for model in service["models"] for case in self._case(name, service, model)]
        for host in hosts if len(cases) == len(service["models"]) else []:
            devices, earlier = self.devices_of([host]), self.earlier(name, [host])
            main = self.main_memory(host) if devices[-1].kind == "GPU" else None
            build = dialect_of(entry_of(service, self.builds))
            found = routers.decide(name, service.get("models_max"), cases, devices, main, earlier, build)
            for case, planned, inputs in zip(cases, found.plans, found.inputs, strict=True):
                one = self._described(
                    name, host, case.model, case.quant, case.source, case.shape, case.settings, planned, inputs
                )._replace(models_max=found.loaded)
                self.planned.setdefault(name, []).append(one)
                self.made[name, host, case.model] = Made(
                    case.shape, case.settings, devices, len(devices), main, planned, case.shape
                )
                if not planned.fits:
                    lacks = Misfit(name, case.shape, case.settings, devices, len(devices), main, one, None, [], {})
                    self.misfits.append(lacks._replace(beside=self._beside([*devices, main] if main else devices)))
            self._refuse(found.refused)
            self.claim(name, found.claims)
            self.sharing.extend(found.lines)

    def _case(self, name: str, service: Mapping[str, Any], model: str) -> list[routers.Case]:
        """A model of a router; nothing where it cannot be planned."""
        alone = resolved(served_alone(service, model), self.models[model])
        settings = self._settings_of(alone)
        try:
            shape, source = self._shape(model, alone["quant"])
            slot_context(shape, settings)
        except Refusal as problem:
            self._without(name, f"{model} {alone['quant']}: {problem}")
            return []
        self._refuse(refusals.settings(name, alone, shape, settings, []))
        return [routers.Case(model, alone["quant"], shape, source, settings)]

    def _add_server(self, name: str, service: Mapping[str, Any], heads: Sequence[str]) -> None:
        try:
            shape, source = self._shape(service["model"], service["quant"])
            settings = self._settings_of(service)
            slot_context(shape, settings)
            shape = with_draft(shape, service.get("draft"), self._shape)
            if value(service, "cpu_moe") and not tells_experts(shape, source, self._same(name)):
                raise Refusal(refusals.UNKNOWN_EXPERTS if any(shape.expert_bytes) else refusals.NO_EXPERTS)
        except Refusal as problem:
            self._without(name, str(problem))
            return
        self.planned.pop(name, None)
        self.least.pop(name, None)
        for head in heads:
            self._add_head(name, service, head, shape, source, settings)

    def _add_head(
        self, name: str, service: Mapping[str, Any], head: str, shape: Shape, source: str, settings: Settings
    ) -> None:
        model, quant, workers = service["model"], service["quant"], expand(service.get("workers", ""), self.groups)
        experts, own = value(service, "cpu_moe"), self.devices_of([head])
        main = self.main_memory(head) if own[-1].unified or not workers else None
        # llama.cpp computes on a head's main memory only where there is nothing else.
        local = 0 if workers and own[0].kind == "main" else len(own)
        devices = self.devices_of(workers) + own[:local]
        told = refusals.settings(name, service, shape, settings, devices)
        told += refusals.experts(name, service, shape, own[0], main)
        told += refusals.offload(name, service, shape, own[0], main)
        told += refusals.draft(name, service, shape)
        counts, split = None, value(service, "tensor_split")
        if isinstance(split, dict):
            told += refusals.layers(name, service, shape, split, [] if local else [head])
            counts = per_device(split, [device.node for device in devices])
        self._refuse(told)
        if told:
            return
        inputs = [model, quant, source, *inputs_of(shape, settings, devices)]
        # Not what main memory it has: a kernel's update changes that.
        inputs += [[experts]] if experts else []
        inputs += [["draft", service["draft"]["model"], service["draft"]["quant"]]] if shape.draft else []
        whole, offloaded = shape, value(service, "n_gpu_layers")
        if offloaded != "auto":
            inputs += [["n_gpu_layers", offloaded]]
            shape = leaving(whole, whole.block_count + 1 - offloaded)
        force = value(service, "force_split")
        planned = None
        earlier = next((part.plan for part in self.earlier(name, [head]) if part.inputs == inputs), None)
        if experts == "auto":
            least = plan_experts(shape, settings, devices, main, "all", force, counts)[1]
            self.least.setdefault(name, []).append(least)
        if experts:
            shape, planned = plan_experts(shape, settings, devices, main, experts, force, counts, earlier)
        elif counts is None and earlier:
            planned = plan(shape, settings, devices, local, force, earlier.counts, main)
        if not planned or not (planned.fits or experts):
            planned = plan(shape, settings, devices, local, force, counts, main)
        described = self._described(name, head, model, quant, source, shape, settings, planned, inputs)
        self.planned.setdefault(name, []).append(described)
        self.made[name, head, model] = Made(shape, settings, devices, local, main, planned, whole)
        self._refuse(refusals.memory_max(name, service, described))
        # One device is enough wherever it is; the head's own are looked at first.
        alone = plan(shape, settings, own + self.devices_of(workers), len(own)) if workers and not force else planned
        if alone is not planned and alone.topology != "split" and alone.fits:
            self.refused.append(refusals.needs_no_split(name, described, alone, head))
        elif not counts and planned.fits and workers:
            idle = [worker for worker in workers if not described.layers[worker]]
            self.refused.extend([table.idle_workers(f"llama_services.{name}.workers", described, idle)] if idle else [])
        elif not planned.fits:
            automatic = plan(shape, settings, devices, local, force, main=main) if counts else planned
            words = [f"set tensor_split to auto ({layers(automatic)})"] if automatic.fits else []
            words += fewer_layers(whole, shape, settings, devices, main)
            beside = self._beside(devices + ([main] if main else []))
            self.misfits.append(Misfit(name, shape, settings, devices, local, main, described, counts, words, beside))
        if planned.fits:
            self.claim(name, planned.devices)
        kept_in = main if len(planned.devices) > len(devices) else None
        used = devices + ([kept_in] if kept_in else [])
        others = {
            other for device in used for other in self.claimed.get((device.node, device.device), {}) if other != name
        }
        if others:
            title = f"{name} on {head}" if self.has_replicas(name) else name
            self.sharing.extend(
                sharing.lines(
                    title,
                    sorted(others),
                    whole if experts == "auto" else shape,
                    settings,
                    devices,
                    local,
                    planned,
                    main if experts == "auto" else kept_in,
                )
            )

    def _refuse(self, sentences: Iterable[str]) -> None:
        """Replicas are told the same of their model."""
        self.refused.extend(one for one in sentences if one not in self.refused)

    def has_replicas(self, name: str) -> bool:
        return len(self._heads(name)) > 1

    def _beside(self, devices: Iterable[Device]) -> Beside:
        """What other services take of each device, and what processes that are not ours have of it."""
        places = {(one.node, one.device): one.others for one in devices}
        return {place: dict(sorted(self.claimed.get(place, {}).items()), **others) for place, others in places.items()}

    def refuse_misfits(self) -> None:
        for misfit in self.misfits:
            self.refused.append(misfit_refusal(self, misfit))
