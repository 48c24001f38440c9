# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a service: one table, of which the intent check, the command line, the plan and docs/settings.md are
made. Private to the collection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ._cache_keys import CACHE_ROWS
from ._companion_keys import COMPANIONS, with_projector
from ._family import FAMILY, inherited
from ._forms import CPU_MOE, GPU_LAYERS, LOAD_MODES, MODEL_NAME, RPC_CACHE, SIZE, SPELLED_OUT, SPLIT, WORD
from ._key import Key
from ._slurm_keys import KINDS, SLURM_ROWS

LARGEST = 2**31 - 1
PORT = (1, 65535)


LLAMA_NUMA = ("distribute", "isolate", "numactl")
NUMA = (
    re.compile(rf"^(bind|interleave|none|{'|'.join(LLAMA_NUMA)})\Z"),
    "bind, interleave, none, {node: N}, %s" % ", ".join(LLAMA_NUMA[:-1]) + " or " + LLAMA_NUMA[-1],
    "choose one of them",
)
HOSTS = (re.compile(r""), "a host, a group or a pattern", "write several hosts as node2,node3")

# Flags are written in this order.
KEYS = (
    Key(
        "kind",
        str,
        "`server`: one llama-server, with or without `workers`; `router`: llama-server's router mode, [several models "
        "that take turns](inventory.md#routers).",
        default="server",
        choices=KINDS,
        kinds=KINDS,
    ),
    Key(
        "state",
        str,
        "Whether it runs; `stopped` configures all of it and starts none of it: "
        "[a service that is stopped](inventory.md#a-service-that-is-stopped).",
        default="started",
        choices=("started", "stopped"),
    ),
    Key("primary", bool, "The one service whose units are called `llama-rpc` and `llama-head`.", default=False),
    Key("model", str, "An entry of `llama_models`.", required=True),
    Key("quant", str, "One of the quants of the model.", required=True),
    Key(
        "names",
        list,
        "The names by which clients ask for it, in place of its model's: [two services of one "
        "model](inventory.md#two-services-of-one-model).",
        form=MODEL_NAME,
    ),
    Key(
        "build",
        str,
        "The entry of `llama_builds` that its head and its workers run: [Builds](inventory.md#builds).",
        default="default",
        kinds=KINDS,
    ),
    Key(
        "head",
        str,
        "The node that answers: a host, group or pattern, with `workers` of exactly one host; several are "
        "[replicas](inventory.md#replicas), a server on each.",
        form=HOSTS,
        required=True,
    ),
    Key(
        "workers",
        str,
        "Nodes that hold layers for the head: hosts, a group or a pattern (`a:b`, `a:!b`, `a:&b`).",
        form=HOSTS,
    ),
    Key(
        "models",
        dict,
        "A map of models: name to quant, or to a map with `quant` and settings for this model only.",
        required=True,
        kinds=("router",),
    ),
    Key(
        "models_max",
        int,
        "How many of its models are loaded at a time; without it as many as fit together.",
        kinds=("router",),
    ),
    Key(
        "port",
        int,
        "The HTTP port of the endpoint; without it [one from 18080 on](inventory.md#ports), by the service's name.",
        bounds=PORT,
        kinds=KINDS,
    ),
    Key("tier", str, "The gateway's tier that it answers, such as `fast`: [Tiers](inventory.md#tiers).", kinds=KINDS),
    Key("fallback", str, "The service that answers where it cannot: [Fallback](inventory.md#fallback).", kinds=KINDS),
    Key(
        "rpc_port",
        int,
        "The port of the workers, needed with `workers`; every service has its own, because a worker serves one head.",
        bounds=PORT,
    ),
    Key(
        "rpc_cache",
        (bool, str),
        "Whether each worker keeps the tensors that it receives for its next start; `seeded`: it has them before the "
        "first: [when it is worth it](operations.md#the-tensor-cache-of-workers).",
        default=False,
        form=RPC_CACHE,
    ),
    Key(
        "cards",
        (int, list),
        "The cards that it may use on each of its nodes: how many, or their indices in nvidia-smi or vulkaninfo; `[]`: "
        "none, it computes in main memory. Without it all: [Cards of a service](inventory.md#cards-of-a-service).",
        empty=True,
    ),
    Key(
        "slot_ctx_size",
        int,
        "The context of each request, in tokens, at least 256; llama-server gets this times `parallel`, and with "
        "`kv_unified` once.",
        bounds=(256, None),  # as much as llama.cpp rounds up to
        memory=True,
    ),
    Key(
        "ctx_size",
        int,
        "The context of all slots together, where `slot_ctx_size` is not given; without both, the model's own.",
        flag="--ctx-size",
        memory=True,
        kinds=KINDS,
    ),
    # 256: LLAMA_MAX_SEQ.
    Key(
        "parallel",
        int,
        "Slots: requests that are answered at a time.",
        default=1,
        bounds=(1, 256),
        flag="--parallel",
        memory=True,
        kinds=KINDS,
    ),
    Key(
        "threads",
        int,
        "CPU threads of the head and of each worker. Without it a head has one for each physical core of its node "
        "(only performance cores), or [its share](inventory.md#llama_services) of them, and a worker without a card "
        "half of its logical ones.",
        flag="--threads",
        kinds=KINDS,
    ),
    Key(
        "threads_batch",
        int,
        "CPU threads of the head while it reads a prompt, where they are not `threads`.",
        flag="--threads-batch",
    ),
    Key(
        "batch_size",
        int,
        "Tokens of a prompt that are handed over at a time.",
        own=2048,
        flag="--batch-size",
        memory=True,
    ),
    Key("ubatch_size", int, "Tokens that are computed at a time.", own=512, flag="--ubatch-size", memory=True),
    *CACHE_ROWS,
    Key(
        "flash_attn",
        str,
        "Flash attention, in quotes: YAML reads a bare off as false.",
        own="auto",
        choices=("on", "off", "auto"),
        flag="--flash-attn",
        memory=True,
    ),
    *FAMILY,
    *COMPANIONS,
    Key(
        "numa",
        (str, dict),
        "What the head uses of several NUMA nodes: [NUMA nodes](inventory.md#numa-nodes).",
        form=NUMA,
    ),
    Key(
        "sleep_idle_seconds",
        int,
        "Seconds without a request after which its model leaves the cards, 60 or more; the next request loads it "
        "again. The plan keeps its room. [When it sleeps](inventory.md#services-that-sleep).",
        bounds=(60, None),
        flag="--sleep-idle-seconds",
    ),
    Key("timeout", int, "Seconds after which the server gives up reading or writing.", flag="--timeout"),
    Key(
        "load_mode",
        str,
        "How weights are read; `auto` is the build's own way, or `dio` where the head's card works in main memory. "
        "[Older builds](models-and-builds.md#releases-and-their-command-lines) render the others differently.",
        default="auto",
        choices=("auto",) + tuple(sorted(SPELLED_OUT)),
        flag=LOAD_MODES,
    ),
    Key("mmap", bool, "Whether weights are mapped into memory: `load_mode` `mmap` for true, `none` for false."),
    Key(
        "split_mode",
        str,
        "How several devices share the model: each has some layers, or with `tensor` a part of every layer: "
        "experimental in llama.cpp, and over RPC slow: [measured](tuning.md#a-part-of-every-layer).",
        default="layer",
        choices=("layer", "tensor"),
    ),
    Key(
        "tensor_split",
        (str, dict),
        "`auto` (the [memory plan](plan.md) decides), or a map of node to layers; they sum to the model's blocks, and "
        "the output layer is added to the last device.",
        default="auto",
        form=SPLIT,
    ),
    Key(
        "cpu_moe",
        (str, int),
        "How many layers of a mixture of experts keep their experts in main memory: the first N, `all`, or `auto`, the "
        "fewest with which the rest fits the cards; not with `workers` or `cards: []`. "
        "[What it means](plan.md#experts).",
        form=CPU_MOE,
        memory=True,
    ),
    Key(
        "n_gpu_layers",
        (str, int),
        "How many of the last layers lie on the cards, the output layer among them; the others lie in main memory. "
        "`auto`: all of them; a number not with `workers`, `cards: []`, `cpu_moe` or a map in `tensor_split`. "
        "[What it means](plan.md#layers-in-main-memory).",
        default="auto",
        bounds=(2, None),
        form=GPU_LAYERS,
        memory=True,
    ),
    Key("force_split", bool, "Split the model over all devices although it fits one.", default=False),
    Key(
        "extra_args",
        list,
        "Further words for llama-server, for what no key says: the plan does not count them. A flag that has a key is "
        "refused.",
        form=WORD,
    ),
    Key("memory_max", str, "systemd's MemoryMax of the head.", form=SIZE),
    Key("rpc_memory_max", str, "systemd's MemoryMax of each worker.", form=SIZE),
    Key(
        "launcher",
        str,
        "What starts it: systemd on its nodes, or [SLURM as a job](slurm.md), to which the keys below belong.",
        default="systemd",
        choices=("systemd", "slurm"),
        kinds=KINDS,
    ),
    *SLURM_ROWS,
)
# The keys that each model of a router may have, beside the keys of its family, and the keys of the router.
MODEL_KEYS: tuple[str, ...] = ("ctx_size", "slot_ctx_size", "parallel", "threads", "threads_batch", "batch_size")
MODEL_KEYS += ("ubatch_size", "cache", "cache_type_k", "cache_type_v", "cache_reuse", "cache_ram", "flash_attn")
MODEL_KEYS += ("load_mode", "mmap")
ROUTER_KEYS = MODEL_KEYS + ("state", "head", "cards", "timeout", "memory_max")
DEFAULTS = {key.name: key.default for key in KEYS}
OWN = {key.name: key.own for key in KEYS if key.own is not None}
FAMILY_KEYS = {key.name: key for key in KEYS if key.family}
BY_KIND = {
    "server": {key.name: key for key in KEYS if "server" in key.kinds},
    "router": {key.name: key for key in KEYS if "router" in key.kinds or key.name in ROUTER_KEYS},
}
# Keys of SLURM jobs, without a meaning under systemd.
SLURM_KEYS = tuple(key.name for key in SLURM_ROWS)
# Keys that a service without workers does not use.
WORKER_KEYS = ("rpc_port", "rpc_cache", "rpc_memory_max")


