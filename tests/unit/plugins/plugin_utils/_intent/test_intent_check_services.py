# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes in an entry of llama_services."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import check, services
from ansible_collections.thefermisea.llama_cluster.tests.unit.intents import (
    GROUPS,
    HOSTVARS,
    MODELS,
    SERVICES,
    changed,
    mistakes,
)

ALONE = {"workers": None, "rpc_port": None}
REPLICAS = {"head": "llama_rpc", **ALONE}


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({}, None),
        ({"prot": 1}, "llama_services.reasoning.prot: unknown key, did you mean port?"),
        ({"zzz": 1}, "llama_services.reasoning.zzz: unknown key; known keys: account, batch_size, "),
        (
            {"kind": "scattered"},
            "llama_services.reasoning.kind: 'scattered' seen, server or router is needed: drop the key",
        ),
        ({"quant": None}, "llama_services.reasoning.quant: missing, one of the quants of the model is needed: add it"),
        ({"port": "8000"}, "llama_services.reasoning.port: '8000' seen, a whole number is needed"),
        ({"port": 70000}, "llama_services.reasoning.port: 70000 seen, 1 to 65535 is needed"),
        ({"parallel": 0}, "llama_services.reasoning.parallel: 0 seen, 1 to 256 is needed"),
        ({"parallel": True}, "llama_services.reasoning.parallel: True seen, a whole number is needed"),
        ({"launcher": "cron"}, "llama_services.reasoning.launcher: 'cron' seen, one of systemd, slurm is needed"),
        ({"model": "bigg"}, "llama_services.reasoning.model: bigg is not in llama_models, did you mean big?"),
        ({"quant": "Q2_K"}, "llama_services.reasoning.quant: big has no Q2_K, one of Q4_K_M, Q8_0 is needed"),
        (
            {"head": "node9"},
            "llama_services.reasoning.head: node9 is neither a host nor a group of this inventory, did you mean node",
        ),
        (
            {"head": "llama_rpc", "workers": "node1"},
            "llama_services.reasoning.head: llama_rpc matches node2, node3, exactly one host is needed beside workers: "
            "name one of them, or drop workers for a replica on each",
        ),
        (
            {"head": ["node2", "node3"]},
            "llama_services.reasoning.head: a list of 2 seen, a host, a group or a pattern is needed: write several "
            "hosts as node2,node3",
        ),
        (
            {"head": "ctl"},
            "llama_services.reasoning.head: ctl is not in group llama_nodes, every head and worker is needed there",
        ),
        (
            {"workers": "llama_nodes"},
            "llama_services.reasoning.workers: node1 is its head too, a head uses its own card without RPC: take it "
            "out of the group, or exclude it as in ",
        ),
        (
            {"workers": "llama_rpc:!node2:!node3"},
            "llama_services.reasoning.workers: llama_rpc:!node2:!node3 matches no host, at least one is needed",
        ),
        ({"rpc_port": None}, "llama_services.reasoning.rpc_port: missing, a port for its RPC workers is needed"),
        ({"rpc_port": 8000, "workers": "node2", "tensor_split": "auto", "head": "node1"}, None),
        (
            {"tensor_split": {"node1": 26, "node2": 27}},
            "llama_services.reasoning.tensor_split: worker node3 is missing, its number of layers is needed",
        ),
        (
            {"tensor_split": {"node4": 1, "node2": 1, "node3": 1}},
            "llama_services.reasoning.tensor_split: node4 is no node of this service, one of node2, node3, node1 is "
            "needed, did you mean node",
        ),
        (
            {"tensor_split": {"node2": 1.5, "node3": 1}},
            "llama_services.reasoning.tensor_split.node2: 1.5 seen, a whole number of layers is needed",
        ),
        (
            {"tensor_split": {"node1": -1, "node2": 1, "node3": 1}},
            "llama_services.reasoning.tensor_split.node1: -1 seen, a whole number of layers is needed",
        ),
        ({"tensor_split": {"node1": 0, "node2": 40, "node3": 40}}, None),
        ({"slot_ctx_size": 2**31 - 1, "ctx_size": None, "parallel": 1}, None),
        ({"slot_ctx_size": 2**24, "ctx_size": None, "parallel": 127}, None),
        (
            {"slot_ctx_size": 2**24, "ctx_size": None, "parallel": 128},
            "llama_services.reasoning.slot_ctx_size: 2147483648 tokens in all slots seen, at most 2147483647 are ",
        ),
        ({"slot_ctx_size": 4096, "ctx_size": 8192, "parallel": 2}, None),
        (
            {"slot_ctx_size": 4096, "ctx_size": 4096, "parallel": 2},
            "llama_services.reasoning.ctx_size: 4096 seen with slot_ctx_size 4096 for each of 2 slots, 8192 is needed",
        ),
        (
            {"tensor_split": {"node1": 0, "node2": 0, "node3": 0}},
            "llama_services.reasoning.tensor_split: 0 layers in all seen, the layers of big are needed",
        ),
        (
            {"cache_type_k": "q8_0"},
            "llama_services.reasoning.cache_type_v: f16 seen with cache_type_k q8_0, the same type for both is needed",
        ),
        (
            {"cache_type_k": "q4_0", "cache_type_v": "q4_0", "flash_attn": "off"},
            "llama_services.reasoning.flash_attn: off seen with cache_type_v q4_0, on or auto is needed",
        ),
        ({"rpc_cache": True}, None),
        (
            {"partition": "gpu"},
            "llama_services.reasoning.partition: seen with launcher systemd, launcher slurm is needed",
        ),
        ({"yarn_orig_ctx": 32768, "rope_scaling": "yarn"}, None),
        ({"yarn_orig_ctx": 32768, "rope_scaling": "linear"}, "llama_services.reasoning.yarn_orig_ctx: seen without"),
        ({"yarn_orig_ctx": 32768}, "llama_services.reasoning.yarn_orig_ctx: seen without rope_scaling yarn"),
        (
            {"tensor_split": {"node1": True, "node2": 1, "node3": 1}},
            "llama_services.reasoning.tensor_split.node1: True seen, a whole number of layers is needed",
        ),
        (
            {"tensor_split": {"node1": "1", "node2": 1, "node3": 1}},
            "llama_services.reasoning.tensor_split.node1: '1' seen, a whole number of layers is needed",
        ),
        ({"flash_attn": "off"}, None),
        *(({"cache_type_k": "q8_0", "cache_type_v": "q8_0", "flash_attn": given}, None) for given in ("on", "auto")),
        ({"cache_type_k": "f16", "cache_type_v": "f16", "flash_attn": "off"}, None),
        ({"cache_type_v": "q8_0"}, "llama_services.reasoning.cache_type_v: q8_0 seen with cache_type_k f16"),
        ({**ALONE, "tensor_split": "auto"}, None),
        ({**REPLICAS, "tensor_split": "auto"}, None),
        (
            REPLICAS,
            "llama_services.reasoning.tensor_split: a map seen with replicas on node2, node3, auto is needed, since "
            "each holds all layers: drop the key",
        ),
        (
            {**ALONE, "tensor_split": None, "draft": {"model": "big", "quant": "Q4_K_M", "max": "8"}},
            "llama_services.reasoning.draft.max: '8' seen, 1 to 64 tokens are allowed: remove the quotes",
        ),
        ({"slot_ctx_size": 2**24, "ctx_size": None, "parallel": 128, "kv_unified": True}, None),
        ({"sleep_idle_seconds": 600}, None),
        ({"sleep_idle_seconds": 5}, "llama_services.reasoning.sleep_idle_seconds: 5 seen, at least 60 is needed"),
        ({"split_mode": "tensor", "tensor_split": "auto"}, None),
        (
            {"split_mode": "tensor"},
            "llama_services.reasoning.tensor_split: layers per node seen with split_mode tensor, auto is needed",
        ),
        (
            {"split_mode": "tensor", "tensor_split": "auto", "flash_attn": "off"},
            "llama_services.reasoning.flash_attn: off seen with split_mode tensor, on or auto is needed",
        ),
        (
            {"split_mode": "tensor", "tensor_split": "auto", "rpc_cache": "seeded"},
            "llama_services.reasoning.rpc_cache: seeded seen with split_mode tensor, true or false is needed",
        ),
        (
            {**ALONE, "split_mode": "tensor", "tensor_split": "auto", "n_gpu_layers": 20},
            "llama_services.reasoning.n_gpu_layers: 20 seen with split_mode tensor, auto is needed",
        ),
        ({"draft": {"type": "ngram-mod"}}, None),
        ({"draft": {"type": "ngram-map-k", "match": 8, "max": 16, "hits": 2}, "parallel": 8}, None),
        (
            {"draft": {"type": "ngram-mode"}},
            "llama_services.reasoning.draft.type: 'ngram-mode' seen, one of ngram-simple, ngram-map-k, ngram-map-k4v, ",
        ),
        (
            {"draft": {"type": "draft-mtp"}},
            "llama_services.reasoning.draft.type: draft-mtp seen, one of ngram-simple, ngram-map-k, ngram-map-k4v, "
            "ngram-mod, ngram-cache is needed, since it was not tried and wants a model whose header has nextn",
        ),
        (
            {"draft": {"type": "ngram-mod", "hits": 2}},
            "llama_services.reasoning.draft.hits: seen with type ngram-mod, type, match, max, min can be given with it",
        ),
        (
            {"draft": {"type": "ngram-cache", "model": "big"}},
            "llama_services.reasoning.draft.model: seen with type ngram-cache, type can be given with it: drop the key",
        ),
        (
            {"draft": {"type": "ngram-map-k", "hits": 0}},
            "llama_services.reasoning.draft.hits: 0 seen, 1 to 1024 are allowed: choose another number",
        ),
        (
            {"draft": {"type": "ngram-mod", "max": 1024}, "parallel": 2},
            "llama_services.reasoning.batch_size: 2048 seen with 1024 drafted tokens and one more in each of 2 slots, "
            "at least 2050 is needed",
        ),
    ],
)
def test_each_mistake_is_one_sentence(settings, sentence):
    found = mistakes(changed(**settings))
    if sentence is None:
        assert found == []
    else:
        assert len(found) == 1
        assert found[0].startswith(sentence)
        assert "\n" not in found[0]


