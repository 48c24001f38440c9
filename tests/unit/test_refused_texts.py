# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals of inventories, plans and headers that no test of their own room meets: the entry and the value seen."""

import copy
import struct

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import gguf as model_gguf
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import shape as model_shape
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices as plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan import estimate, plan
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import check
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files as make
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture

CHAT = {"model": "m", "quant": "Q8_0", "head": "node1", "workers": "llama_rpc", "port": 8000, "rpc_port": 50052}


FAST = {"kind": "router", "head": "node2", "models": {"m": "Q8_0"}, "port": 8080}


INVENTORY = {
    "services": {"chat": CHAT},
    "models": {"m": {"repo": "some/m-GGUF", "quants": {"Q8_0": {"files": ["m.Q8_0.gguf"]}}}},
    "groups": {
        "all": ["node1", "node2", "other"],
        "llama_nodes": ["node1", "node2"],
        "llama_rpc": ["node2"],
    },
    "hostvars": {
        "node1": {"llama_fabric_address": "10.1.0.1"},
        "node2": {"llama_fabric_address": "10.1.0.2"},
        "other": {},
    },
}


def intent(**parts):
    return lambda: check.intent_errors(**dict(copy.deepcopy(INVENTORY), **parts))


def chat(**keys):
    service = {name: value for name, value in dict(CHAT, **keys).items() if value is not None}
    return intent(services={"chat": service})


LONE = {"model": "m", "quant": "Q8_0", "head": "node1", "port": 8001}


def gateway(services=None, **facts):
    known = dict(INVENTORY["hostvars"], gw=dict({"ansible_host": "10.0.0.9"}, **facts))
    return intent(
        services=services or {"chat": LONE},
        models=dict.fromkeys(("m", "other"), INVENTORY["models"]["m"]),
        groups=dict(INVENTORY["groups"], all=[*INVENTORY["groups"]["all"], "gw"], llama_gateway=["gw"]),
        hostvars=known,
    )


DRAFT = {"model": "m", "quant": "Q8_0"}


def single_with(**keys):
    return chat(workers=None, rpc_port=None, **keys)


def of_build(build, **keys):
    service = {name: value for name, value in dict(CHAT, **keys).items() if value is not None}
    return intent(services={"chat": service}, hostvars=built(default={"version": build}))


def built(**builds):
    """The variables of nodes that have these builds."""
    return {name: dict(facts, llama_builds=builds) for name, facts in INVENTORY["hostvars"].items()}


def variables(**facts):
    return intent(hostvars=dict(INVENTORY["hostvars"], node1=facts))


def wanted(**levels):
    return variables(**INVENTORY["hostvars"]["node1"], llama_targets={"chat": {"tokens_per_second": levels}})


def card(node, count=1, memory=32510):
    return {
        "devices": plan_devices.as_dicts(plan_devices.of_inventory(node, [{"memory_mib": memory}] * count, 1024)),
        "cores": 40,
    }


FACTS = {
    "architecture": "qwen3",
    "block_count": 80,
    "context_length": 40960,
    "embedding_length": 8192,
    "feed_forward_length": 29568,
    "head_count": 64,
    "head_count_kv": 8,
    "key_length": 128,
    "vocab_size": 151936,
}


PLANNED = {
    "big": {
        "header": FACTS,
        "quants": {"Q4_K_M": {"size": 40 * 10**9}, "Q8_0": {"size": 77 * 10**9}, "Q1_0": {"size": 9 * 10**9}, "X": {}},
    }
}


def heads_of(other, **keys):
    whole = estimate.estimate(FACTS, 40 * 10**9)._replace(**other)
    header = {"item": {"model": "big", "quant": "Q4_K_M"}, "shape": whole.as_dict()}
    service = dict(CHAT, model="big", quant="Q4_K_M", ctx_size=4096, parallel=1, **keys)
    del service["workers"]
    nodes = {"node1": card("node1", memory=80000)}
    return lambda: plan.memory_plan({"chat": service}, PLANNED, INVENTORY["groups"], nodes, [header])["refused"]


