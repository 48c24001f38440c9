# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a sound inventory is probably not meant so, one sentence each. Private to the collection."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...module_utils._settings import context, is_stopped, resolved, text_tokens, value
from . import gateway
from .builds import accelerator_of, builds_of
from .check_shared import answers
from .hosts import expand, node_address
from .networks import networks_of
from .records import Groups, HostVars, Models, Services, Settings
from .routers import quants, served_alone
from .values import IPV4
from .variables import known_now

Map = Mapping[str, Any]
PATHS = {"embeddings": "/v1/embeddings", "reranking": "/v1/rerank", "chat": "chats and completions"}
# Words in the names of tasks, by what they ask for.
TASKS = {"embeddings": re.compile("embed|vector|search|retriev|rag|index", re.I), "reranking": re.compile("rank", re.I)}
# Bits of a weight, more than any type has.
MOST_BITS = 40
# Before Turing, which CUDA 13 does not compile for any more.
OLD_CARDS = re.compile(r"\b(P4|P40|P100\S*|V100\S*|GTX (9|10)\d\d.*|TITAN (X|Xp|V)\b.*|Quadro G?[PMV]\w+)\Z")
OLD_TOOLKIT = re.compile(r"cuda[-/](1[0-2]|[89])\b")


def intent_notes(services: Services, models: Models, groups: Groups, hostvars: HostVars, routes: Any) -> list[str]:
    """The arguments are sound."""
    found = [*_routes(services, models, routes or {}), *_fallbacks(services), *_names(services, models)]
    found += [
        *_texts(services, models),
        *_fabric(services, groups, hostvars),
        *_clients(groups, hostvars),
        *_cards(groups, hostvars),
        *_keys(services, groups, hostvars),
        *_sizes(models),
    ]
    return list(dict.fromkeys([*found, *_front(services, groups, hostvars)]))


def _routes(services: Services, models: Models, routes: Map) -> Iterator[str]:
    """Routes against what their services are for, and whether they run."""
    serving: dict[str, list[tuple[str, Settings]]] = {}
    for name, one in services.items():
        for _model, known in gateway.names(one, models):
            serving.setdefault(known, []).append((name, one))
    targets = [("default", routes.get("default"))]
    targets += [(f"tasks.{task}", name) for task, name in (routes.get("tasks") or {}).items()]
    for route, target in targets:
        own = serving.get(str(target), [])
        if own and not any(_serves(name, services) for name, _one in own):
            yield "llama_routes.%s leads to %s of %s, which is stopped: start it, or name another model" % (
                *(route, target),
                own[0][0],
            )
        kinds = {answers(one, models) for _name, one in own}
        task = route.partition(".")[2]
        wanted = next((kind for kind, words in TASKS.items() if words.search(task)), "chat")
        if task and own and wanted not in kinds and (wanted == "reranking" or kinds != {"chat"} or "embed" in task):
            yield "llama_routes.%s leads to %s of %s, which answers only %s: name another model, or rename the task" % (
                *(route, target),
                *(own[0][0], PATHS[min(kinds)]),
            )


def _texts(services: Services, models: Models) -> Iterator[str]:
    """Slots that no text may fill."""
    for name, one in services.items():
        for model in quants(one):
            alone = resolved(served_alone(one, model) if "models" in one else one, models[model])
            total = context(alone)
            slot = total // value(alone, "parallel") if total else None
            tokens = text_tokens(alone, slot)
            if tokens != slot:
                yield "llama_services.%s: a text of %s may have %s tokens, those of a micro-batch: %s" % (
                    *(name, model, tokens),
                    "leave out ubatch_size and batch_size for texts of %d" % slot if slot else "set slot_ctx_size",
                )


def _serves(name: str, services: Services) -> bool:
    """Whether a service runs, or one that it falls back on."""
    seen: list[str] = []
    while name in services and name not in seen:
        if not is_stopped(services[name]):
            return True
        seen.append(name)
        name = services[name].get("fallback", "")
    return False


def _fallbacks(services: Services) -> Iterator[str]:
    for name, one in services.items():
        if not is_stopped(one) and "fallback" in one and not _serves(one["fallback"], services):
            yield (
                "llama_services.%s.fallback: %s is stopped, nothing answers in the place of %s: start it, or name "
                "another service" % (name, one["fallback"], name)
            )


def _names(services: Services, models: Models) -> Iterator[str]:
    for name, one in services.items():
        for _model, known in gateway.names(one, models):
            if known in services and known != name:
                yield (
                    "%s is a name of what %s serves and the name of another service, whose model it does not lead "
                    "to: rename one of them" % (known, name)
                )


