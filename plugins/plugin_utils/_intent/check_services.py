# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes in one entry of llama_services, one sentence each. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...module_utils._companion_keys import COMPANIONS
from ...module_utils._key import Key
from ...module_utils._llama.drafts import model_of
from ...module_utils._settings import (
    BY_KIND,
    FAMILY_KEYS,
    KEYS,
    KINDS,
    MODEL_KEYS,
    SLURM_KEYS,
    kind_of,
    resolved,
    value,
)
from ...module_utils._text import Refusal
from .builds import dialect_of, entry_of, extra_types
from .drafting import draft_errors
from .host_rules import host_rules, node_rules, split_rules
from .hosts import expand, rpc_address
from .inventory import Inventory
from .records import Models, Settings
from .routers import as_service, own_settings, wrong_key
from .rules import (
    Where,
    broken,
    build_rules,
    cache_rules,
    companion_rules,
    setting_rules,
    word_rules,
)
from .values import IPV4, did_you_mean, key_errors, meaning, plain, shown, type_errors

UNIT_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,39}\Z")
CACHES = ("cache", "cache_type_k", "cache_type_v")
# A draft model would have to be planned for each model that is loaded beside it.
OF_MODEL = {key.name: key for key in KEYS if key.name in {"quant", *MODEL_KEYS, *FAMILY_KEYS} - {"draft"}}
OF_MODEL.update({key.name: key for key in COMPANIONS})


def service_errors(one: Inventory, name: Any, built: bool = True) -> list[str]:
    """built: whether llama_builds is sound."""
    entry, service = f"llama_services.{plain(name)}", one.services[name]
    if not UNIT_NAME.match(str(name)):
        return [
            "%s: the name becomes part of unit names, lower-case letters, digits and dashes are needed: rename it"
            % entry
        ]
    found = type_errors(entry, service, dict)
    if found:
        return found
    kind = kind_of(service)
    if kind not in KINDS:
        step = did_you_mean(kind, KINDS, ": drop the key for a llama-server, with or without workers")
        return [f"{entry}.kind: {shown(kind)} seen, server or router is needed{step}"]
    # The build says which types of a KV cache there are.
    built = built and isinstance(service.get("build", ""), str)
    builds, build = one.builds if built else {}, value(service, "build")
    if built and build not in builds:
        step = did_you_mean(
            build, builds, f", one of {', '.join(map(str, builds))} is needed: add it there or choose one"
        )
        return [f"{entry}.build: {shown(build)} is not in llama_builds{step}"]
    keys = _with_types(BY_KIND[kind], extra_types(service, builds) if built else {})
    found = [wrong_key(entry, key, keys, kind) for key in service if key not in keys]
    for key in keys.values():
        if key.name in service and (built or key.name not in CACHES):
            found.extend(key_errors(f"{entry}.{key.name}", service[key.name], key))
        elif key.required and key.name not in service:
            found.append(f"{entry}.{key.name}: missing, {meaning(key)} is needed: add it")
    if found or (not built and set(CACHES) & set(service)):
        return found
    found = [
        "%s.%s: seen with launcher systemd, launcher slurm is needed for it: drop the key or change the launcher"
        % (entry, key)
        for key in SLURM_KEYS
        if key in service and value(service, "launcher") != "slurm"
    ]
    if kind == "server":
        return found + _server_errors(one, entry, service)
    return found or _router_errors(one, entry, service)


def _with_types(keys: Mapping[str, Key], extra: Mapping[str, float]) -> Mapping[str, Key]:
    """The keys of a service, with the types of a KV cache that its build has beside llama.cpp's."""
    types = {name: keys[name]._replace(choices=keys[name].choices + tuple(extra)) for name in CACHES if name in keys}
    return {**keys, **types}


def _family_of(entry: str, service: Settings, models: Models) -> tuple[Where, Settings]:
    """-> (where a key of a service stands, that service with what its model's entry says for its family, without what
    that entry's own check refuses)"""

    def where(key: str) -> str:
        of_model = key.partition(".")[0] in FAMILY_KEYS and key.partition(".")[0] not in service
        return "%s.%s" % ("llama_models.%s" % plain(service["model"]) if of_model else entry, key)

    model = models.get(service["model"])
    given = model if isinstance(model, Mapping) else {}
    sound = {
        name: given[name]
        for name, key in FAMILY_KEYS.items()
        if given.get(name) is not None and not key_errors("", given[name], key)
    }
    sound.update(mmproj=given.get("mmproj"))
    return where, resolved(service, sound)


def _server_errors(one: Inventory, entry: str, service: Settings) -> list[str]:
    where, whole = _family_of(entry, service, one.models)
    found = broken(where, [*setting_rules(service, whole), *word_rules(service)])
    found += _quant_errors(entry, "model", service["model"], service["quant"], one.models)
    wrong = draft_errors(where, whole)
    second = None if wrong else model_of(whole.get("draft"))
    if second:
        wrong = _quant_errors(where("draft"), "model", *second, one.models)
    found += wrong + _companion_errors(where, whole, one.models)
    heads, wrong_heads = _host_errors(one, entry, "head", service["head"])
    workers, wrong_workers = (
        _host_errors(one, entry, "workers", service["workers"]) if "workers" in service else ([], [])
    )
    found += wrong_heads + wrong_workers
    build = entry_of(service, one.builds)
    if len(heads) == 1 and workers:
        found += _address_errors(one, entry, heads[0])
    found += broken(where, host_rules(service, heads, workers, build.get("accelerator")))
    found += broken(where, node_rules(service, heads, workers, one.hostvars))
    found += broken(where, cache_rules(service, dialect_of(build)))
    if found:
        return found
    nodes = workers + heads
    return broken(
        where,
        [*split_rules(service, nodes, workers, one.models[service["model"]]), *build_rules(whole, dialect_of(build))],
    )