def routed(memory=32510, build="b11434", models_max=None, **models):
    router = dict(FAST, models=models, ctx_size=4096, **{"models_max": models_max} if models_max else {})
    known, nodes = dict(PLANNED, other=PLANNED["big"]), {"node2": card("node2", memory=memory)}
    builds = {"default": {"version": build}}
    return lambda: plan.memory_plan({"fast": router}, known, INVENTORY["groups"], nodes, builds=builds)["refused"]


def fast(names=("m",), **keys):
    models = {name: dict(INVENTORY["models"]["m"], aliases=["little"]) for name in names}
    return intent(services={"fast": dict(FAST, **keys)}, models=models)


def raised(function, *arguments):
    """The text that a call refuses with."""

    def produce():
        with pytest.raises(Refusal) as problem:
            function(*arguments)
        return [str(problem.value)]

    return produce


def key(name, kind, value):
    return make.text(name) + struct.pack("<I", kind) + value


def number(name, value):
    return key(name, make.U32, struct.pack("<I", value))


def array(name, kind, length):
    return key(name, make.ARRAY, struct.pack("<IQ", kind, length))


def tensor(name, dims=(32,), kind=0, offset=0):
    return make.text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, offset)


def gguf(keys=(), tensors=(), version=3, announced=None):
    """A file that starts with this header."""
    counts = announced or (len(tensors), len(keys))
    return b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)


def parse(data, limit=model_gguf.MAX_HEADER):
    return model_gguf.read_header(lambda offset, length: data[offset : offset + length], "m.gguf", limit)


