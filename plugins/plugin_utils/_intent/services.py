# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama_services and llama_models resolved to what each node runs. Private to the collection.

Intent is written once, in the inventory. Roles read lists that the functions here derive from it, so a new worker is
one line in hosts.yml and a new model one entry in models.yml. Pure functions; `groups` and `hostvars` are Ansible's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...module_utils._family import is_template_file
from ...module_utils._llama.args import head_args, model_args, router_args, rpc_args
from ...module_utils._llama.drafts import model_of
from ...module_utils._node import paths
from ...module_utils._settings import LLAMA_NUMA, effective, is_stopped, resolved, slot, value
from . import gateway, monitoring
from .builds import asks_build, build_on, builds_of, dialect_of, entry_of
from .hosts import expand, node_address, rpc_address
from .models import companion_paths, model_file, model_items
from .ports import ports
from .records import Groups, Head, HostVars, Models, Served, Service, Services, Share, Worker, url
from .routers import as_service, quants


def placed(services: Services, groups: Groups) -> list[Service]:
    """The services by name, whatever runs them."""
    port_of = ports(services)
    return [
        Service(
            name,
            expand(one["head"], groups),
            expand(one.get("workers", ""), groups),
            port_of[name],
            one,
        )
        for name, one in sorted(services.items())
    ]


def managed(services: Services, groups: Groups, launcher: str = "systemd") -> list[Service]:
    """The services that systemd, or slurm, runs, by name."""
    return [one for one in placed(services, groups) if value(one.settings, "launcher") == launcher]


