# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a sound inventory is probably not meant so, one sentence each. Private to the collection."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from ...module_utils._settings import context, is_stopped, resolved, text_tokens, value
from . import gateway
from .builds import accelerator_of, builds_of
from .check_shared import answers
from .hosts import node_address
from .inventory import Inventory
from .networks import networks_of
from .records import Groups, HostVars, Models, Services
from .routers import quants, served_alone
from .values import IPV4
from .variables import known_now

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
    one = Inventory(services, models, groups, hostvars, routes or {})
    parts = (_routes, _fallbacks, _names, _texts, _fabric, _clients, _cards, _keys, _sizes, _front)
    return list(dict.fromkeys(note for part in parts for note in part(one)))


def _routes(one: Inventory) -> Iterator[str]:
    """Routes against what their services are for, and whether they run."""
    targets = [("default", one.routes.get("default"))]
    targets += [(f"tasks.{task}", name) for task, name in (one.routes.get("tasks") or {}).items()]
    for route, target in targets:
        own = {name: service for name, service, known in one.names() if known == target}
        first, kinds = next(iter(own), ""), {answers(service, one.models) for service in own.values()}
        if own and not any(_serves(name, one.services) for name in own):
            yield (
                f"llama_routes.{route} leads to {target} of {first}, which is stopped: start it, or name another model"
            )
        task = route.partition(".")[2]
        wanted = next((kind for kind, words in TASKS.items() if words.search(task)), "chat")
        if task and own and wanted not in kinds and (wanted == "reranking" or kinds != {"chat"} or "embed" in task):
            yield (
                f"llama_routes.{route} leads to {target} of {first}, which answers only {PATHS[min(kinds)]}: name "
                "another model, or rename the task"
            )


def _texts(one: Inventory) -> Iterator[str]:
    """Slots that no text may fill."""
    for name, service in one.services.items():
        for model in quants(service):
            alone = resolved(served_alone(service, model) if "models" in service else service, one.models[model])
            total = context(alone)
            slot = total // value(alone, "parallel") if total else None
            tokens = text_tokens(alone, slot)
            if tokens != slot:
                step = f"leave out ubatch_size and batch_size for texts of {slot}" if slot else "set slot_ctx_size"
                yield (
                    f"llama_services.{name}: a text of {model} may have {tokens} tokens, those of a micro-batch: {step}"
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


def _fallbacks(one: Inventory) -> Iterator[str]:
    for name, service in one.services.items():
        other = service.get("fallback", name)
        if not is_stopped(service) and not _serves(other, one.services):
            yield (
                f"llama_services.{name}.fallback: {other} is stopped, nothing answers in the place of {name}: start "
                "it, or name another service"
            )


def _names(one: Inventory) -> Iterator[str]:
    for name, _service, known in one.names():
        if known in one.services and known != name:
            yield (
                f"{known} is a name of what {name} serves and the name of another service, whose model it does not "
                "lead to: rename one of them"
            )


def _fabric(one: Inventory) -> Iterator[str]:
    """Addresses that are hardly those of hosts on one network."""
    addresses = {node: str(one.hostvars[node].get("llama_fabric_address")) for node in one.nodes}
    for node, address in addresses.items():
        if address.endswith(".0"):
            yield (
                f"llama_fabric_address: {address} of {node} is rather the address of its network: check that the "
                "interface has it"
            )
    for name, service in one.services.items():
        networks: dict[Any, str] = {}
        for node in one.members(service) if service.get("workers") else ():
            if IPV4.match(addresses[node]):
                networks.setdefault(ipaddress.ip_network(addresses[node] + "/24", strict=False), node)
        if len(networks) > 1:
            first, other = list(networks.values())[:2]
            yield (
                f"llama_services.{name}: {first} ({addresses[first]}) and {other} ({addresses[other]}) have "
                "llama_fabric_address in different /24 networks, RPC of a head and its workers is made for one fast "
                "network: correct one of them, or check the route between them"
            )


def _keys(one: Inventory) -> Iterator[str]:
    """Services without a key beside others that have one."""
    keys = one.hostvars[one.nodes[0]].get("llama_api_keys") or {}
    having = [name for name in one.services if keys.get(name)]
    for name in one.services if having else ():
        if name not in having:
            yield f"llama_api_keys: {name} has no key and {having[0]} has one: add a key, or leave it open on purpose"


def _sizes(one: Inventory) -> Iterator[str]:
    """A number of weights that the size of a file belies: no type has more than 32 bits a weight."""
    for name, model in one.models.items():
        for quant, spec in (model.get("quants") or {}).items():
            bits = 8 * (spec.get("size") or 0) / (model.get("parameters") or float("inf"))
            if bits > MOST_BITS:
                yield (
                    f"llama_models.{name}.parameters: {model['parameters']} weights would have {bits:.0f} bits each in "
                    f"the {spec['size']} bytes of {quant}: count the zeros of both"
                )


def _clients(one: Inventory) -> Iterator[str]:
    for host in one.hosts:
        for variable in ("llama_clients", "gateway_clients"):
            for network in networks_of(one.hostvars[host].get(variable) or []):
                if network.prefixlen < 8:
                    yield (
                        f"{variable}: {network} lets in everybody who reaches the node: name the networks of your "
                        "clients"
                    )


def _cards(one: Inventory) -> Iterator[str]:
    """Cards that today's CUDA toolkit has no code for."""
    old: dict[str, None] = {}
    for facts in (one.hostvars[node] for node in one.nodes):
        entries = [entry or {} for entry in builds_of(facts).values()]
        new = [entry for entry in entries if not OLD_TOOLKIT.search(str(entry.get("cuda_home")))]
        cuda = any(accelerator_of(entry, facts) == "cuda" for entry in new)
        names = [str(card.get("name", "")) for card in facts.get("llama_devices") or [] if cuda]
        old.update(dict.fromkeys(name for name in names if OLD_CARDS.search(name)))
    if old:
        yield (
            f"{', '.join(old)}: CUDA 13 has no code for {'it' if len(old) == 1 else 'them'}, the toolkit of the node "
            "that compiles has to be 12.9 or older: see cuda_home of llama_builds"
        )


def _front(one: Inventory) -> Iterator[str]:
    """The gateway's certificate against how clients call it, and what stays plain beside it."""
    for host in one.fronts:
        facts = one.hostvars[host]
        if not gateway.setting("gateway_tls", facts):
            continue
        given = known_now(one.hostvars, host, "gateway_address")
        address = str(given or node_address(host, one.hostvars))
        if IPV4.match(address) and (given or "gateway_address" not in facts):
            yield (
                f"gateway_address: clients are told https://{address}, and certificates rarely hold addresses: write "
                "the name that the certificate has"
            )
        tiers = gateway.tiers(one.services)
        ports = [f"{tier} {port}" for tier, port in gateway.setting("gateway_tiers", facts).items() if tier in tiers]
        if ports:
            yield (
                f"gateway_tiers: the ports of tiers ({', '.join(ports)}) stay plain HTTP beside TLS, keys pass them in "
                "clear: drop tier where no client needs it"
            )
