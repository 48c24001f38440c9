# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The refusals of a memory plan, one sentence each: entry, value seen, value needed, next step. Private to the
collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.architectures import WITHOUT_CACHE
from ...module_utils._model.kv_cache import CACHE_TYPES, largest_kv
from ...module_utils._model.memory import Settings, Shape, leaving
from ...module_utils._model.tensor_mode import UNPLANNED, UNSUPPORTED
from ...module_utils._plan.context import allowed_context, way_out
from ...module_utils._plan.devices import Device
from ...module_utils._plan.place import Case, Plan, ServicePlan, slot_context
from ...module_utils._plan.suggest import MAX_DEVICES, nearest
from ...module_utils._plan.table import context_words, join
from ...module_utils._settings import LLAMA_NUMA, kind_of, value
from .._intent.check import weights
from .._intent.services import numa_policy
from .cluster import Cluster, Misfit

UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}  # systemd's
DRAFT_VOCABULARY = 128  # SPEC_VOCAB_MAX_SIZE_DIFFERENCE
UNKNOWN_EXPERTS = "cpu_moe needs its header, which was not read, to tell the experts"
NO_EXPERTS = "cpu_moe is for experts, its header was not read, and its header in llama_models names none"
NUMA_VARIABLES = {"head": "head_server_numa_node", "rpc": "rpc_worker_numa_node"}


def threads(
    name: str,
    service: Mapping[str, Any],
    nodes: Mapping[str, Mapping[str, Any]],
    head: str | None = None,
) -> list[str]:
    """More threads than cores stand in each other's way. nodes: {node: {cores, numa}}, see numa(); nothing if they are
    not known."""
    found = []
    for node, facts in sorted(nodes.items()):
        kind = "head" if node == head else "rpc"
        bound, variable = facts.get("numa", {}).get(kind, ""), NUMA_VARIABLES[kind]
        own = numa_policy(service) if kind == "head" else ""
        if own not in ("", "bind"):
            bound, variable = own if own.isdigit() else "", "numa {node: %s}" % own
        cores, place = (
            (facts["numa"]["cpus"].count(bound), f"NUMA node {bound} of {node}")
            if bound
            else (int(facts.get("cores") or 0), node)
        )
        if bound and cores and kind == "head" and "threads" not in service:
            # llama-server counts the cores of the whole machine.
            found.append(
                "llama_services.%s.threads: missing beside %s, at most the %d cores of %s are allowed: set it"
                % (name, variable, cores, place)
            )
        for key in ("threads", "threads_batch") if kind == "head" else ("threads",):
            if cores and service.get(key, 0) > cores:
                found.append(
                    "llama_services.%s.%s: %d seen, at most the %d cores of %s are allowed: lower it"
                    % (name, key, service[key], cores, place)
                )
        if bound and kind == "head" and service.get("numa") in LLAMA_NUMA[:-1]:
            found.append(
                "llama_services.%s.numa: %s seen beside %s of %s, numactl is needed: drop one of them"
                % (name, service["numa"], NUMA_VARIABLES[kind], node)
            )
    return found