def _fabric(services: Services, groups: Groups, hostvars: HostVars) -> Iterator[str]:
    """Head and workers that are hardly on one network."""
    for node in groups["llama_nodes"]:
        if re.search(r"\.0\Z", str(hostvars[node].get("llama_fabric_address"))):
            yield (
                "llama_fabric_address: %s of %s is rather the address of its network: check that the interface has it"
                % (hostvars[node]["llama_fabric_address"], node)
            )
    for name, one in services.items():
        nodes = [*expand(one["head"], groups), *expand(one["workers"], groups)] if one.get("workers") else []
        known = {node: str(hostvars[node].get("llama_fabric_address")) for node in nodes}
        networks: dict[Any, str] = {}
        for node, address in known.items():
            if IPV4.match(address):
                networks.setdefault(ipaddress.ip_network(address + "/24", strict=False), node)
        if len(networks) > 1:
            first, other = list(networks.values())[:2]
            yield (
                "llama_services.%s: %s (%s) and %s (%s) have llama_fabric_address in different /24 networks, RPC of "
                "a head and its workers is made for one fast network: correct one of them, or check the route between "
                "them" % (name, first, known[first], other, known[other])
            )


def _keys(services: Services, groups: Groups, hostvars: HostVars) -> Iterator[str]:
    """Services without a key beside others that have one."""
    keys = hostvars[groups["llama_nodes"][0]].get("llama_api_keys") or {}
    for name in services if any(keys.get(name) for name in services) else ():
        if not keys.get(name):
            yield "llama_api_keys: %s has no key and %s has one: add a key, or leave it open on purpose" % (
                *(name, next(other for other in services if keys.get(other))),
            )


def _sizes(models: Models) -> Iterator[str]:
    """A number of weights that the size of a file belies: no type has more than 32 bits a weight."""
    for name, model in models.items():
        for quant, spec in (model.get("quants") or {}).items():
            bits = 8 * (spec.get("size") or 0) / (model.get("parameters") or float("inf"))
            if bits > MOST_BITS:
                yield (
                    "llama_models.%s.parameters: %d weights would have %.0f bits each in the %d bytes of %s: count the "
                    "zeros of both" % (name, model["parameters"], bits, spec["size"], quant)
                )


def _clients(groups: Groups, hostvars: HostVars) -> Iterator[str]:
    for host in gateway.all_hosts(groups):
        for variable in ("llama_clients", "gateway_clients"):
            for network in networks_of(hostvars[host].get(variable) or []):
                if network.prefixlen < 8:
                    yield "%s: %s lets in everybody who reaches the node: name the networks of your clients" % (
                        variable,
                        network,
                    )


def _cards(groups: Groups, hostvars: HostVars) -> Iterator[str]:
    """Cards that today's CUDA toolkit has no code for."""
    cuda = []
    for node in groups["llama_nodes"]:
        facts = hostvars[node]
        if any(
            accelerator_of(entry or {}, facts) == "cuda" and not OLD_TOOLKIT.search(str((entry or {}).get("cuda_home")))
            for entry in builds_of(facts).values()
        ):
            cuda += [str(card.get("name", "")) for card in facts.get("llama_devices") or []]
    old = [name for name in dict.fromkeys(cuda) if OLD_CARDS.search(name)]
    if old:
        yield (
            "%s: CUDA 13 has no code for %s, the toolkit of the node that compiles has to be 12.9 or older: see "
            "cuda_home of llama_builds" % (", ".join(old), "it" if len(old) == 1 else "them")
        )


def _front(services: Services, groups: Groups, hostvars: HostVars) -> Iterator[str]:
    """The gateway's certificate against how clients call it, and what stays plain beside it."""
    for host in gateway.hosts(groups):
        facts = hostvars[host]
        if not gateway.setting("gateway_tls", facts):
            continue
        given = known_now(hostvars, host, "gateway_address")
        address = str(given or node_address(host, hostvars))
        if IPV4.match(address) and (given or "gateway_address" not in facts):
            yield (
                "gateway_address: clients are told https://%s, and certificates rarely hold addresses: write the name "
                "that the certificate has" % address
            )
        tiers = gateway.tiers(services)
        ports = [f"{tier} {port}" for tier, port in gateway.setting("gateway_tiers", facts).items() if tier in tiers]
        if ports:
            yield (
                "gateway_tiers: the ports of tiers (%s) stay plain HTTP beside TLS, keys pass them in clear: drop tier "
                "where no client needs it" % ", ".join(ports)
            )