ROUTER = {"kind": "router", "head": "node3", "models": {"big": "Q4_K_M"}, "models_max": 1, "port": 8080}


def fast(**changes):
    return mistakes(dict(SERVICES, fast=dict(ROUTER, **changes)))


def big(**own):
    """A router whose model has settings of its own."""
    return {"models": {"big": {"quant": "Q4_K_M", **own}}, "slot_ctx_size": 4096}


ENTRY = "llama_services.fast.models.big"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, None),
        ({"models": {"big": "Q2_K"}}, ENTRY + ": big has no Q2_K, one of Q4_K_M, Q8_0 is needed, did you mean Q4_K_M?"),
        ({"head": "nowhere"}, "llama_services.fast.head: nowhere is neither a host nor a group of this inventory: "),
        ({"models": {"big": 4}}, ENTRY + ": 4 seen, a quant or a map with quant is needed: correct it"),
        ({"models": {"big": {"cache": "q8_0"}}}, ENTRY + ".quant: missing"),
        ({"flash_attn": "off", "cache": "q8_0"}, "llama_services.fast.flash_attn: off seen"),
        (big(ctx_size=8192, cache="q8_0", temperature=0.7), None),
        (big(wrokers="node2"), ENTRY + ".wrokers: unknown key"),
        (big(parallel=0), ENTRY + ".parallel: 0 seen"),
        (big(flash_attn="off", cache="q8_0"), ENTRY + ".flash_attn: off seen"),
        (
            {"temperature": 0.7},
            "llama_services.fast.temperature: a key of each model: write it below models, as in NAME: {quant: QUANT}",
        ),
        (
            {"quant": "Q4_K_M"},
            "llama_services.fast.quant: a key of each model: write it below models",
        ),
        ({"mmproj": "cpu"}, "llama_services.fast.mmproj: a key of each model: write it below models"),
        (
            big(cards=[0]),
            ENTRY + ".cards: a key of the whole router: write it beside models",
        ),
        ({"zzz": 1}, "llama_services.fast.zzz: unknown key; known keys: account, batch_size, "),
    ],
)
def test_each_mistake_of_a_router_is_one_sentence(changes, sentence):
    found = fast(**changes)
    assert (len(found) == 1 and found[0].startswith(sentence)) if sentence else found == []