def node_serving(
    services: Services,
    models: Models,
    host: str,
    groups: Groups,
    hostvars: HostVars,
    models_dir: str,
    plan: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The heads and models of a node, and the units of all nodes.

    -> {heads, jobs: heads of SLURM's jobs, models, clients: networks that may use the ports of its heads, empty for the
    network of each head, units: of wanted_units(), for every node, stopped: those among them that do not run, primary:
    the service that is meant if none is named, empty if several are and none is primary, job_units: names that units of
    SLURM's services would have}
    """
    heads, jobs = (
        [one.as_dict() for one in head_instances(services, models, host, groups, hostvars, models_dir, plan, launcher)]
        for launcher in ("systemd", "slurm")
    )
    return {
        "heads": heads,
        "jobs": jobs,
        "clients": gateway.client_networks(placed(services, groups), host, groups, hostvars),
        "models": [item.as_dict() for item in model_items(services, models, host, groups, models_dir)],
        "units": wanted_units(services, groups),
        "stopped": stopped_units(services, groups),
        "job_units": sorted({name for names in wanted_units(services, groups, "slurm").values() for name in names}),
        "primary": next((name for name, one in services.items() if one.get("primary") or len(services) == 1), ""),
    }


def node_rpc(
    services: Services, host: str, groups: Groups, hostvars: HostVars, plan: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The RPC workers of a node and its network peers.

    -> {workers, jobs: workers of SLURM's jobs, access: {incoming: [HEAD:PORT] for each of its workers, outgoing:
    [WORKER:PORT] for each worker of its heads, jobs_incoming and jobs_outgoing: the same for jobs, if there are any;
    behind a gateway clients: [NETWORK:PORT] for each head}}
    """
    workers = rpc_instances(services, host, groups, hostvars, plan)
    jobs = rpc_instances(services, host, groups, hostvars, plan, "slurm")
    behind = gateway.hosts(groups)
    led, queued = (
        [service for service in managed(services, groups, launcher) if host in service.heads]
        for launcher in ("systemd", "slurm")
    )
    clients = gateway.client_access([*led, *queued], host, groups, hostvars)
    clients += monitoring.sampler_access(host, groups, hostvars)
    of_jobs = {
        "jobs_incoming": _peers(jobs),
        "jobs_outgoing": [endpoint for service in queued for endpoint in _rpc_endpoints(service, hostvars)],
    }
    return {
        "workers": [worker.as_dict() for worker in workers],
        "jobs": [worker.as_dict() for worker in jobs],
        "access": {
            "incoming": _peers(workers),
            "outgoing": [endpoint for service in led for endpoint in _rpc_endpoints(service, hostvars)],
            **{name: peers for name, peers in of_jobs.items() if peers},
            **({"clients": clients} if behind or clients else {}),
        },
    }


def _peers(workers: Sequence[Worker]) -> list[str]:
    return ["%s:%d" % (worker.head_address, worker.port) for worker in workers]


def wanted_units(services: Services, groups: Groups, launcher: str = "systemd") -> dict[str, list[str]]:
    """{node: names of the units that the services want there, or with launcher slurm would have}"""
    wanted: dict[str, list[str]] = {}
    for service in managed(services, groups, launcher):
        for node in service.heads:
            wanted.setdefault(node, []).append(service.head_unit)
        for node in service.workers:
            wanted.setdefault(node, []).append(service.worker_unit)
    return wanted


def stopped_units(services: Services, groups: Groups) -> list[str]:
    """The names of the units that the services want and that do not run; on every node they are the same."""
    stopped = [service for service in managed(services, groups) if is_stopped(service.settings)]
    return [name for service in stopped for name in (service.head_unit, service.worker_unit)]


def rpc_instances(
    services: Services,
    host: str,
    groups: Groups,
    hostvars: HostVars,
    plan: Mapping[str, Any] | None = None,
    launcher: str = "systemd",
) -> list[Worker]:
    """The RPC workers of a node. plan: as for head_instances()."""
    own = [service for service in managed(services, groups, launcher) if host in service.workers]
    return [_worker(service, host, groups, hostvars, plan) for service in own]


def _runs(settings: Mapping[str, Any], host: str, groups: Groups, hostvars: HostVars) -> dict[str, Any]:
    """The build of a head or worker on a host."""
    build = build_on(value(settings, "build"), host, builds_of(hostvars[host]), hostvars, groups)
    return {"build": build.release, "accelerator": build.accelerator, "rdma": build.rdma}


def _worker(
    service: Service, host: str, groups: Groups, hostvars: HostVars, plan: Mapping[str, Any] | None = None
) -> Worker:
    settings, head = service.settings, service.heads[0]
    worker = Worker(
        service=service.name,
        unit=service.worker_unit,
        primary=bool(settings.get("primary")),
        state=value(settings, "state"),
        address=hostvars[host]["llama_fabric_address"],
        port=settings["rpc_port"],
        head_address=rpc_address(head, hostvars),
        head_url=url(node_address(head, hostvars), service.port),
        threads=settings.get("threads", 0),
        memory_max=settings.get("rpc_memory_max", ""),
        cards=_cards(service, host, plan or {}),
        cache=bool(settings.get("rpc_cache")),
        **_runs(settings, host, groups, hostvars),
    )
    return replace(worker, args=rpc_args(worker.as_dict()))


def _cards(service: Service, node: str, plan: Mapping[str, Any]) -> list[str] | None:
    """The cards that a service may use on a node, as the plan names them; None for all of them."""
    wanted = value(service.settings, "cards")
    if wanted == []:
        return []
    return plan.get("cards", {}).get(service.name, {}).get(node) or ([""] if wanted else None)


def _rpc_endpoints(service: Service, hostvars: HostVars) -> list[str]:
    port = service.settings["rpc_port"] if service.workers else 0
    return ["%s:%d" % (hostvars[node]["llama_fabric_address"], port) for node in service.workers]


def head_instances(
    services: Services,
    models: Models,
    host: str,
    groups: Groups,
    hostvars: HostVars,
    models_dir: str,
    plan: Mapping[str, Any] | None = None,
    launcher: str = "systemd",
) -> list[Head]:
    """The heads of a node. plan: the memory plan of the inventory, as memory_plan() returns it; without one nothing is
    known of layers but what a service says itself."""
    here = _Node(host, models, groups, hostvars, models_dir, plan or {})
    own = [service for service in managed(services, groups, launcher) if host in service.heads]
    return [(_router if service.kind == "router" else _head)(service, here) for service in own]


class _Node(NamedTuple):
    """A node with all that its heads are made of."""

    name: str
    models: Models
    groups: Groups
    hostvars: HostVars
    models_dir: str
    plan: Mapping[str, Any]

    def path(self, model: str, quant: str) -> str:
        return f"{self.models_dir}/{model_file(self.models[model], quant)}"

    def planned(self, service: str) -> list[Mapping[str, Any]]:
        """The plan of a service there."""
        return [part for part in self.plan.get("services", {}).get(service, []) if part["node"] == self.name]

    def decided(self, service: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Settings with the plan's own."""
        threads, mode = (self.plan.get(key, {}).get(service, {}).get(self.name) for key in ("threads", "load_modes"))
        own = {"threads": threads} if threads else {}
        return {**settings, **own, **({"load_mode": mode} if mode and value(settings, "load_mode") == "auto" else {})}

    def template(self, settings: Mapping[str, Any]) -> str:
        """The chat template's file on the controller, empty for none. What the inventory says is relative to it."""
        template = settings.get("chat_template")
        if template is None or not is_template_file(template):
            return ""
        return os.path.join(self.hostvars[self.name].get("inventory_dir") or "", template)


def _server(service: Service, here: _Node) -> dict[str, Any]:
    """Fields common to heads and routers."""
    settings, facts = service.settings, here.hostvars[here.name]
    keys = (facts.get("llama_api_keys") or {}).get(service.name)
    router = service.kind == "router"
    names = [name for _model, name in gateway.names(settings, here.models)]
    slots = None if router else value(settings, "parallel")
    return {
        "service": service.name,
        "node": here.name,
        "label": service.name if len(service.heads) == 1 else f"{service.name} on {here.name}",
        "unit": service.head_unit,
        "primary": bool(settings.get("primary")),
        "state": value(settings, "state"),
        "address": node_address(here.name, here.hostvars),
        "port": service.port,
        "memory_max": settings.get("memory_max", ""),
        "cards": _cards(service, here.name, here.plan),
        "api_key_file": f"{paths.KEYS}/{service.name}" if keys else "",
        # A host is published by its name only: the gateway takes the address from the inventory.
        "registry": {
            "service": service.name,
            "model": names[0],
            "models": list(dict.fromkeys(names)),
            "tier": settings.get("tier"),
            **dict.fromkeys(("node", "host", "head_node"), here.name),
            "port": service.port,
            "endpoint": url(node_address(here.name, here.hostvars), service.port) + "/v1",
            "llama_workers": service.workers,
            "slots": slots,
            "slot_ctx_size": None if router else slot(settings),
            "quant": list(quants(settings).values())[0],
        },
        **_runs(settings, here.name, here.groups, here.hostvars),
    }


def numa_policy(settings: Mapping[str, Any]) -> str:
    """`numa` of a head."""
    wish = settings.get("numa", "")
    if isinstance(wish, dict):
        return str(wish["node"])
    return "" if wish in LLAMA_NUMA else wish


def _serves(settings: Mapping[str, Any]) -> str:
    """text, embeddings or scores."""
    return "scores" if settings.get("reranking") else "embeddings" if settings.get("embeddings") else "text"


def _head(service: Service, here: _Node) -> Head:
    build = entry_of(service.settings, builds_of(here.hostvars[here.name]))
    model = here.models[service.settings["model"]]
    settings = here.decided(service.name, resolved(service.settings, model))
    split, second = value(settings, "tensor_split"), model_of(settings.get("draft"))
    experts = value(settings, "cpu_moe") or 0
    planned = next(iter(here.planned(service.name)), None) or here.plan.get("rendered", {}).get(service.name)
    # Layers of the head itself only if it has some.
    layers = planned["layers"] if planned else split if isinstance(split, dict) else {}
    layers = {node: count for node, count in layers.items() if node in service.workers or count}
    head = Head(
        **_server(service, here),
        model=settings["model"],
        quant=settings["quant"],
        aliases=[name for _model, name in gateway.names(service.settings, here.models)],
        model_path=here.path(settings["model"], settings["quant"]),
        draft_path=here.path(*second) if second else "",
        **companion_paths(settings, here.path),
        shares=[
            Share(
                node,
                service.worker_unit,
                endpoint,
                layers.get(node),
                _runs(settings, node, here.groups, here.hostvars)["build"],
            )
            for node, endpoint in zip(service.workers, _rpc_endpoints(service, here.hostvars), strict=True)
        ],
        layers=layers,
        tensor_split=planned["tensor_split"] if planned else None,
        cpu_moe=(planned or {}).get("cpu_moe") if experts == "auto" else experts,
        numa=numa_policy(settings),
        ubatch_size=min(effective(settings, "batch_size"), effective(settings, "ubatch_size")),
        chat_template_file=here.template(settings),
        serves=_serves(settings),
        asks_build=bool(settings.get("extra_args")) or asks_build(build),
    )
    return replace(head, args=head_args(head.as_dict(), settings, dialect_of(build)))


def _router(service: Service, here: _Node) -> Head:
    settings = service.settings
    build = entry_of(settings, builds_of(here.hostvars[here.name]))
    parts = {one["model"]: one for one in here.planned(service.name)}
    served = [_served(service, name, here, parts.get(name, {}), dialect_of(build)) for name in settings["models"]]
    planned = [part["models_max"] for part in parts.values()] if len(parts) == len(served) else []
    router = Head(
        **_server(service, here),
        model="",
        quant="",
        aliases=[name for one in served for name in one.aliases],
        model_path="",
        shares=[],
        layers={},
        tensor_split=None,
        cpu_moe=0,
        ubatch_size=max(one.ubatch_size for one in served),
        chat_template_file="",
        asks_build=asks_build(build),
        models=served,
        models_max=settings.get("models_max") or max(planned, default=None),
    )
    return replace(router, args=router_args(router.as_dict(), settings, dialect_of(build)))


def _served(service: Service, name: str, here: _Node, planned: Mapping[str, Any], build: str) -> Served:
    model = here.models[name]
    settings = here.decided(service.name, resolved(as_service(service.settings, name), model))
    one = Served(
        service=f"{service.name}.{re.sub('[^A-Za-z0-9._+-]', '_', name)}",
        model=name,
        quant=settings["quant"],
        aliases=[name, *(model.get("aliases") or [])],
        model_path=here.path(name, settings["quant"]),
        **companion_paths(settings, here.path),
        layers={node: count for node, count in planned.get("layers", {}).items() if count},
        tensor_split=planned.get("tensor_split"),
        ubatch_size=min(effective(settings, "batch_size"), effective(settings, "ubatch_size")),
        chat_template_file=here.template(settings),
        serves=_serves(settings),
    )
    return replace(one, args=model_args(one.as_dict(), settings, build))