def numa(nodes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Nodes that a NUMA node is asked of that they do not have. nodes: {node: {numa: {head, rpc: wanted node or empty,
    cpus: [node of each CPU]}}}."""
    return [
        "%s: %s seen for %s, one of its NUMA nodes (%s) is needed: correct it or leave it empty"
        % (variable, facts["numa"][kind], node, ", ".join(known))
        for node, facts in sorted(nodes.items())
        for kind, variable in sorted(NUMA_VARIABLES.items())
        for known in [sorted(set(facts.get("numa", {}).get("cpus", [])))]
        if facts.get("numa", {}).get(kind) and facts["numa"][kind] not in known
    ]


def no_numa_node(name: str, service: Mapping[str, Any], node: str, facts: Mapping[str, Any]) -> list[str]:
    """A NUMA node that a service asks of its head's node, which does not have it. facts: as of numa()."""
    wish, known = numa_policy(service), sorted(set(facts.get("numa", {}).get("cpus", [])))
    if not wish.isdigit() or not known or wish in known:
        return []
    return [
        "llama_services.%s.numa: node %s seen, one of the NUMA nodes of %s (%s) is needed: correct it"
        % (name, wish, node, ", ".join(known))
    ]


def settings(
    name: str, service: Mapping[str, Any], shape: Shape, settings: Settings, devices: Sequence[Device]
) -> list[str]:
    """Mistakes of a service's settings with its model."""
    model, allowed = service["model"], allowed_context(service, shape, settings.build)
    tokens = slot_context(shape, settings)
    own, both = (settings.cache_type_k, settings.cache_type_v), (shape.head_k, shape.head_v)
    quantized = settings.flash_attn and not shape.mla
    cached = [layer for layer, count in enumerate(shape.n_head_kv) if count]
    heads = {
        key: (kind, CACHE_TYPES.get(kind, (1, 1))[0], [sizes[layer] for layer in cached])
        for key, kind, sizes in zip(("cache_type_k", "cache_type_v"), own, both, strict=True)
    }
    most = min(MAX_DEVICES, shape.block_count)
    unsupported = shape.architecture in UNSUPPORTED
    reason = "llama.cpp drives no more" if most == MAX_DEVICES else f"one for each layer of {model}"
    rows = (
        (
            shape.architecture in WITHOUT_CACHE and not service.get("embeddings") and not service.get("reranking"),
            "model",
            "%s is of architecture %s, which generates no text, embeddings: true is needed, or reranking: true: add it "
            "to its entry in llama_models" % (model, shape.architecture),
        ),
        (
            allowed and tokens > allowed,
            "ctx_size" if "ctx_size" in service else "slot_ctx_size",
            "%d tokens a slot seen, at most %d are allowed by the header of %s, llama-server caps each slot there: "
            "lower it, or %s" % (tokens, allowed, model, way_out(shape, tokens, settings.build)),
        ),
        (
            shape.mla and own[0] != own[1],
            "cache_type_v",
            "%s seen with cache_type_k %s, the same type for both is needed for the compressed cache of %s: set both"
            % (own[1], own[0], model),
        ),
        # A type that is not llama.cpp's has unknown blocks.
        *(
            (
                quantized,
                key,
                "%s seen, a type that is not quantized is needed, since heads of %s have %d weights, no multiple of "
                "its blocks of %d: choose f16" % (cache_type, model, size, block),
            )
            for key, (cache_type, block, sizes) in heads.items()
            for size in [size for size in sizes if size % block][:1]
        ),
        (
            settings.tensor_mode and (unsupported or shape.architecture in UNPLANNED),
            "split_mode",
            "tensor seen, layer is needed for architecture %s of %s, %s: drop the key"
            % (
                shape.architecture,
                model,
                "which llama.cpp refuses" if unsupported else "whose memory is not known in that mode",
            ),
        ),
        (
            settings.tensor_mode and len(devices) < 2,
            "split_mode",
            "tensor seen with one device, at least 2 are needed, cards of the head or workers: drop the key",
        ),
        (
            len(devices) > most,
            "workers",
            "%d devices seen, at most %d are allowed, %s: use fewer workers" % (len(devices), most, reason),
        ),
    )
    return [f"llama_services.{name}.{key}: {words}" for wrong, key, words in rows if wrong]


def model(name: str, service: Mapping[str, Any], shape: Shape, device: Device, main: Device | None) -> list[str]:
    """Mistakes of a model with its head's node. device: the head's first; main: its main memory beside GPUs, None where
    its size is not known."""
    moe, offload, served = service.get("cpu_moe"), value(service, "n_gpu_layers"), service["model"]
    layers, card = shape.block_count, device.kind == "GPU"
    mixture, offloaded = any(shape.expert_bytes), offload != "auto"
    need_main = "the main memory of %s is needed for it: add {main: true, memory_mib: 256000} to its llama_devices"
    rows = (
        (
            moe and not mixture,
            "cpu_moe",
            f"a mixture of experts is needed for it, {served} has no experts: drop the key",
        ),
        (
            mixture and isinstance(moe, int) and moe > layers,
            "cpu_moe",
            "at most the %d layers of %s are allowed: lower it or write all" % (layers, served),
        ),
        (moe and mixture and card and not main, "cpu_moe", need_main % device.node),
        (
            offloaded and not card,
            "n_gpu_layers",
            f"a card is needed for it, {device.node} has none that its build uses: drop the key",
        ),
        (
            offloaded and card and offload > layers + 1,
            "n_gpu_layers",
            "at most the %d layers of %s and its output layer are allowed: lower it or drop the key" % (layers, served),
        ),
        (offloaded and card and not main, "n_gpu_layers", need_main % device.node),
    )
    found = {key: f"llama_services.{name}.{key}: {service[key]} seen, {words}" for wrong, key, words in rows if wrong}
    # llama-server says so in its log, and serves without it.
    if shape.draft and abs(shape.n_vocab - shape.draft.n_vocab) > DRAFT_VOCABULARY:
        found["draft"] = (
            "llama_services.%s.draft: %s with a vocabulary of %d tokens seen, one like the %d of %s is needed, since "
            "llama-server drafts with no other: choose a smaller model of the same family"
            % (name, service["draft"]["model"], shape.draft.n_vocab, shape.n_vocab, served)
        )
    return list(found.values())


def tensors(name: str, case: Case, planned: Plan) -> list[str]:
    """Tensors that are larger than a device with layers can hold: llama.cpp would keep weights in main memory, or end
    while it makes the cache."""
    shape, settings = case.shape, case.settings
    experts = shape.largest_expert if shape.cpu_moe < shape.block_count else 0
    weights, cache = max(shape.largest, experts) >> 20, largest_kv(shape, settings) >> 20
    used = {(row.node, row.device) for row in planned.devices if row.layers}
    limits = [one for one in case.devices if one.tensor_mib and (one.node, one.device) in used]
    if settings.tensor_mode or not limits:
        return []
    least = min(limits, key=lambda device: device.tensor_mib or 0)
    needed = (
        f"at most {least.tensor_mib} MiB are allowed by the driver of {least.device} of {least.node}, or by any driver "
        "if vulkaninfo is missing there"
    )
    rows = (
        ("model", weights, "a tensor", "install vulkan-tools, or choose a smaller quant"),
        ("slot_ctx_size", cache, "a layer's keys or values", "install vulkan-tools, or lower it or parallel"),
    )
    return [
        f"llama_services.{name}.{key}: {what} of {size} MiB seen, {needed}: {step}"
        for key, size, what, step in rows
        if size > (least.tensor_mib or 0)
    ]


def memory_max(name: str, service: Mapping[str, Any], described: ServicePlan) -> list[str]:
    """A limit of the head under which it would be killed, or its weights read from the disk for every token."""
    # Beside workers a head has no layers in main memory.
    rows = [row for row in described.plan.devices if row.kind == "main" and not service.get("workers")]
    # Beside cards that have all layers the weights are the inputs: pages of their file, which the kernel takes back.
    # Without a card llama.cpp copies those that its CPU backend lays out anew, mapped or not.
    beside = (
        described.plan.cpu_moe or value(service, "n_gpu_layers") != "auto" or len(rows) == len(described.plan.devices)
    )
    mapped = value(service, "load_mode") in ("auto", "mmap") and not beside
    needed = sum(row.total_mib - row.margin_mib - (row.weights_mib if mapped else 0) for row in rows)
    found = limit(name, service, "memory_max", needed)
    # A worker without a card has its layers in memory of the process.
    held = [row.total_mib - row.margin_mib for row in described.plan.devices if row.kind == "main" and not rows]
    return found + limit(name, service, "rpc_memory_max", max(held, default=0))


def limit(name: str, service: Mapping[str, Any], key: str, needed: int) -> list[str]:
    given = service.get(key)
    if not given or int(given[:-1]) * UNITS[given[-1]] >= needed << 20:
        return []
    return [
        "llama_services.%s.%s: %s seen, at least the %d MiB that it has to keep in main memory are needed: raise it or "
        "remove the key" % (name, key, given, needed)
    ]


def layers(
    name: str,
    service: Mapping[str, Any],
    shape: Shape,
    split: Mapping[str, int],
    without: Sequence[str],
) -> list[str]:
    """Mistakes in layers per node. without: nodes of the service that can hold no layers."""
    found = [
        "llama_services.%s.tensor_split.%s: %d layers seen, 0 are needed: without a GPU a head holds none beside "
        "workers: leave it out" % (name, node, split[node])
        for node in without
        if split.get(node)
    ]
    if sum(split.values()) != shape.block_count:
        found.append(
            "llama_services.%s.tensor_split: %d layers in all seen, the %d of %s are needed, without the output layer: "
            "correct the counts or choose auto" % (name, sum(split.values()), shape.block_count, service["model"])
        )
    return found


def without_plan(name: str, service: Mapping[str, Any], why: str, missing: Sequence[str]) -> str:
    """A split that cannot be computed: what auto needs a header for, and layers per node the cards of every node."""
    if "models" in service:
        return (
            "llama_services.%s.models_max: nothing seen without a plan of its models (%s), a header is needed for it: "
            "make it readable, or give the number of models" % (name, why)
        )
    key, count = "tensor_split", "layers per node"
    if not service.get("workers"):
        key, count = "cpu_moe", "the number of layers, or drop cpu_moe where the model has no experts"
    entry = f"llama_services.{name}.{key}: {'layers per node' if isinstance(service.get(key), dict) else 'auto'} seen"
    if missing:
        return f"{entry} and {absent(missing)}, all nodes of the service are needed: run without --limit"
    return "%s without a plan of %s %s (%s), a header is needed for it: make it readable, or give %s" % (
        entry,
        service["model"],
        service["quant"],
        why,
        count,
    )


def needs_no_split(name: str, described: ServicePlan, single: Plan, head: str) -> str:
    row = next(row for row in single.devices if row.layers)
    step = "drop workers" if row.node == head else f"make {row.node} the head and drop workers"
    return (
        "llama_services.%s.workers: %s %s fits %s of %s (%d of %d MiB), a head without workers is needed, since "
        "a split is slower: %s, or set force_split: true"
        % (name, described.model, described.quant, row.device, row.node, row.total_mib, row.free_mib or 0, step)
    )


def absent(hosts: Sequence[str]) -> str:
    return f"{join(hosts)} {'is' if len(hosts) == 1 else 'are'} not part of this run" if hosts else ""


def not_planned(name: str, why: str, missing: Sequence[str]) -> str:
    step = ", a plan needs all nodes of a service: run without --limit" if missing else ""
    if why == UNKNOWN_EXPERTS:
        step = ": make it readable, or drop cpu_moe where the model has no experts"
    if why == NO_EXPERTS:
        step = ": drop cpu_moe, or add expert_count and what belongs to it there"
    return f"llama_services.{name}: not planned, {why}{step}"


def does_not_fit(one: Misfit, service: Mapping[str, Any], advice: Sequence[str]) -> str:
    """advice: what would fit."""
    key = (
        "models"
        if kind_of(service) == "router"
        else "tensor_split"
        if isinstance(service.get("tensor_split"), dict)
        else "quant"
    )
    return "llama_services.%s.%s: %s %s with %s does not fit, %s: %s" % (
        one.name,
        key,
        one.described.model,
        one.described.quant,
        context_words(one.described),
        one.shortage(),
        ", or ".join(advice) or "choose another model, or add nodes",
    )


def own_words(case: Case, whole: Shape, force: bool) -> list[str]:
    """Words for the automatic split if that fits, or for the most layers on the cards. whole: the model with the layers
    that stay in main memory."""
    automatic = case._replace(counts=None).plan(force)
    if case.counts and automatic.fits:
        rows = [row for row in automatic.devices if row.layers or row.kind == "GPU"]
        return ["set tensor_split to auto (%s)" % ", ".join("%s %d" % (row.node, row.layers) for row in rows)]
    for blocks in range(case.shape.block_count - 1, 0, -1) if case.shape.left else ():
        if case._replace(shape=leaving(whole, whole.block_count - blocks)).plan().fits:
            return ["lower n_gpu_layers to %d" % (blocks + 1)]
    return []


def misfit_sentence(cluster: Cluster, one: Misfit) -> str:
    """Why a service does not fit, and what would."""
    model, words = cluster.models[one.described.model], list(one.words)
    if not words and len(cluster.heads(one.name)) > 1:
        words = [f"leave {one.described.node} out of head"]
    if not one.words:
        sizes = {quant: weights(model, quant)[0] for quant in model["quants"]}
        words += nearest(one.case, sizes.pop(one.described.quant), sizes)
    return does_not_fit(one, cluster.services[one.name], words)
