# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a valid inventory that are probably mistakes, one sentence each. Private to the collection."""

import re
from collections.abc import Iterator
from typing import Any

from ...module_utils._settings import is_stopped, resolved, slot, text_tokens
from . import gateway
from .builds import accelerator_of, builds_of
from .check_shared import answers
from .hosts import networks_of
from .inventory import Inventory
from .records import Groups, HostVars, Models, Services
from .routers import as_service, quants
from .tuned import tuned_notes

PATHS = {"embeddings": "/v1/embeddings", "reranking": "/v1/rerank", "chat": "chats and completions"}
# Words in the names of tasks, by what they ask for.
TASKS = {"embeddings": re.compile("embed|vector|search|retriev|rag|index", re.I), "reranking": re.compile("rank", re.I)}
# Before Turing, which CUDA 13 does not compile for any more.
OLD_CARDS = re.compile(r"\b(P4|P40|P100\S*|V100\S*|GTX (9|10)\d\d.*|TITAN (X|Xp|V)\b.*|Quadro G?[PMV]\w+)\Z")
OLD_TOOLKIT = re.compile(r"cuda[-/](1[0-2]|[89])\b")


def intent_notes(services: Services, models: Models, groups: Groups, hostvars: HostVars, routes: Any) -> list[str]:
    """The arguments are sound."""
    one = Inventory(services, models, groups, hostvars, routes or {})
    parts = (_routes, _fallbacks, _texts, _clients, _cards, _plain_tiers, tuned_notes)
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
            single = resolved(as_service(service, model) if "models" in service else service, one.models[model])
            room = slot(single)
            tokens = text_tokens(single, room)
            if tokens != room:
                step = f"leave out ubatch_size and batch_size for texts of {room}" if room else "set slot_ctx_size"
                yield (
                    f"llama_services.{name}: a text of {model} may have {tokens} tokens, the size of a micro-batch: "
                    + step
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


def _plain_tiers(one: Inventory) -> Iterator[str]:
    """Tiers without TLS beside a gateway with a certificate."""
    for host in one.fronts:
        facts = one.hostvars[host]
        if not gateway.setting("gateway_tls", facts):
            continue
        tiers = gateway.tiers(one.services)
        ports = [f"{tier} {port}" for tier, port in gateway.setting("gateway_tiers", facts).items() if tier in tiers]
        if ports:
            yield (
                f"gateway_tiers: the ports of tiers ({', '.join(ports)}) stay plain HTTP beside TLS, keys pass them in "
                "clear: drop tier where no client needs it"
            )