REFUSALS = [
    (
        "llama_models_dir:",
        "/home/ops/models, which units cannot see, seen for node1",
        variables(llama_models_dir="/home/ops/models"),
    ),
    (
        "head_server_environment.LD_LIBRARY_PATH:",
        "/home/ops/lib, which units cannot see, seen for node1",
        variables(head_server_environment={"LD_LIBRARY_PATH": "/opt/lib:/home/ops/lib"}),
    ),
    (
        "llama_builds.default.cuda_home:",
        "/root/cuda seen, which units cannot see",
        variables(llama_builds={"default": {"version": "b11434", "cuda_home": "/root/cuda"}}),
    ),
    ("llama_services.chat:", "'node1' seen", intent(services={"chat": "node1"})),
    (
        "llama_services.code.models:",
        "m seen as a name of fast too",
        gateway({"fast": FAST, "code": dict(FAST, port=8002)}),
    ),
    (
        "llama_targets.caht:",
        "no service of that name",
        variables(**INVENTORY["hostvars"]["node1"], llama_targets={"caht": {}}),
    ),
    ("llama_targets.chat.tokens_per_second:", "a map of 3 seen", wanted(target=8, acceptable=10, critical=15)),
    ("llama_targets.chat.tokens_per_second:", "a map of 2 seen", wanted(target=15, acceptable=10)),
    ("gateway_tls.key:", "the file of the certificate seen", gateway(gateway_tls={"certificate": "/c", "key": "/c"})),
    ("gateway_address:", "'https://llm.example.org' seen", gateway(gateway_address="https://llm.example.org")),
    ("llama_services.chat.preflight_margin_mib:", "seen in a service", chat(preflight_margin_mib=1)),
    ("llama_services.chat.aliases:", "unknown key", chat(aliases=["x"])),
    ("llama_services.chat.model:", "big is of architecture bert", heads_of({"architecture": "bert"})),
    ("llama_address:", "'a b' seen for gw", gateway(llama_address="a b")),
    ("llama_services.chat.numa:", "a map of 1 seen", chat(numa={"node": "0"})),
    ("llama_services.chat.cpu_moe:", "seen with workers", chat(cpu_moe="auto")),
    ("llama_services.chat.cpu_moe:", "seen with cards []", chat(cpu_moe="auto", cards=[], workers=None, rpc_port=None)),
    ("llama_services.chat.n_gpu_layers:", "20 seen with workers", chat(n_gpu_layers=20)),
    (
        "llama_services.chat.n_gpu_layers:",
        "20 seen with cards []",
        chat(n_gpu_layers=20, cards=[], workers=None, rpc_port=None),
    ),
    (
        "llama_services.chat.n_gpu_layers:",
        "20 seen with cpu_moe",
        chat(n_gpu_layers=20, cpu_moe="all", workers=None, rpc_port=None),
    ),
    (
        "llama_services.chat.n_gpu_layers:",
        "20 seen with layers per node in tensor_split",
        chat(n_gpu_layers=20, tensor_split={"node1": 32}, workers=None, rpc_port=None),
    ),
    ("llama_services.chat.draft:", "true seen", single_with(draft=True)),
    ("llama_services.chat.draft.min:", "9 seen", single_with(draft=dict(DRAFT, max=8, min=9))),
    (
        "llama_services.chat.sleep_idle_seconds:",
        "seen with build b9000",
        of_build("b9000", sleep_idle_seconds=600),
    ),
    (
        "llama_services.chat.draft.type:",
        "ngram-mod seen with build b9000",
        of_build("b9000", draft={"type": "ngram-mod"}),
    ),
    ("llama_services.chat.draft:", "seen with workers", chat(draft=DRAFT)),
    ("llama_services.chat.reranking:", "seen with embeddings", single_with(reranking=True, embeddings=True)),
    ("llama_services.chat.draft:", "seen with reranking", single_with(draft=DRAFT, reranking=True)),
    (
        "llama_services.chat.draft:",
        "seen with build b9000",
        of_build("b9000", draft=DRAFT, workers=None, rpc_port=None),
    ),
    (
        "llama_services.chat.draft:",
        "moe with a vocabulary of 151936 tokens seen",
        lambda: mixture.other_words()["refused"],
    ),
    ("llama_services.fast.models_max:", "5 seen", fast(models_max=5)),
    ("llama_services.fast.models_max:", "nothing seen without a plan of its models (big X: ", routed(big="X")),
    ("llama_services.chat.cpu_moe:", "all seen", lambda: mixture.planned(model="big", cpu_moe="all")["refused"]),
    (
        "llama_services.chat.n_gpu_layers:",
        "20 seen",
        lambda: mixture.planned(model="big", n_gpu_layers=20, cards=())["refused"],
    ),
    ("llama_services.chat.n_gpu_layers:", "66 seen", lambda: mixture.planned(model="big", n_gpu_layers=66)["refused"]),
    (
        "llama_services.chat.n_gpu_layers:",
        "20 seen",
        lambda: mixture.planned(memory_mib=None, model="big", n_gpu_layers=20)["refused"],
    ),
    ("llama_services.chat.cpu_moe:", "95 seen", lambda: mixture.planned(cpu_moe=95)["refused"]),
    (
        "llama_services.chat.cache_type_v:",
        "f16 seen with cache_type_k q8_0",
        heads_of({"mla": model_shape.Mla(512, 64, 192)}, cache_type_k="q8_0"),
    ),
    ("m.gguf:", "larger than 64 bytes", raised(parse, gguf([number(b"general.file_type", 1), number(b"n", 1)]), 64)),
    ("m.gguf:", "array n has elements of type 99", raised(parse, gguf([array(b"n", 99, 1)]))),
    ("m.gguf:", "tensor t has type 70000", raised(parse, gguf(tensors=[tensor(b"t", kind=70000)]))),
    ("header:", "general.architecture is missing", raised(model_shape.read_shape, parse(gguf()))),
]


@pytest.mark.parametrize("entry,seen,produce", REFUSALS, ids=[" ".join(row[:2]) for row in REFUSALS])
def test_mistake_is_refused(entry, seen, produce):
    assert len([one for one in produce() if one.startswith(entry) and seen in one]) == 1