@pytest.mark.parametrize("key", ["cpu_moe", "draft", "extra_args", "n_gpu_layers", "numa", "primary", "workers"])
def test_server_key_in_router_is_refused(key):
    sentence = "llama_services.fast.%s: no key of routers: drop it, or make the model a service of its own"
    assert fast(**{key: 1}) == [sentence % key]
    assert fast(models={"big": {"quant": "Q4_K_M", key: 1}}) == [sentence % ("models.big." + key)]


def test_names_of_routers_models_are_one_models_each():
    model = {"repo": "x/y", "quants": {"Q4_K_M": {"files": ["big.gguf"]}}}
    models = {"big": model, "b:q4": model, "other": dict(model, aliases=["big"])}
    for names, sentence in (
        (("big", "b:q4"), "llama_services.fast.models: b:q4 seen, a name without a colon "),
        (("big", "other"), "llama_services.fast.models: big seen as a name of big and of other, "),
    ):
        service = dict(ROUTER, models=dict.fromkeys(names, "Q4_K_M"))
        found = check.intent_errors({"fast": service}, models, GROUPS, HOSTVARS)
        assert len(found) == 1 and found[0].startswith(sentence)


@pytest.mark.parametrize("kind, needed", [("server", ["model", "quant", "head"]), ("router", ["head", "models"])])
def test_key_that_kind_needs_is_asked_for(kind, needed):
    found = mistakes({"fast": {"kind": kind}})
    assert [sentence.partition(", ")[0] for sentence in found] == [
        "llama_services.fast.%s: missing" % key for key in needed
    ]


