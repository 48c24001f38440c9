# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a service: one table, of which the intent check, the command line, the plan and docs/settings.md are made. Private to the collection."""

import re
from collections import namedtuple

Key = namedtuple("Key", "name type text default required choices bounds form flag memory kinds")
"""type: of its value, or a tuple of types; float takes whole numbers too. text: one sentence for docs/settings.md. default: what holds without the key, None
for llama-server's own. bounds: (lowest, highest or None) of a number. form: (what a text, or each text of a list, has to match, how that is said, next step).
flag: llama-server's, or ((first build, {value: words}), ...). memory: whether a memory plan depends on it. kinds: the kinds of service that know it."""
Key.__new__.__defaults__ = (None, False, (), (1, None), None, None, False, ("server",))

BOTH = ("server", "router")
KINDS = BOTH
PORT = (1, 65535)
CACHE_TYPES = ("f16", "q8_0", "q4_0")
SIZE = (re.compile(r"^[1-9][0-9]*[KMGT]\Z"), "a size such as 100G", "write digits and one of K, M, G, T")
QUOTA = (re.compile(r"^[1-9][0-9]*[MGT]\Z"), "a size such as 80G", "write digits and one of M, G, T")
SLURM_NAME = (re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z"), "a name of SLURM's", "correct it")
OVERRIDE = (
    re.compile(r"^[A-Za-z0-9_.-]{1,100}=(int:-?[0-9]+|float:-?[0-9.]+|bool:(true|false)|str:[A-Za-z0-9._:/@+-]{1,127})\Z"),
    "KEY=TYPE:VALUE such as qwen3.context_length=int:131072",
    "correct it",
)
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
LOAD_MODES = ((7760, SPELLED_OUT), (10114, {mode: BY_NAME[mode] for mode in ("none", "mmap", "dio")}), (10884, BY_NAME))

# Flags are written in this order.
KEYS = (
    Key(
        "kind",
        str,
        "`server`: one llama-server, with or without `workers`; `router`: llama-server's router mode, not deployed yet.",
        "server",
        False,
        KINDS,
        kinds=BOTH,
    ),
    Key("primary", bool, "The one service that also answers to `llama-rpc` and `llama-head`.", False),
    Key("model", str, "An entry of `llama_models`.", required=True),
    Key("quant", str, "One of the quants of the model.", required=True),
    Key("head", str, "The node that answers: a host, group or pattern that matches exactly one host.", required=True),
    Key("workers", str, "Nodes that hold layers for the head: hosts, a group or a pattern (`a:b`, `a:!b`, `a:&b`); none for a service of one node."),
    Key("host", str, "The nodes of a router: a host, group or pattern.", required=True, kinds=("router",)),
    Key("models", dict, "The models of a router: name to quant.", required=True, kinds=("router",)),
    Key("models_max", int, "How many models a router holds at a time.", kinds=("router",)),
    Key("port", int, "The HTTP port of the endpoint.", required=True, bounds=PORT, kinds=BOTH),
    Key("rpc_port", int, "The port of the workers, needed with `workers`; every service has its own, because a worker serves one head.", bounds=PORT),
    Key(
        "rpc_cache",
        str,
        "How much each worker may keep of the tensors that it receives, so that the next start need not send them again; "
        "[when it is worth it](operations.md#the-tensor-cache-of-workers).",
        form=QUOTA,
    ),  # fmt: skip
    Key("slot_ctx_size", int, "The context of each request, in tokens; llama-server gets this times `parallel`.", memory=True),
    Key(
        "ctx_size",
        int,
        "The context of all slots together, where `slot_ctx_size` is not given; without both, the model's own.",
        flag="--ctx-size",
        memory=True,
        kinds=BOTH,
    ),  # fmt: skip
    Key("parallel", int, "Slots: requests that are answered at a time.", 1, flag="--parallel", memory=True, kinds=BOTH),
    Key("threads", int, "CPU threads of the head and of each worker.", flag="--threads", kinds=BOTH),
    Key("batch_size", int, "Tokens of a prompt that are handed over at a time (llama-server's default: 2048).", flag="--batch-size", memory=True),
    Key("ubatch_size", int, "Tokens that are computed at a time (llama-server's default: 512).", flag="--ubatch-size", memory=True),
    Key(
        "cache_type_k",
        str,
        "The type of the KV cache's keys, the same as `cache_type_v` (llama-server's default: f16).",
        choices=CACHE_TYPES,
        flag="--cache-type-k",
        memory=True,
    ),  # fmt: skip
    Key("cache_type_v", str, "The type of the KV cache's values (llama-server's default: f16).", choices=CACHE_TYPES, flag="--cache-type-v", memory=True),
    Key(
        "flash_attn",
        str,
        'Flash attention, in quotes: YAML reads a bare off as false (llama-server\'s default: "auto").',
        choices=("on", "off", "auto"),
        flag="--flash-attn",
        memory=True,
    ),  # fmt: skip
    Key("rope_scaling", str, "How positions beyond the model's own context are scaled.", choices=("none", "linear", "yarn"), flag="--rope-scaling"),
    Key("rope_scale", float, "The factor by which the context grows.", flag="--rope-scale"),
    Key("rope_freq_base", float, "The base frequency of RoPE.", flag="--rope-freq-base"),
    Key("yarn_orig_ctx", int, "The context that the model was made for, with `rope_scaling: yarn`.", flag="--yarn-orig-ctx"),
    Key(
        "override_kv",
        list,
        "Keys of the model's header to read otherwise, each `KEY=TYPE:VALUE` with type int, float, bool or str.",
        form=OVERRIDE,
        flag="--override-kv",
    ),  # fmt: skip
    Key("numa", str, "llama.cpp's way with several NUMA nodes.", choices=("distribute", "isolate", "numactl"), flag="--numa"),
    Key("timeout", int, "Seconds after which the server gives up reading or writing.", flag="--timeout"),
    Key(
        "load_mode",
        str,
        "How weights are read; `auto` is the build's own way, [build.md](build.md) says what older builds make of the others.",
        "auto",
        choices=("auto",) + tuple(sorted(SPELLED_OUT)),
        flag=LOAD_MODES,
    ),  # fmt: skip
    Key(
        "tensor_split",
        (str, dict),
        "`auto` (the [memory plan](plan.md) decides), or a map of node to layers; they sum to the model's blocks, and the output "
        "layer is added to the last device.",
        "auto",
        form=SPLIT,
    ),  # fmt: skip
    Key("force_split", bool, "Split the model over the workers although it fits one device.", False),
    Key("memory_max", str, "systemd's MemoryMax of the head.", form=SIZE),
    Key("rpc_memory_max", str, "systemd's MemoryMax of each worker.", form=SIZE),
    Key("launcher", str, "What starts it; `slurm` is not deployed yet.", "systemd", choices=("systemd", "slurm"), kinds=BOTH),
    Key("nodes", int, "Nodes to ask SLURM for, with `launcher: slurm`.", kinds=BOTH),
    Key("partition", str, "SLURM's partition, with `launcher: slurm`.", form=SLURM_NAME, kinds=BOTH),
    Key("qos", str, "SLURM's QoS, with `launcher: slurm`.", form=SLURM_NAME, kinds=BOTH),
)
BY_KIND = {kind: {key.name: key for key in KEYS if kind in key.kinds} for kind in KINDS}
# What a job asks SLURM for, and so means nothing under systemd.
SLURM_KEYS = ("nodes", "partition", "qos")


def kind_of(service):
    """server or router."""
    return service.get("kind", "server")


def context(service):
    """The tokens of --ctx-size: ctx_size, or slot_ctx_size for each of the slots; None where the service gives neither."""
    if "slot_ctx_size" in service:
        return service["slot_ctx_size"] * value(service, "parallel")
    return service.get("ctx_size")


def value(service, name):
    """A setting of a service, or what holds without it."""
    if name == "ctx_size":
        return context(service)
    return service.get(name, BY_KIND["server"][name].default)


def memory_settings(service):
    """{name: value} of what a memory plan depends on, without what is left to llama-server."""
    found = {key.name: value(service, key.name) for key in KEYS if key.memory and key.flag}
    return {name: given for name, given in found.items() if given is not None}


def known_values(name, build):
    """The values that a build (a number) has a flag for, of a setting whose flags depend on the build; its default needs none."""
    key = BY_KIND["server"][name]
    return [key.default] + sorted(_of_build(key, build))


def arguments(service, build):
    """llama-server's words for all settings of a service, for a build (a number)."""
    args = []
    for key in KEYS:
        given = value(service, key.name) if key.flag else None
        if given is None:
            continue
        if isinstance(key.flag, tuple):
            args += _of_build(key, build).get(given, [])
        else:
            args += [key.flag, ",".join(given) if isinstance(given, list) else str(given)]
    return args


def _of_build(key, build):
    return [words for first, words in key.flag if first <= build][-1]
