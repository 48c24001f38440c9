# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a service: one table, of which the intent check, the command line, the plan and docs/settings.md are
made. Private to the collection."""

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Pattern, Tuple, Union

# Of each value, the words for it, from a build on.
Words = Tuple[Tuple[int, Dict[str, List[str]]], ...]


class Key(NamedTuple):
    """A key of a service."""

    name: str
    type: Any  # of its value, or a tuple of types; float takes whole numbers too
    text: str  # a sentence for docs/settings.md; what stands before its colon says what a required key needs
    default: Any = None  # what holds without the key, None for llama-server's own
    own: Any = None  # that one, where something is computed from it
    required: bool = False
    choices: Tuple[str, ...] = ()
    # Lowest and highest of a number, None for the largest of llama-server's.
    bounds: Tuple[float, Optional[float]] = (1, None)
    # What a text, or each text of a list, has to match, how that is said, and the next step.
    form: Optional[Tuple[Pattern[str], str, str]] = None
    flag: Union[None, str, Words] = None  # llama-server's
    memory: bool = False  # whether a memory plan depends on it
    kinds: Tuple[str, ...] = ("server",)  # the kinds of service that know it


KINDS = ("server", "router")
LARGEST = 2**31 - 1
PORT = (1, 65535)
# Those that work over RPC, largest first.
CACHE_TYPES = ("f16", "q8_0", "q4_0")
SIZE = (re.compile(r"^[1-9][0-9]*[KMGT]\Z"), "a size such as 100G", "write digits and one of K, M, G, T")
QUOTA = (re.compile(r"^[1-9][0-9]*[MGT]\Z"), "a size such as 80G", "write digits and one of M, G, T")
SLURM_NAME = (re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z"), "a name of SLURM's", "correct it")
OVERRIDE = (
    re.compile(
        r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}=(int:-?[0-9]{1,18}|float:-?[0-9]+(\.[0-9]+)?|bool:(true|false)|str:[A-Za-z0-9._:/@+-]{1,127})\Z"
    ),
    "KEY=TYPE:VALUE such as qwen3.context_length=int:131072",
    "correct it",
)
CPU_MOE = (re.compile(r"^(auto|all)\Z"), "auto, all or a number of layers", "write auto, all, or digits without quotes")
SPLIT = (re.compile(r"^auto\Z"), "auto or a map of node to layers", "write auto, or NODE: LAYERS for each node")

SPELLED_OUT = {
    "none": ["--no-mmap", "--no-direct-io"],
    "mmap": ["--mmap", "--no-direct-io"],
    "mlock": ["--no-mmap", "--no-direct-io", "--mlock"],
    "mmap+mlock": ["--mmap", "--no-direct-io", "--mlock"],
    "dio": ["--direct-io"],
}
BY_NAME = {mode: ["--load-mode", mode] for mode in SPELLED_OUT}
# 10114: --load-mode (#20834), in which mlock first meant mmap too. 10884: no flag of before works any more.
LOAD_MODES: Words = (
    (7760, SPELLED_OUT),
    (10114, {mode: BY_NAME[mode] for mode in ("none", "mmap", "dio")}),
    (10884, BY_NAME),
)

# Flags are written in this order.
KEYS = (
    Key(
        "kind",
        str,
        "`server`: one llama-server, with or without `workers`; `router`: llama-server's router mode, not deployed "
        "yet.",
        default="server",
        choices=KINDS,
        kinds=KINDS,
    ),
    Key("primary", bool, "The one service that also answers to `llama-rpc` and `llama-head`.", default=False),
    Key("model", str, "An entry of `llama_models`.", required=True),
    Key("quant", str, "One of the quants of the model.", required=True),
    Key("head", str, "The node that answers: a host, group or pattern that matches exactly one host.", required=True),
    Key(
        "workers",
        str,
        "Nodes that hold layers for the head: hosts, a group or a pattern (`a:b`, `a:!b`, `a:&b`); none for a service "
        "of one node.",
    ),
    Key("host", str, "The nodes of a router: a host, group or pattern.", required=True, kinds=("router",)),
    Key("models", dict, "The models of a router: name to quant.", required=True, kinds=("router",)),
    Key("models_max", int, "How many models a router holds at a time.", default=1, kinds=("router",)),
    Key("port", int, "The HTTP port of the endpoint.", required=True, bounds=PORT, kinds=KINDS),
    Key(
        "rpc_port",
        int,
        "The port of the workers, needed with `workers`; every service has its own, because a worker serves one head.",
        bounds=PORT,
    ),
    Key(
        "rpc_cache",
        str,
        "How much each worker may keep of the tensors that it receives, so that the next start need not send them "
        "again; [when it is worth it](operations.md#the-tensor-cache-of-workers).",
        form=QUOTA,
    ),
    Key(
        "slot_ctx_size",
        int,
        "The context of each request, in tokens; llama-server gets this times `parallel`.",
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
    Key("threads", int, "CPU threads of the head and of each worker.", flag="--threads", kinds=KINDS),
    Key(
        "batch_size",
        int,
        "Tokens of a prompt that are handed over at a time.",
        own=2048,
        flag="--batch-size",
        memory=True,
    ),
    Key("ubatch_size", int, "Tokens that are computed at a time.", own=512, flag="--ubatch-size", memory=True),
    Key(
        "cache_type_k",
        str,
        "The type of the KV cache's keys, the same as `cache_type_v`.",
        own="f16",
        choices=CACHE_TYPES,
        flag="--cache-type-k",
        memory=True,
    ),
    Key(
        "cache_type_v",
        str,
        "The type of the KV cache's values.",
        own="f16",
        choices=CACHE_TYPES,
        flag="--cache-type-v",
        memory=True,
    ),
    Key(
        "flash_attn",
        str,
        "Flash attention, in quotes: YAML reads a bare off as false.",
        own="auto",
        choices=("on", "off", "auto"),
        flag="--flash-attn",
        memory=True,
    ),
    Key(
        "rope_scaling",
        str,
        "How positions beyond the model's own context are scaled.",
        choices=("none", "linear", "yarn"),
        flag="--rope-scaling",
    ),
    Key("rope_scale", float, "The factor by which the context grows.", bounds=(1, 10**4), flag="--rope-scale"),
    Key("rope_freq_base", float, "The base frequency of RoPE.", bounds=(1, 10**12), flag="--rope-freq-base"),
    Key(
        "yarn_orig_ctx",
        int,
        "The context that the model was made for, with `rope_scaling: yarn`.",
        flag="--yarn-orig-ctx",
    ),
    Key(
        "override_kv",
        list,
        "Keys of the model's header to read otherwise, each `KEY=TYPE:VALUE` with type int, float, bool or str.",
        form=OVERRIDE,
        flag="--override-kv",
    ),
    Key(
        "numa",
        str,
        "llama.cpp's way with several NUMA nodes.",
        choices=("distribute", "isolate", "numactl"),
        flag="--numa",
    ),
    Key("timeout", int, "Seconds after which the server gives up reading or writing.", flag="--timeout"),
    Key(
        "load_mode",
        str,
        "How weights are read; `auto` is the build's own way, [build.md](build.md) says what older builds make of the "
        "others.",
        default="auto",
        choices=("auto",) + tuple(sorted(SPELLED_OUT)),
        flag=LOAD_MODES,
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
        "fewest with which the rest fits the cards; not with `workers`. [What it means](plan.md#experts).",
        form=CPU_MOE,
        memory=True,
    ),
    Key("force_split", bool, "Split the model over all devices although it fits one.", default=False),
    Key("memory_max", str, "systemd's MemoryMax of the head.", form=SIZE),
    Key("rpc_memory_max", str, "systemd's MemoryMax of each worker.", form=SIZE),
    Key(
        "launcher",
        str,
        "What starts it; `slurm` is not deployed yet.",
        default="systemd",
        choices=("systemd", "slurm"),
        kinds=KINDS,
    ),
    Key("nodes", int, "Nodes to ask SLURM for, with `launcher: slurm`.", kinds=KINDS),
    Key("partition", str, "SLURM's partition, with `launcher: slurm`.", form=SLURM_NAME, kinds=KINDS),
    Key("qos", str, "SLURM's QoS, with `launcher: slurm`.", form=SLURM_NAME, kinds=KINDS),
)
DEFAULTS = {key.name: key.default for key in KEYS}
OWN = {key.name: key.own for key in KEYS if key.own is not None}
BY_KIND = {kind: {key.name: key for key in KEYS if kind in key.kinds} for kind in KINDS}
# What a job asks SLURM for, and so means nothing under systemd.
SLURM_KEYS = ("nodes", "partition", "qos")
# What a service without workers has no use for.
WORKER_KEYS = ("rpc_port", "rpc_cache", "rpc_memory_max")


def kind_of(service: Mapping[str, Any]) -> str:
    """server or router."""
    return value(service, "kind")


def context(service: Mapping[str, Any]) -> Optional[int]:
    """The tokens of --ctx-size: ctx_size, or slot_ctx_size for each of the slots; None where the service gives
    neither."""
    if "slot_ctx_size" in service:
        return service["slot_ctx_size"] * value(service, "parallel")
    return service.get("ctx_size")


def value(service: Mapping[str, Any], name: str) -> Any:
    """A setting of a service, or what holds without it."""
    if name == "ctx_size":
        return context(service)
    return service.get(name, DEFAULTS[name])


def effective(service: Mapping[str, Any], name: str) -> Any:
    """A setting of a service, with llama-server's own default."""
    found = value(service, name)
    return OWN[name] if found is None else found


def memory_settings(service: Mapping[str, Any]) -> Dict[str, Any]:
    """{name: value} of what a memory plan depends on, without what is left to llama-server."""
    found = {key.name: value(service, key.name) for key in KEYS if key.memory and key.flag}
    return {name: given for name, given in found.items() if given is not None}


def known_values(name: str, build: int) -> List[str]:
    """The values that a build (a number) has a flag for, of a setting whose flags depend on the build; its default
    needs none."""
    key = BY_KIND["server"][name]
    return [key.default] + sorted(_of_build(key.flag, build) if isinstance(key.flag, tuple) else ())


def arguments(service: Mapping[str, Any], build: int) -> List[str]:
    """llama-server's words for all settings of a service, for a build (a number)."""
    args: List[str] = []
    for key in KEYS:
        given = value(service, key.name)
        if key.flag is None or given is None:
            continue
        if isinstance(key.flag, tuple):
            args += _of_build(key.flag, build).get(given, [])
        else:
            args += [key.flag, ",".join(given) if isinstance(given, list) else str(given)]
    return args


def _of_build(flag: Words, build: int) -> Dict[str, List[str]]:
    return [words for first, words in flag if first <= build][-1]
