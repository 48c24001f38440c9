# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that were measured: llama_tuned fills the keys of services that llama_services leaves unset. Private to the
collection."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...module_utils._settings import BY_KIND, kind_of
from .builds import dialect_of, entry_of
from .hosts import expand
from .inventory import Inventory
from .records import Groups, HostVars, Models, Services, Settings
from .rules import SHORT
from .values import did_you_mean, key_errors, list_errors, plain, shown, type_errors, unknown_key

Map = Mapping[str, Any]
# The keys that tune.yml writes, as far as the kind of a service knows them.
TUNED: tuple[str, ...] = (
    "parallel",
    "slot_ctx_size",
    "ctx_size",
    "batch_size",
    "ubatch_size",
    "cache",
    "threads",
    "flash_attn",
)
TUNED += ("split_mode", "tensor_split", "cpu_moe", "draft")
MEASURED = "measured"


def alike(key: str) -> set[str]:
    """A key, and those that stand for the same setting."""
    groups = [{"ctx_size", "slot_ctx_size"}, *({short, *longs} for short, longs in SHORT.items())]
    return {key}.union(*(group for group in groups if key in group))


def _rivals(key: str) -> set[str]:
    """The keys of llama_services beside which one of llama_tuned is not used: slots and the context of all of them
    only mean something together."""
    return alike(key) | ({"parallel", "ctx_size"} if key in ("parallel", "ctx_size") else set())


def services_tuned(services: Any, tuned: Any) -> Any:
    """The services with what llama_tuned has for keys that they leave unset. tuned_errors() tells what is wrong with
    the rest of it."""
    if not isinstance(services, Mapping) or not isinstance(tuned, Mapping):
        return services
    return {
        name: {**_filling(name, one, tuned.get(name)), **one} if isinstance(one, Mapping) else one
        for name, one in services.items()
    }


def _filling(name: str, service: Settings, entry: Any) -> dict[str, Any]:
    sound = not _entry_errors(name, entry, service)
    return {
        key: value
        for key, value in (entry.items() if sound and isinstance(entry, Mapping) else ())
        if key != MEASURED and not _rivals(key) & service.keys()
    }


def with_tuned(*functions: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The functions; where they take services and hostvars, with llama_tuned in the services."""
    return [_with_tuned(one) for one in functions]


# Ansible asks every file for its filters whenever a task uses one.
@functools.cache
def _with_tuned(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    if not {"services", "hostvars"} <= signature.parameters.keys():
        return function

    @functools.wraps(function)
    def filled(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        known, hostvars = given.arguments, given.arguments["hostvars"]
        # The same for all hosts: as llama_services.
        hosts = [known["host"]] if "host" in known else (known["groups"].get("llama_nodes") or [])[:1]
        for host in hosts:
            known["services"] = services_tuned(known["services"], hostvars[host].get("llama_tuned"))
        return function(*given.args, **given.kwargs)

    return filled


def tuned_errors(tuned: Any, services: Services) -> list[str]:
    """llama_tuned is checked as llama_services is."""
    if tuned is None:
        return []
    found = type_errors("llama_tuned", tuned, dict, step="write a service's name with its keys below it")
    for name, entry in {} if found else tuned.items():
        found += _entry_errors(name, entry, services.get(name))
    return found


def _entry_errors(name: str, entry: Any, service: Any) -> list[str]:
    place = f"llama_tuned.{plain(name)}"
    found = type_errors(place, {} if entry is None else entry, dict)
    if found or entry is None or not isinstance(service, Mapping) or kind_of(service) not in BY_KIND:
        return found
    keys = {key: row for key, row in BY_KIND[kind_of(service)].items() if key in TUNED}
    found = [unknown_key(place, key, [*keys, MEASURED]) for key in entry if key not in keys and key != MEASURED]
    about = entry.get(MEASURED, {})
    found += type_errors(f"{place}.{MEASURED}", about, dict) or [
        wrong for one in ("cards", "nodes") for wrong in list_errors(f"{place}.{MEASURED}.{one}", about.get(one, []))
    ]
    return found + [
        wrong for key in entry if key in keys for wrong in key_errors(f"{place}.{key}", entry[key], keys[key])
    ]


def at_tuned(sentences: Iterable[str], services: Map, tuned: Any) -> list[str]:
    """The sentences about services; what is wrong with a value that llama_tuned has filled stands there."""
    places = [
        f"{name}.{key}"
        for name, entry in (tuned.items() if isinstance(tuned, Mapping) else ())
        for key in (entry if isinstance(entry, Mapping) and isinstance(services.get(name), Mapping) else ())
        if key in services[name] and services[name][key] == entry[key]
    ]
    found = []
    for sentence in sentences:
        own = [
            place for place in places if sentence.startswith((f"llama_services.{place}:", f"llama_services.{place}."))
        ]
        found.append(sentence.replace("llama_services", "llama_tuned", 1) if own else sentence)
    return found


def tuned_notes(one: Inventory) -> Iterator[str]:
    """Keys that are set in both places, and measurements of something else. The services are filled, llama_tuned is
    sound."""
    tuned = one.hostvars[one.nodes[0]].get("llama_tuned") if one.nodes else None
    for name, entry in (tuned or {}).items():
        if name not in one.services:
            step = did_you_mean(name, one.services, ": rename it there, or remove it")
            yield f"llama_tuned.{plain(name)}: is not in llama_services, nothing uses it{step}"
            continue
        service = one.services[name]
        for key in entry or ():
            # Filled is filled whole: then the service has what llama_tuned has.
            for rival in (
                sorted(_rivals(key) & service.keys()) if key != MEASURED and service.get(key) != entry[key] else ()
            ):
                if rival == key or key not in service:
                    yield (
                        f"llama_services.{name}.{rival}: {shown(service[rival])} seen, which is used, beside {key} "
                        f"{shown(entry[key])} of llama_tuned, which was measured: drop one of both"
                    )
        then, now = (entry or {}).get(MEASURED) or {}, measured_of(one, service)
        changed = [
            f"{what} {_words(then[what])} then, {_words(now[what])} now"
            for what in now
            if then.get(what) and now[what] and then[what] != now[what]
        ]
        if changed:
            yield f"llama_tuned.{name}: {', '.join(changed)}: measure it again with tune.yml -e service={name}"


def measured_of(one: Inventory, service: Settings) -> dict[str, Any]:
    """-> {build, model, sha256, cards, nodes}: what a measurement of the service is of, as tuned.yml has it."""
    model, quant = service.get("model", ""), service.get("quant", "")
    source = ((one.models.get(model) or {}).get("quants") or {}).get(quant) or {}
    nodes = expand(service["head"], one.groups) + expand(service.get("workers", ""), one.groups)
    cards = [card for node in nodes for card in one.hostvars[node].get("llama_devices") or []]
    return {
        "build": dialect_of(entry_of(service, one.builds)),
        "model": f"{model} {quant}",
        "sha256": source.get("sha256") or [],
        # Main memory has no name.
        "cards": sorted(str(card["name"]) for card in cards if card.get("name")),
        "nodes": nodes,
    }


def tune_about(services: Services, name: str, models: Models, groups: Groups, hostvars: HostVars) -> dict[str, Any]:
    """Returns measured_of() of a service for tuned.yml."""
    return measured_of(Inventory(services, models, groups, hostvars), services[name])


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
