# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with one entry of llama_services, one sentence a mistake. Private to the collection."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._llama.args import OLDEST, build_number, command_line_of
from ...module_utils._settings import (
    BY_KIND,
    CACHE_TYPES,
    FAMILY_KEYS,
    KINDS,
    LARGEST,
    PLAIN_CACHE_TYPES,
    SLURM_KEYS,
    WORKER_KEYS,
    Key,
    context,
    effective,
    kind_of,
    resolved,
    value,
)
from ...module_utils._text import Refusal
from .builds import builds_of, dialect_of, entry_of, extra_types
from .check_builds import unknown_build
from .check_family import Where, build_errors, family_errors, sound_family
from .check_head import draft_build_errors, draft_errors, numa_errors, offload_errors
from .extra_args import extra_errors
from .hosts import expand, rpc_address
from .records import Groups, HostVars, Models, Settings
from .routers import router_key, server_key
from .values import IPV4, is_a, key_errors, meaning, near, plain, shown, type_errors

UNIT_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,39}\Z")
# The first build with llama.cpp PR 28789 whose tensor cache was measured.
CACHE_BUILD = 11434
CACHES = ("cache", "cache_type_k", "cache_type_v")
# Keys that stand for others.
SHORT = {"cache": ("cache_type_k", "cache_type_v"), "mmap": ("load_mode",)}


def service_errors(
    name: Any, service: Any, models: Models, groups: Groups, hostvars: HostVars, built: bool = True
) -> list[str]:
    """built: whether llama_builds is sound."""
    entry = f"llama_services.{plain(name)}"
    if not UNIT_NAME.match(str(name)):
        return [
            "%s: the name becomes part of unit names, lower-case letters, digits and dashes are needed: rename it"
            % entry
        ]
    found = type_errors(entry, service, dict)
    if found:
        return found
    if kind_of(service) not in KINDS:
        step = near(service["kind"], KINDS, ": drop the key for a llama-server, with or without workers")
        return [f"{entry}.kind: {shown(service['kind'])} seen, server or router is needed{step}"]
    # The build says which types of a KV cache there are.
    built = built and isinstance(service.get("build", ""), str)
    builds = builds_in(groups, hostvars) if built else {}
    found = unknown_build(entry, service, builds) if built else []
    if found:
        return found
    keys = with_types(BY_KIND[kind_of(service)], extra_types(service, builds) if built else {})
    told = router_key if kind_of(service) == "router" else server_key
    found = [told(entry, key, keys) for key in service if key not in keys]
    for key in keys.values():
        if key.name in service and (built or key.name not in CACHES):
            found.extend(key_errors(f"{entry}.{key.name}", service[key.name], key))
        elif key.required:
            found.append(f"{entry}.{key.name}: missing, {meaning(key)} is needed: add it")
    if found or (not built and set(CACHES) & set(service)):
        return found
    found = _launcher_errors(entry, service)
    if kind_of(service) == "router":
        return found  # the rest is for router_errors()
    return found + _server_errors(entry, service, models, groups, hostvars)


def builds_in(groups: Groups, hostvars: HostVars) -> Mapping[str, Any]:
    """llama_builds, which is the same for all nodes."""
    nodes = groups.get("llama_nodes") or []
    return builds_of(hostvars[nodes[0]] if nodes else {})


def with_types(keys: Mapping[str, Key], extra: Mapping[str, float]) -> Mapping[str, Key]:
    """The keys of a service, with the types of a KV cache that its build has beside llama.cpp's."""
    types = {name: keys[name]._replace(choices=keys[name].choices + tuple(extra)) for name in CACHES if name in keys}
    return {**keys, **types}