def kind_of(service: Mapping[str, Any]) -> str:
    """server or router."""
    return value(service, "kind")


def is_stopped(service: Mapping[str, Any]) -> bool:
    """Whether a service, or its head or worker, is configured and does not run."""
    return value(service, "state") == "stopped"


def resolved(service: Mapping[str, Any], model: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The entry that plan, command line and checks use: the family settings of the model's entry, replaced by the
    service's, with keys that stand for others written as those."""
    entry = inherited({name: model[name] for name in FAMILY_KEYS if model and model.get(name) is not None}, service)
    if "cache" in entry:
        both = entry.pop("cache")
        entry.update(cache_type_k=both, cache_type_v=both)
    if entry.get("draft") is False:
        del entry["draft"]
    if "mmap" in entry:
        entry["load_mode"] = "mmap" if entry.pop("mmap") else "none"
    return with_projector(model, entry)


def context(service: Mapping[str, Any]) -> int | None:
    """The tokens of --ctx-size: ctx_size, or slot_ctx_size for each of the caches; None where the service gives
    neither."""
    if "slot_ctx_size" in service:
        return service["slot_ctx_size"] * caches(service)
    return service.get("ctx_size")


def caches(service: Mapping[str, Any]) -> int:
    """KV caches: one for each slot, or one for all."""
    return 1 if service.get("kv_unified") else value(service, "parallel")


def slot(service: Mapping[str, Any]) -> int | None:
    """The tokens of a slot; None where the service does not give its context."""
    total = context(service)
    return total // caches(service) if total else None


def value(service: Mapping[str, Any], name: str) -> Any:
    """A setting of a service, or its default."""
    if name == "ctx_size":
        return context(service)
    if name in ("batch_size", "ubatch_size") and name not in service:
        tokens = _whole_texts(service)
        return tokens if tokens and tokens > OWN[name] else None
    return service.get(name, DEFAULTS[name])


def reads_whole_texts(service: Mapping[str, Any]) -> bool:
    """Whether llama-server needs each text in one micro-batch: it pools all tokens of a text, where the last one is not
    enough (server-context.cpp, can_split)."""
    return bool(service.get("embeddings") or service.get("reranking")) and service.get("pooling") != "last"


def _whole_texts(service: Mapping[str, Any]) -> int | None:
    """Tokens of a micro-batch that holds the text of a whole slot; None if the length of a slot is not given."""
    if not reads_whole_texts(service) or "ubatch_size" in service:
        return service.get("ubatch_size") if reads_whole_texts(service) else None
    known = [service.get("batch_size"), slot(service)]
    return min((tokens for tokens in known if tokens), default=None)


def text_tokens(service: Mapping[str, Any], room: int | None) -> int | None:
    """Tokens that a request may have in a slot of this size: where texts are read as a whole no more than a
    micro-batch."""
    if not reads_whole_texts(service):
        return room
    most = min(effective(service, "batch_size"), effective(service, "ubatch_size"))
    return most if room is None else min(room, most)


def effective(service: Mapping[str, Any], name: str) -> Any:
    """A setting of a service, with llama-server's own default."""
    found = value(service, name)
    return OWN[name] if found is None else found


def memory_settings(service: Mapping[str, Any]) -> dict[str, Any]:
    """{name: value} of the settings that a memory plan depends on, without the defaults of llama-server."""
    found = {key.name: value(service, key.name) for key in KEYS if key.memory and key.flag}
    return {name: given for name, given in found.items() if given is not None}