def test_worker_keys_need_workers():
    keys = {"rpc_cache": True, "rpc_memory_max": "9G", "tensor_split": "auto", "workers": None}
    assert mistakes(changed(**keys)) == [
        "llama_services.reasoning.%s: seen without workers, it is only for them: drop the key" % key
        for key in ("rpc_port", "rpc_cache", "rpc_memory_max")
    ]
    assert mistakes(changed(workers=None, rpc_port=None, tensor_split="auto")) == []


def test_service_of_slurm_has_no_unit():
    queued = changed(launcher="slurm")
    assert services.rpc_instances(queued, "node2", GROUPS, HOSTVARS) == []
    assert services.head_instances(queued, MODELS, "node1", GROUPS, HOSTVARS, "/m") == []
    assert services.wanted_units(queued, GROUPS) == {} and services.stopped_units(queued, GROUPS) == []
    (job,) = services.rpc_instances(queued, "node2", GROUPS, HOSTVARS, None, "slurm")
    (unit,) = services.rpc_instances(SERVICES, "node2", GROUPS, HOSTVARS)
    assert job == unit


def test_a_service_name_becomes_a_unit_name():
    (sentence,) = mistakes({"Deep Thought": SERVICES["reasoning"]})
    assert sentence.startswith("llama_services.Deep Thought: the name becomes part of unit names")