def _server_errors(entry: str, service: Settings, models: Models, groups: Groups, hostvars: HostVars) -> list[str]:
    where, whole = family_of(entry, service, models)
    found = setting_errors(entry, service, where, whole)
    found.extend(extra_errors(entry, service))
    found.extend(quant_errors(entry, "model", service["model"], service["quant"], models))
    wrong = draft_errors(where, whole)
    if "draft" in whole and not wrong:
        wrong = quant_errors(where("draft"), "model", whole["draft"]["model"], whole["draft"]["quant"], models)
    found.extend(wrong)
    hosts = {}
    for key in ("head", "workers"):
        if key in service:
            hosts[key], wrong = host_errors(entry, key, service[key], groups)
            found.extend(wrong)
    if len(hosts.get("head", [])) > 1:
        found.extend(_replica_errors(entry, service, hosts["head"]))
    elif hosts.get("workers"):
        found.extend(_worker_errors(entry, service, hosts, groups, hostvars))
    found.extend(numa_errors(entry, service, hosts.get("head", []), hostvars))
    if "cards" in service:
        found.extend(cards_errors(entry, service, hosts, builds_in(groups, hostvars), hostvars))
    if service.get("rpc_cache"):
        found.extend(_tensor_cache_errors(entry, service, builds_in(groups, hostvars)))
    if not found:
        found.extend(_split_errors(entry, service, hosts, models[service["model"]]))
        found.extend(release_errors(where, whole, dialect_of(entry_of(service, builds_in(groups, hostvars)))))
    return found


def family_of(entry: str, service: Settings, models: Models) -> tuple[Where, Settings]:
    """-> (where a key of a service stands, that service with what its model's entry says for its family)"""

    def where(key: str) -> str:
        of_model = key in FAMILY_KEYS and key not in service
        return "%s.%s" % ("llama_models.%s" % plain(service["model"]) if of_model else entry, key)

    return where, resolved(service, sound_family(models.get(service["model"])))


def setting_errors(entry: str, service: Settings, where: Where, whole: Settings) -> list[str]:
    """Settings that do not go together. where, whole: of family_of()."""
    found = _setting_errors(entry, service)
    found.extend(_twice(entry, service) or _cache_errors(entry, service, whole))
    return found + family_errors(where, whole)


def release_errors(where: Where, whole: Settings, version: str) -> list[str]:
    """What a build does not know."""
    found = []
    if (build_number(version) or OLDEST) >= OLDEST:
        found.extend(build_errors(where, whole, version))
        found.extend(draft_build_errors(where, whole, version, command_line_of(version)))
    return found


def _launcher_errors(entry: str, service: Settings) -> list[str]:
    return [
        "%s.%s: seen with launcher systemd, launcher slurm is needed for it: drop the key or change the launcher"
        % (entry, key)
        for key in SLURM_KEYS
        if key in service and value(service, "launcher") != "slurm"
    ]


def _setting_errors(entry: str, service: Settings) -> list[str]:
    """Settings that do not go together."""
    found = []
    total = context(service)
    if total and total > LARGEST:
        found.append(
            "%s.%s: %d tokens in all slots seen, at most %d are allowed: lower it"
            % (entry, "slot_ctx_size" if "slot_ctx_size" in service else "ctx_size", total, LARGEST)
        )
    if total and service.get("ctx_size", total) != total:
        found.append(
            "%s.ctx_size: %d seen with slot_ctx_size %d for each of %d slots, %d is needed: drop ctx_size, the product "
            "is what llama-server gets"
            % (entry, service["ctx_size"], service["slot_ctx_size"], value(service, "parallel"), total)
        )
    if "cpu_moe" in service and "workers" in service:
        found.append(
            "%s.cpu_moe: seen with workers, a service of one node is needed for it, since experts lie in the head's "
            "main memory: drop the key or the workers" % entry
        )
    elif "cpu_moe" in service and service.get("cards") == []:
        found.append(
            "%s.cpu_moe: seen with cards [], a card is needed for it, since without one all weights lie in main memory "
            "anyway: drop one of them" % entry
        )
    if value(service, "n_gpu_layers") != "auto":
        found.extend(offload_errors(entry, service))
    if "workers" in service and value(service, "cache_ram"):
        found.append(
            "%s.cache_ram: %d seen with workers, 0 is needed, since a head with RPC workers aborts when it saves a "
            "prompt: drop the key" % (entry, service["cache_ram"])
        )
    if "workers" not in service:
        found.extend(
            f"{entry}.{key}: seen without workers, it is for them alone: drop the key"
            for key in WORKER_KEYS
            if key in service
        )
    return found