def _companion_errors(where: Where, whole: Settings, models: Models) -> list[str]:
    model = models.get(whole["model"])
    return broken(where, companion_rules(whole, model)) if isinstance(model, Mapping) else []


def _address_errors(one: Inventory, entry: str, head: str) -> list[str]:
    """Rules and units know addresses: at boot they are read before a name can be looked up."""
    address = plain(rpc_address(head, one.hostvars))
    if head not in one.nodes or IPV4.match(str(address)):
        return []
    return [
        "%s.head: %s comes to its workers from %s, an IPv4 address is needed: give it llama_fabric_address in hosts.yml"
        % (entry, head, address)
    ]


def _host_errors(one: Inventory, entry: str, key: str, pattern: object) -> tuple[list[str], list[str]]:
    """-> (hosts of a pattern, [sentences])"""
    try:
        hosts = expand(pattern, one.groups)
    except Refusal as problem:
        return [], [f"{entry}.{key}: {problem}"]
    found = [
        "%s.%s: %s is not in group llama_nodes, every head and worker is needed there: add it to the group in hosts.yml"
        % (entry, key, host)
        for host in hosts
        if host not in one.nodes
    ]
    if not hosts:
        found.append(
            f"{entry}.{key}: {pattern} matches no host, at least one is needed: add hosts to the group or drop the key"
        )
    return hosts, found


def _quant_errors(entry: str, key: str, name: str, quant: str, models: Models) -> list[str]:
    if name not in models:
        step = did_you_mean(name, models, "; known models: " + (", ".join(sorted(models)) or "none"))
        return [f"{entry}.{key}: {name} is not in llama_models{step}"]
    quants = sorted(models[name].get("quants") or {}) if isinstance(models[name], dict) else []
    if quant in quants or not quants:
        return []
    field = "quant" if key == "model" else f"{key}.{name}"
    step = did_you_mean(quant, quants, ": choose one of them")
    return [f"{entry}.{field}: {name} has no {quant}, one of {', '.join(quants)} is needed{step}"]


def _router_errors(one: Inventory, entry: str, service: Settings) -> list[str]:
    models, builds = one.models, one.builds
    build, keys = entry_of(service, builds), _with_types(OF_MODEL, extra_types(service, builds))
    hosts, found = _host_errors(one, entry, "head", service["head"])
    most = len(service["models"])
    if service.get("models_max", 0) > most:
        found.append(
            "%s.models_max: %d seen, at most %d is allowed, its models: lower it or drop the key"
            % (entry, service["models_max"], most)
        )
    own_rules = [row for row in host_rules(service, hosts, [], build.get("accelerator")) if row[0] == "cards"]
    own_rules += [row for row in node_rules(service, hosts, [], one.hostvars) if row[0] == "cards"]
    found += broken(lambda key: f"{entry}.{key}", own_rules)
    for model, own in service["models"].items():
        found += _map_errors(f"{entry}.models.{plain(model)}", own, keys)
    if found:
        return found
    for model, own in service["models"].items():
        single = as_service(service, model)
        found += _quant_errors(entry, "models", model, single["quant"], models)
        where, whole = _family_of(f"{entry}.models.{model}" if own_settings(own) is own else entry, single, models)
        wrong = broken(where, setting_rules(single, whole)) + _companion_errors(where, whole, models)
        wrong += [] if found or wrong else broken(where, build_rules(whole, dialect_of(build)))
        found += [sentence for sentence in wrong if sentence not in found]
    return found or _name_errors(entry, service, models)


def _map_errors(entry: str, own: object, keys: Mapping[str, Key]) -> list[str]:
    if not isinstance(own, (str, dict)):
        return [f"{entry}: {shown(own)} seen, a quant or a map with quant is needed: correct it"]
    settings = own_settings(own)
    found = [wrong_key(entry, key, keys, "model") for key in settings if key not in keys]
    if "quant" not in settings:
        found.append(f"{entry}.quant: missing, one of the quants of the model is needed: add it")
    return found + [
        wrong for key in settings if key in keys for wrong in key_errors(f"{entry}.{key}", settings[key], keys[key])
    ]


def _name_errors(entry: str, service: Settings, models: Models) -> list[str]:
    """Names by which requests could not find their model. A preset's name is a model's and its quant's to llama.cpp,
    which writes the latter anew."""
    found, taken = [], dict.fromkeys(service["models"], "")
    for model in service["models"]:
        if ":" in model or model == "default":
            found.append(
                "%s.models: %s seen, a name without a colon that is not default is needed, since llama.cpp reads it as "
                "another one: rename the model" % (entry, model)
            )
        for alias in models[model].get("aliases") or []:
            other = taken.setdefault(alias, model)
            if other != model:
                found.append(
                    "%s.models: %s seen as a name of %s and of %s, a name of only one of them is needed: remove it "
                    "from the aliases" % (entry, alias, other or alias, model)
                )
    return found
