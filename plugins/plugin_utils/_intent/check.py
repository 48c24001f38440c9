# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds what is wrong with an inventory's intent, one sentence a mistake: entry, value seen, value needed, next step.
Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._text import human
from .check_builds import build_errors
from .check_gateway import gateway_errors
from .check_jobs import job_errors
from .check_models import file_errors, model_errors
from .check_monitoring import monitoring_errors
from .check_nodes import node_errors
from .check_services import service_errors
from .check_shared import (
    api_key_errors,
    example_keys,
    machine_errors,
    route_errors,
    shared_errors,
    target_errors,
)
from .hosts import expand
from .inventory import Inventory
from .records import Groups, HostVars, Models, Services, Settings
from .routers import as_service
from .tuned import at_tuned, tuned_errors
from .values import shown


def intent_errors(
    services: Any,
    models: Any,
    groups: Groups,
    hostvars: HostVars,
    routes: Any = None,
    api_keys: Any = None,
    deployable: bool = False,
) -> list[str]:
    """Every mistake of an inventory's intent, one sentence each. routes, api_keys: llama_routes and llama_api_keys;
    deployable: whether the keys of the example are one."""
    nodes = groups.get("llama_nodes") or []
    if not nodes:
        return ["group llama_nodes: no host in it, at least one is needed: list the nodes in hosts.yml"]
    found = []
    place = "%s/group_vars/all" % (hostvars[nodes[0]].get("inventory_dir") or "INVENTORY")
    if not isinstance(services, dict):
        found.append(
            "llama_services: %s seen, a map of name to service is needed: write NAME: with its keys below, without a "
            "dash" % shown(services)
        )
    elif not services:
        found.append(
            "llama_services: nothing seen, at least one service is needed: write it in %s/services.yml, "
            "since group_vars/services.yml would be for a group services" % place
        )
    if not isinstance(models, dict):
        found.append(
            "llama_models: %s seen, a map of name to model is needed: write NAME: with its keys below, without a dash"
            % shown(models)
        )
    elif not models:
        found.append(f"llama_models: nothing seen, at least one model is needed: write it in {place}/models.yml")
    if found:
        return found
    one = Inventory(services, models, groups, hostvars, {} if routes is None else routes, api_keys or {})
    tuned = hostvars[nodes[0]].get("llama_tuned")
    found += tuned_errors(tuned, services)
    for name, model in models.items():
        found += model_errors(name, model)
    builds = build_errors(nodes, hostvars)
    for name in services:
        found += at_tuned(service_errors(one, name, not builds), services, tuned)
    # Services of one model have the same mistakes in its entry.
    found = list(dict.fromkeys([*found, *builds, *node_errors(nodes, hostvars)]))
    if not found:
        found = machine_errors(one) + shared_errors(one) + route_errors(one) + file_errors(models)
        found += target_errors(hostvars[nodes[0]].get("llama_targets") or {}, services)
        found += api_key_errors({} if api_keys is None else api_keys, services)
        found += job_errors(one)
    found = found or gateway_errors(one) or monitoring_errors(one)
    return found or (example_keys(api_keys or {}) if deployable else [])


def hopeless(services: Services, models: Models, groups: Groups, nodes: Mapping[str, Any]) -> list[str]:
    """Sentences for services whose weights are more than the memory of all their nodes, known before any hub is asked.

    nodes: {node: {devices: [of filter plan_devices], main: its main memory in the same form, where it is known}}. A
    service with a node that is not in it is not judged. A quant with neither size nor bits_per_weight is not either.
    Weights are a lower bound: KV cache and compute buffers come on top.
    """
    found = []
    for name, service in services.items():
        workers = expand(service.get("workers", ""), groups)
        single: dict[str, Settings] = {
            f"{name}.models.{model}": as_service(service, model) for model in service.get("models", ())
        }
        for entry, one in (single or {name: service}).items():
            for head in expand(service["head"], groups):
                found.extend(_too_large(entry, one, models[one["model"]], [head, *workers], nodes))
    return found


def _too_large(
    name: str, service: Settings, model: Mapping[str, Any], own: Sequence[str], nodes: Mapping[str, Any]
) -> list[str]:
    """own: the nodes of a service, or of a replica, the head first."""
    size, how = weights(model, service["quant"])
    if size is None or any(node not in nodes for node in own):
        return []
    places = [nodes[node] for node in own]
    # Without a card it lies in main memory, which a node with cards has beside them.
    devices = [
        device
        for place in places
        for device in ([place["main"]] if service.get("cards") == [] and place.get("main") else place["devices"])
    ]
    beside = devices[0]["kind"] == "GPU" and not devices[0].get("unified")
    if ("cpu_moe" in service or "n_gpu_layers" in service) and beside:
        devices.append(places[0].get("main") or {"kind": "main", "total_mib": float("inf")})
    total = sum(device["total_mib"] for device in devices)
    if size <= total * 2**20:
        return []
    have = int(total) << 20
    sizes = [(quant, weights(model, quant)[0]) for quant in model["quants"]]
    smaller = [f"{quant} ({human(known)})" for quant, known in sizes if known is not None and known <= have]
    kinds = " and ".join(sorted({device["kind"] for device in devices}))
    return [
        "llama_services.%s.quant: %s %s %s, more than the %s of %s memory of %s: choose %s"
        % (
            name,
            service["model"],
            service["quant"],
            how,
            human(have),
            kinds,
            ", ".join(own),
            ", ".join(smaller) or "another model, or add nodes",
        )
    ]


def weights(model: Mapping[str, Any], quant: str) -> tuple[int | None, str | None]:
    """-> (bytes of a quant's weights, how that is known); (None, None) where the inventory does not say.

    parameters * bits_per_weight / 8, unless the quant's size is written down.
    """
    spec = model["quants"][quant]
    if spec.get("size"):
        return spec["size"], f"has {human(spec['size'])}"
    if model.get("parameters") and spec.get("bits_per_weight"):
        size = int(model["parameters"] * spec["bits_per_weight"] / 8)
        return size, "has %.1f billion weights at %s bits, about %s" % (
            model["parameters"] / 1e9,
            spec["bits_per_weight"],
            human(size),
        )
    return None, None