def _twice(entry: str, service: Settings) -> list[str]:
    """Keys that say in another way what a second one says."""
    return [
        "%s.%s: %s seen with %s, one of both is needed: drop one"
        % (entry, short, str(service[short]).lower(), " and ".join(long for long in longs if long in service))
        for short, longs in SHORT.items()
        if short in service and any(long in service for long in longs)
    ]


def _cache_errors(entry: str, service: Settings, whole: Settings) -> list[str]:
    """whole: the service, resolved."""
    found = []
    cache = {key: effective(whole, key) for key in SHORT["cache"]}
    keys, values = cache.values()
    if "workers" in service and keys != values:
        found.append(
            "%s.cache_type_v: %s seen with cache_type_k %s, the same type for both is needed, since an RPC worker "
            "aborts at the first token of a mixed pair: set both" % (entry, values, keys)
        )
    elif "workers" in service and keys not in CACHE_TYPES:
        found.append(
            "%s.%s: %s seen with workers, one of %s is needed, since an RPC worker aborts at the first token of "
            "another type: choose one of them"
            % (entry, "cache" if "cache" in service else "cache_type_k", keys, ", ".join(CACHE_TYPES))
        )
    if effective(whole, "flash_attn") == "off" and values not in PLAIN_CACHE_TYPES:
        found.append(
            "%s.flash_attn: off seen with cache_type_v %s, on or auto is needed: llama.cpp has no quantized V cache "
            "without flash attention" % (entry, values)
        )
    return found


def host_errors(entry: str, key: str, pattern: object, groups: Groups) -> tuple[list[str], list[str]]:
    """-> (hosts of a pattern, [sentences])"""
    try:
        hosts = expand(pattern, groups)
    except Refusal as problem:
        return [], [f"{entry}.{key}: {problem}"]
    found = [
        "%s.%s: %s is not in group llama_nodes, every head and worker is needed there: add it to the group in hosts.yml"
        % (entry, key, host)
        for host in hosts
        if host not in groups.get("llama_nodes", [])
    ]
    if not hosts:
        found.append(
            f"{entry}.{key}: {pattern} matches no host, at least one is needed: add hosts to the group or drop the key"
        )
    return hosts, found


def _replica_errors(entry: str, service: Settings, heads: Sequence[str]) -> list[str]:
    if "workers" in service:
        return [
            "%s.head: %s matches %s, exactly one host is needed beside workers: name one of them, or drop workers for "
            "a replica on each" % (entry, service["head"], ", ".join(heads))
        ]
    if isinstance(service.get("tensor_split"), dict):
        return [
            "%s.tensor_split: a map seen with replicas on %s, auto is needed, since each holds all layers: drop the key"
            % (entry, ", ".join(heads))
        ]
    return []


def _worker_errors(
    entry: str,
    service: Settings,
    hosts: Mapping[str, list[str]],
    groups: Groups,
    hostvars: HostVars,
) -> list[str]:
    found = []
    if "rpc_port" not in service:
        found.append(f"{entry}.rpc_port: missing, a port for its RPC workers is needed: add it, such as 50052")
    for host in hosts.get("head", [])[:1]:
        # Rules and units know addresses: at boot they are read before anybody could look up a name.
        address = plain(rpc_address(host, hostvars))
        if (
            host in groups.get("llama_nodes", [])
            and not hostvars[host].get("llama_fabric_address")
            and not IPV4.match(str(address))
        ):
            found.append(
                "%s.head: %s comes to its workers from %s, an IPv4 address is needed: give it llama_fabric_address in "
                "hosts.yml" % (entry, host, address)
            )
    for host in hosts["workers"]:
        if not hostvars[host].get("llama_fabric_address"):
            found.append(
                "%s.workers: %s has no llama_fabric_address, the IPv4 address of its fabric interface is needed: add "
                "it in hosts.yml" % (entry, host)
            )
        if [host] == hosts.get("head"):
            found.append(
                "%s.workers: %s is its head too, a head uses its own card without RPC: take it out of the group, or "
                "exclude it as in %s:!%s" % (entry, host, service["workers"], host)
            )
    return found