@pytest.mark.parametrize(
    "build, wrong",
    [
        ({"version": "b11433"}, True),
        ({"version": "b11434"}, False),
        ({"source": "/srv/mine.tar.gz", "source_sha256": "a" * 64}, True),
    ],
)
def test_tensor_cache_and_builds(build, wrong):
    hostvars = {host: dict(facts, llama_builds={"mine": build}) for host, facts in HOSTVARS.items()}
    found = mistakes(changed(rpc_cache=True, build="mine"), hostvars=hostvars)
    assert [sentence.partition(":")[0] for sentence in found] == ["llama_services.reasoning.rpc_cache"] * wrong
    assert mistakes(changed(rpc_cache=False, build="mine"), hostvars=hostvars) == []


def test_a_worker_needs_a_fabric_address():
    (sentence,) = mistakes(hostvars=dict(HOSTVARS, node3={"ansible_host": "10.0.0.33"}))
    assert sentence.startswith("llama_services.reasoning.workers: node3 has no llama_fabric_address")


@pytest.mark.parametrize(
    ("header", "layers"),
    [
        ({"block_count": 80}, None),
        ({"block_count": 79}, 79),
        ({"block_count": 81}, 81),
        ({"block_count": "79"}, None),
        ({"block_count": True}, None),
        ({}, None),
        (None, None),
        ("x", None),
    ],
)
def test_layers_must_sum_to_header(header, layers):
    found = mistakes(models={"big": dict(MODELS["big"], header=header)})
    assert [sentence for sentence in found if "tensor_split" in sentence] == (
        [
            "llama_services.reasoning.tensor_split: 80 layers in all seen, the %d of big are needed, without the "
            "output layer: correct the counts or choose auto" % layers
        ]
        if layers
        else []
    )


def test_head_without_ipv4_address_is_refused():
    named = {"ansible_host": "rtx1.example.org"}
    (sentence,) = mistakes(hostvars=dict(HOSTVARS, node1=named))
    assert sentence.startswith(
        "llama_services.reasoning.head: node1 comes to its workers from rtx1.example.org, an IPv4 address is needed"
    )
    assert mistakes(hostvars=dict(HOSTVARS, node1={"ansible_host": "10.0.0.31"})) == []
    assert mistakes(hostvars=dict(HOSTVARS, node1=dict(named, llama_fabric_address="10.100.0.31"))) == []
    single = changed(workers=None, rpc_port=None, tensor_split=None)
    assert mistakes(single, hostvars=dict(HOSTVARS, node1=named)) == []


@pytest.mark.parametrize(("length", "right"), [(1, True), (40, True), (41, False)])
def test_the_length_of_a_services_name(length, right):
    assert (mistakes({"a" * length: SERVICES["reasoning"]}) == []) is right


@pytest.mark.parametrize("model", [{"repo": "a/b"}, {"repo": "a/b", "quants": {}}])
def test_model_without_quants_is_not_held_against_them(model):
    found = mistakes(models={"big": model})
    assert not any("has no Q8_0" in sentence for sentence in found)


def test_build_of_service_has_to_know_its_settings():
    builds = {"old": {"version": "b7772"}}
    hostvars = {host: dict(facts, llama_builds=builds) for host, facts in HOSTVARS.items()}
    assert mistakes(changed(reasoning="on"), hostvars=hostvars) == []
    (sentence,) = mistakes(changed(reasoning="on", build="old"), hostvars=hostvars)
    assert sentence.startswith("llama_services.reasoning.reasoning: ") and "b7772" in sentence


def test_port_of_replica_is_taken():
    services = changed(**REPLICAS, tensor_split=None)
    services["other"] = dict(services["reasoning"], head="node3", primary=False)
    (sentence,) = mistakes(services)
    assert sentence.startswith("llama_services.other.port: 8000 on node3 is taken by llama_services.reasoning.port, ")


def test_models_without_a_kind_are_for_a_router():
    services = {"fast": {"head": "node3", "models": {"big": "Q4_K_M"}}}
    assert mistakes(services)[0] == (
        "llama_services.fast.models: a key of routers: add kind: router, without model and quant, or drop it"
    )
    services["fast"]["kind"] = "routr"
    assert mistakes(services) == [
        "llama_services.fast.kind: 'routr' seen, server or router is needed, did you mean router?"
    ]
