# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders gateway.json: services, models and routes for the gateway's engine. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...module_utils._companion_keys import companions
from ...module_utils._gateway import clients
from ...module_utils._gateway.config import SILENCE
from ...module_utils._plan.full_prompt import measured
from ...module_utils._settings import is_stopped, kind_of, resolved, slot, text_tokens, value
from ...module_utils._text import Refusal
from .._intent import gateway
from .._intent.builds import builds_of, entry_of, version_of
from .._intent.hosts import expand, node_address
from .._intent.ports import ports
from .._intent.records import Groups, HostVars, Models, Services, Settings
from .._intent.routers import as_service
from .._known import is_planned, slurped

# Seconds without a byte if a prompt was measured: the least, and as a multiple of a full prompt.
LEAST, TIMES = 2700.0, 1.5
UNSERVED = "no service of this inventory serves it"


def gateway_config(
    services: Services,
    models: Models,
    groups: Groups,
    hostvars: HostVars,
    host: str,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """settings: {routes, port, tls, address, unknown_model, auth, tiers, queue, patience, registry_dir: variables of
    role gateway, by default of the host; plan: of memory_plan(), with the reasons why models are not served;
    prompts: {service: recorded long prompt of its head}; before: the present gateway.json, as slurp returns it, for
    services that this run does not plan}."""
    given = dict(settings or {})
    plan: Mapping[str, Any] = given.get("plan") or {}
    before: Mapping[str, Any] = slurped(given.get("before"))

    def setting(name: str, otherwise: Any = None) -> Any:
        own = gateway.setting("gateway_" + name, hostvars[host])
        return given[name] if given.get(name) is not None else otherwise if own is None else own

    port_of = ports(services)
    answering = _answering(services, models)
    found = {
        name: {
            **_service(name, one, models, answering, builds_of(hostvars[host]), plan, _kept(name, plan, before)),
            "endpoints": _endpoints(one, port_of[name], models, groups, hostvars),
            "timeout": _kept(name, plan, before).get("timeout")
            or _timeout(name, one, plan, given.get("prompts") or {}),
            "queue": int(setting("queue")),
            "patience": int(setting("patience")),
        }
        for name, one in services.items()
    }
    tiers = gateway.tiers(services)
    scheme, port = ("https", 443) if setting("tls") else ("http", 80)
    own = int(setting("port"))
    address = str(setting("address", node_address(host, hostvars)))
    address = f"[{address}]" if ":" in address else address
    registry = {"hosts": {node: node_address(node, hostvars) for node in groups.get("llama_nodes") or []}}
    return {
        "version": 1,
        "services": found,
        "unserved": _unserved(services, models, answering, plan, before),
        "routes": _routes(setting("routes", hostvars[host].get("llama_routes") or {})),
        "unknown_model": str(setting("unknown_model")),
        "auth": str(setting("auth")),
        "registry": registry if setting("registry_dir", "") else None,
        "base_urls": ["%s://%s%s" % (scheme, address, "" if own == port else ":%d" % own)],
        "tiers": {name: {"port": int(number)} for name, number in setting("tiers").items() if name in tiers},
    }


def _answering(services: Services, models: Models) -> dict[str, str]:
    """{name of a model or alias: its service}. A stopped service has the names that no other service has."""
    found: dict[str, str] = {}
    for name, one in sorted(services.items(), key=lambda item: is_stopped(item[1])):
        for _model, known in gateway.names(one, models):
            found.setdefault(known, name)
    return found


def _service(
    name: str,
    service: Settings,
    models: Models,
    answering: Mapping[str, str],
    builds: Mapping[str, Any],
    plan: Mapping[str, Any],
    before: Mapping[str, Any],
) -> dict[str, Any]:
    kept = {(one["name"], one["quant"]): one["slot_ctx_size"] for one in before.get("models") or []}
    own: dict[str, list[str]] = {}
    for model, known in gateway.names(service, models):
        if answering[known] == name:
            own.setdefault(model, []).append(known)
    return {
        "kind": kind_of(service),
        "tier": service.get("tier"),
        "models": [
            {
                "name": known[0],
                "aliases": known[1:],
                "quant": single["quant"],
                "build": version_of(entry_of(service, builds)),
                "slot_ctx_size": kept.get((known[0], single["quant"]), _slot(name, single, model, plan)),
                "embeddings": bool(single.get("embeddings")),
            }
            for model, known in own.items()
            for single in [_single(service, model, models)]
        ],
        "state": value(service, "state"),
        "launcher": value(service, "launcher"),
        # nginx reads no body: only the engine refuses addresses of pictures, and adapters.
        "direct": not any(companions(single) for single in _every(service, models)),
        "fallback": service.get("fallback"),
    }


def _single(service: Settings, model: str, models: Models) -> Mapping[str, Any]:
    """The settings of one model of a service or router."""
    return resolved(as_service(service, model) if kind_of(service) == "router" else service, models[model])


def _every(service: Settings, models: Models) -> list[Mapping[str, Any]]:
    return [_single(service, model, models) for model in service.get("models") or [service["model"]]]


def _endpoints(
    service: Settings, port: int, models: Models, groups: Groups, hostvars: HostVars
) -> list[dict[str, Any]]:
    """The heads of a service; heads of jobs register themselves. slots of a router: of each of its models."""
    if value(service, "launcher") != "systemd":
        return []
    slots = min(value(one, "parallel") for one in _every(service, models))
    return [
        {"node": node, "address": node_address(node, hostvars), "port": port, "slots": slots}
        for node in expand(service["head"], groups)
    ]


def _slot(name: str, single: Settings, model: str, plan: Mapping[str, Any]) -> int | None:
    """Tokens of a slot: the least of the planned replicas, without a plan as the inventory sets it."""
    parts = [part for part in (plan.get("services") or {}).get(name) or [] if part["model"] == model]
    return text_tokens(single, min((part["slot_ctx_size"] for part in parts), default=slot(single)))


def _timeout(name: str, service: Settings, plan: Mapping[str, Any], prompts: Mapping[str, Any]) -> float:
    """Seconds without a byte after which a request ends: a full prompt on the slowest replica may take that long."""
    kept = prompts.get(name) or []
    rates = [found.rate for one in (kept if isinstance(kept, list) else [kept]) for found in [measured(one)] if found]
    slots = [part["slot_ctx_size"] for part in (plan.get("services") or {}).get(name) or []]
    slots += [given for given in (slot(service),) if given]
    if not rates or not slots:
        return SILENCE
    return max(LEAST, TIMES * max(slots) / min(rates))


def _kept(name: str, plan: Mapping[str, Any], before: Mapping[str, Any]) -> Mapping[str, Any]:
    """The service in the present gateway.json, if this run does not plan it completely."""
    found: Mapping[str, Any] = {} if is_planned(plan, name) else (before.get("services") or {}).get(name) or {}
    return found


def _unserved(
    services: Services,
    models: Models,
    answering: Mapping[str, str],
    plan: Mapping[str, Any],
    before: Mapping[str, Any],
) -> dict[str, str]:
    """{name or alias: why no service has it}. A model may be served only by other names."""
    reasons: Mapping[str, str] | None = plan.get("unserved")
    if reasons is None:
        reasons = before.get("unserved") or {}
    other: dict[str, list[str]] = {}
    for one in services.values():
        for model, known in gateway.names(one, models):
            other.setdefault(model, []).append(known)
    served = {model: f"it is served as {', '.join(known)}" for model, known in other.items()}
    return {
        name: served.get(model) or reasons.get(name, reasons.get(model, UNSERVED))
        for model, entry in models.items()
        for name in [model, *(entry.get("aliases") or [])]
        if name not in answering
    }


def _routes(routes: Mapping[str, Any]) -> dict[str, Any]:
    tasks = routes.get("tasks") or {}
    return {"default": routes.get("default"), "tasks": {str(task): name for task, name in tasks.items()}}


def client_configuration(config: Mapping[str, Any], client: str = "") -> dict[str, str]:
    """{url, file, text} of a client: its page at the gateway, the name of its file, the content. Without a client the
    list of all clients, which has no file. Errors: Refusal for an unknown client."""
    base_url = config["base_urls"][0].rstrip("/")
    if not client:
        return {"url": base_url + "/clients", "file": "", "text": clients.clients_index(config, base_url)}
    text = clients.client_configuration(config, client, base_url)
    if text is None:
        known = ", ".join(clients.CLIENTS)
        raise Refusal(f"client: {client} seen, one of {known} is needed: run with -e client=openai")
    return {"url": base_url + "/clients/" + client, "file": clients.CLIENTS[client][0], "text": text}