def quant_errors(entry: str, key: str, name: str, quant: str, models: Models) -> list[str]:
    if name not in models:
        return [
            "%s.%s: %s is not in llama_models%s"
            % (entry, key, name, near(name, models, "; known models: " + (", ".join(sorted(models)) or "none")))
        ]
    quants = sorted(models[name].get("quants") or {}) if isinstance(models[name], dict) else []
    if quant in quants or not quants:
        return []
    field = "quant" if key == "model" else f"{key}.{name}"
    return [
        "%s.%s: %s has no %s, one of %s is needed%s"
        % (entry, field, name, quant, ", ".join(quants), near(quant, quants, ": choose one of them"))
    ]


def cards_errors(
    entry: str,
    service: Settings,
    hosts: Mapping[str, list[str]],
    builds: Mapping[str, Any],
    hostvars: HostVars,
) -> list[str]:
    heads, workers = hosts.get("head", []), hosts.get("workers", [])
    entry, wanted = entry + ".cards", service["cards"]
    if isinstance(wanted, list) and not all(is_a(index, int) and index >= 0 for index in wanted):
        return [f"{entry}: {wanted} seen, indices that nvidia-smi prints are needed: write such as [0, 1]"]
    if isinstance(wanted, list) and len(set(wanted)) < len(wanted):
        return [f"{entry}: {wanted} seen, each index once is needed: remove the others"]
    if wanted == [] and "workers" in service:
        return [f"{entry}: [] seen with workers, a card on each node is needed: drop workers, or name cards"]
    found = []
    for variable, nodes in (("head_server_environment", heads), ("rpc_worker_environment", workers)):
        for node in nodes:
            if "CUDA_VISIBLE_DEVICES" in (hostvars[node].get(variable) or {}):
                found.append(
                    "%s: seen beside CUDA_VISIBLE_DEVICES in %s of %s, one of them is needed: drop the other"
                    % (entry, variable, node)
                )
    name = value(service, "build")
    if wanted and entry_of(service, builds).get("accelerator") == "cpu":
        found.append(
            "%s: %s seen with llama_builds.%s.accelerator cpu, cuda or auto is needed to use cards: change it, or drop "
            "the key" % (entry, wanted, name)
        )
    return found


def _tensor_cache_errors(entry: str, service: Settings, builds: Mapping[str, Any]) -> list[str]:
    version = dialect_of(entry_of(service, builds))
    if (build_number(version) or 0) >= CACHE_BUILD:
        return []
    return [
        f"{entry}.rpc_cache: cannot be used with build {version}, because builds before b{CACHE_BUILD} also store "
        "activations, without end: drop the key or take a newer build"
    ]


def _split_errors(entry: str, service: Settings, hosts: Mapping[str, list[str]], model: Any) -> list[str]:
    split = value(service, "tensor_split")
    if split == "auto":
        return []
    entry += ".tensor_split"
    nodes = hosts.get("workers", []) + hosts["head"]
    found = [
        "%s: %s is no node of this service, one of %s is needed%s"
        % (entry, plain(node), ", ".join(nodes), near(node, nodes, ": correct the name"))
        for node in split
        if node not in nodes
    ]
    found.extend(
        f"{entry}.{node}: {count!r} seen, a whole number of layers is needed: correct it"
        for node, count in split.items()
        if not is_a(count, int) or count < 0
    )
    found.extend(
        f"{entry}: worker {node} is missing, its number of layers is needed: add it"
        for node in hosts.get("workers", [])
        if node not in split
    )
    if not found and not any(split.values()):
        found.append(
            f"{entry}: 0 layers in all seen, those of {service['model']} are needed: give the counts or choose auto"
        )
    header = model.get("header") if isinstance(model, dict) else None
    blocks: Any = header.get("block_count") if isinstance(header, dict) else None
    if not found and is_a(blocks, int) and sum(split.values()) != blocks:
        found.append(
            "%s: %d layers in all seen, the %d of %s are needed, without the output layer: correct the counts or "
            "choose auto" % (entry, sum(split.values()), blocks, service["model"])
        )
    return found
