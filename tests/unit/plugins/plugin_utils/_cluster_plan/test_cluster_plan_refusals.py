# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The refusals of an inventory's plan, with their advice."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.table import lines
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import (
    FAST,
    GROUPS,
    MODELS,
    cards,
    chat,
    main_memory,
    nodes,
    plan,
)


def test_what_fits_one_card_is_refused_a_split():
    (sentence,) = plan(chat(model="small", quant="Q8_0"))["refused"]
    assert sentence.startswith("llama_services.chat.workers: small Q8_0 fits GPU0 of node1 (")
    assert sentence.endswith("needed, since a split is slower: drop workers, or set force_split: true")
    tight = {"devices": devices.as_dicts(devices.of_inventory("node1", [{"memory_mib": 8000}], 1024)), "cores": 40}
    (sentence,) = plan(chat(model="small", quant="Q8_0"), nodes(node1=tight))["refused"]
    assert "fits GPU0 of node2 (" in sentence and "make node2 the head and drop workers" in sentence
    forced = plan(chat(model="small", quant="Q8_0", force_split=True))
    assert forced["refused"] == [] and forced["services"]["chat"][0]["topology"] == "split"
    single = plan(chat(model="small", quant="Q8_0", workers=None))
    assert single["refused"] == [] and single["services"]["chat"][0]["topology"] == "single"


def test_misfit_is_refused_with_advice():
    planned = plan(chat(quant="Q8_0", ctx_size=32768), nodes(26000))
    (sentence,) = planned["refused"]
    assert sentence.startswith(
        "llama_services.chat.quant: big Q8_0 with 32768 tokens a slot of f16 KV cache does not fit, "
    )
    assert (
        "MiB are needed on GPU0 of node" in sentence
        and ", or choose quant Q4_K_M (47.0 GB), or use 4 cards of 26000 MiB" in sentence
    )
    assert ", the worst of 3 devices that are too small: lower slot_ctx_size to " in sentence
    assert not planned["services"]["chat"][0]["fits"]
    assert any("does not fit" in line for line in lines(planned))


def test_misfit_layers_are_refused_with_automatic_split():
    (sentence,) = plan(chat(tensor_split={"node1": 10, "node2": 60, "node3": 10}))["refused"]
    assert sentence.startswith("llama_services.chat.tensor_split: big Q4_K_M with ")
    assert "are there: set tensor_split to auto (node2 27, node3 27, node1 26)" in sentence


@pytest.mark.parametrize(
    "changes, sentence",
    [
        (
            {"ctx_size": 65536},
            "llama_services.chat.ctx_size: 65536 tokens a slot seen, at most 40960 are allowed by the header of big, "
            "llama-server caps",
        ),
        ({"ctx_size": 65536, "parallel": 2}, None),
        (
            {"ctx_size": None, "slot_ctx_size": 40961, "parallel": 2},
            "llama_services.chat.slot_ctx_size: 40961 tokens a slot seen",
        ),
        ({"ctx_size": None, "slot_ctx_size": 32768, "parallel": 2}, None),
        ({"threads": 41}, "llama_services.chat.threads: 41 seen, at most the 40 cores of node1 are allowed: lower it"),
        (
            {"tensor_split": {"node1": 26, "node2": 26, "node3": 27}},
            "llama_services.chat.tensor_split: 79 layers in all seen, the 80 of big are needed",
        ),
        (
            {"model": "unknown", "quant": "Q8_0"},
            "llama_services.chat.tensor_split: auto seen without a plan of unknown Q8_0 (",
        ),
        ({"model": "unknown", "quant": "Q8_0", "tensor_split": {"node1": 1, "node2": 1, "node3": 1}}, None),
        ({"model": "unknown", "quant": "Q8_0", "workers": None}, None),
    ],
)
def test_each_refusal(changes, sentence):
    found = plan(chat(**changes), nodes(40000))["refused"]
    if sentence is None:
        assert found == []
    else:
        assert len({one.split(" of node")[0] for one in found}) == 1
        assert found[0].startswith(sentence)


def test_threads_count_on_bound_numa_node():
    numa = {"head": "1", "rpc": "0", "cpus": ["0", "0", "0", "1"]}
    of = {name: dict(facts, numa=dict(numa, head="" if name != "node1" else "1")) for name, facts in nodes().items()}
    found = plan(chat(threads=3), of)["refused"]
    assert found == [
        "llama_services.chat.threads: 3 seen, at most the 1 cores of NUMA node 1 of node1 are allowed: lower it"
    ]
    assert plan(chat(threads=1), of)["refused"] == []


@pytest.mark.parametrize(
    ("policy", "threads", "sentence"),
    [
        (None, 2, "threads: 2 seen, at most the 1 cores of NUMA node 1 of node1"),
        ("bind", 2, "threads: 2 seen, at most the 1 cores of NUMA node 1 of node1"),
        ("none", 4, None),
        ("interleave", 4, None),
        ({"node": 0}, 3, None),
        ({"node": 0}, 4, "threads: 4 seen, at most the 3 cores of NUMA node 0 of node1"),
        ({"node": 0}, None, "threads: missing beside numa {node: 0}, at most the 3 cores of NUMA node 0"),
        ({"node": 2}, 1, "numa: node 2 seen, one of the NUMA nodes of node1 (0, 1) is needed"),
        ("isolate", 1, "numa: isolate seen beside head_server_numa_node of node1, numactl is needed"),
        ("numactl", 1, None),
    ],
)
def test_cores_are_those_that_numa_of_service_leaves(policy, threads, sentence):
    numa = {"head": "1", "rpc": "", "cpus": ["0", "0", "0", "1"]}
    of = {name: dict(facts, numa=dict(numa, head="1" if name == "node1" else "")) for name, facts in nodes().items()}
    keys = {"numa": policy, "threads": threads}
    found = plan(chat(**{name: value for name, value in keys.items() if value is not None}), of)["refused"]
    assert len(found) == bool(sentence)
    assert not sentence or found[0].startswith("llama_services.chat." + sentence)


def test_weights_beyond_all_cards_need_no_header():
    models = {"giant": {"parameters": 671 * 10**9, "quants": {"Q5_K_M": {"files": ["g"], "bits_per_weight": 5.7}}}}
    found = memory_plan(chat(model="giant", quant="Q5_K_M"), models, GROUPS, nodes())
    (sentence,) = found["refused"]
    assert sentence.startswith(
        "llama_services.chat.quant: giant Q5_K_M has 671.0 billion weights at 5.7 bits, about 478.1 GB, more than the "
        "102.3 GB of GPU"
    )
    assert found["hopeless"] == [sentence]


def test_workers_without_layers_are_refused():
    of = nodes(
        24000,
        node3={
            "devices": devices.as_dicts(devices.of_inventory("node3", [{"main": True, "memory_mib": 257000}], 1024)),
            "cores": 40,
        },
    )
    (sentence,) = plan(chat(quant="Q4_K_M"), dict(of, node2=dict(of["node2"], devices=cards("node2", 24000, 24000))))[
        "refused"
    ]
    assert sentence == (
        "llama_services.chat.workers: node3 would hold no layers, since the GPUs hold all of big Q4_K_M, and each "
        "worker needs one: leave it out of workers"
    )
    # Main memory holds the rest of two cards, forced or not.
    for force in (None, True):
        planned = plan(chat(quant="Q4_K_M", force_split=force), of)
        assert planned["refused"] == []
        assert 0 < planned["services"]["chat"][0]["layers"]["node3"] < 20
        assert any("what the GPUs cannot hold is left over for node3 main" in line for line in lines(planned))


def test_plan_of_everything_refuses_what_it_cannot_plan():
    part = {name: facts for name, facts in nodes().items() if name == "node2"}

    def reported(services, nodes):
        return memory_plan(services, MODELS, GROUPS, nodes, complete=True)["refused"]

    assert reported(chat(tensor_split={"node1": 20, "node2": 35, "node3": 25}), part) == [
        "llama_services.chat: not planned, node1 and node3 are not part of this run, a plan needs all nodes of a "
        "service: run without --limit"
    ]
    (sentence,) = reported(chat(model="unknown", quant="Q8_0"), nodes())
    assert sentence.startswith(
        "llama_services.chat: not planned, its header was not read and llama_models.unknown has no header"
    )
    (sentence,) = reported({"fast": dict(FAST, models={"unknown": "Q8_0"})}, nodes())
    assert sentence.startswith("llama_services.fast: not planned, unknown Q8_0: ")
    assert reported(chat(), nodes()) == []


def test_header_of_no_model_is_refused():
    seen = {
        "item": {"model": "unknown", "quant": "Q8_0"},
        "msg": "header: a projector, which is no model: name the file",
    }
    services = chat(model="unknown", quant="Q8_0", workers=None, tensor_split=None)
    (sentence,) = memory_plan(services, MODELS, GROUPS, nodes(), [seen])["refused"]
    assert sentence == "llama_services.chat: not planned, header: a projector, which is no model: name the file"


def test_fifteen_devices_and_no_more():
    def of(count):
        return nodes(
            node2={
                "devices": devices.as_dicts(devices.of_inventory("node2", [{"memory_mib": 8000}] * count, 256)),
                "cores": 40,
            }
        )

    assert plan(chat(force_split=True), of(13))["refused"] == []
    (sentence,) = plan(chat(force_split=True), of(14))["refused"]
    assert sentence.startswith("llama_services.chat.workers: 16 devices seen, at most 15 are allowed")


def test_layers_for_a_head_without_a_card():
    split = {"node1": 20, "node2": 30, "node3": 30}
    (sentence,) = plan(chat(tensor_split=split), nodes(48000, node1=main_memory("node1")))["refused"]
    assert sentence.startswith("llama_services.chat.tensor_split.node1: 20 layers seen, 0 are needed")


def test_a_router_whose_model_does_not_fit():
    (sentence,) = plan({"fast": FAST}, nodes(12000))["refused"]
    assert sentence.startswith(
        "llama_services.fast.models: small Q8_0 with 4096 tokens a slot of f16 KV cache does not fit, "
    )
    assert sentence.endswith(": use 2 cards of 12000 MiB")


def test_quantized_cache_of_odd_heads_is_refused():
    odd = dict(mixture.HEADERS[1]["shape"], head_k=[96, 80] + [72] * 62)
    service = dict(mixture.SERVICE, model="big", cache_type_k="q8_0")
    for given, refused in (("on", 1), ("auto", 1), ("off", 0)):
        found = memory_plan(
            {"chat": dict(service, flash_attn=given)},
            mixture.MODELS,
            mixture.GROUPS,
            {"node1": mixture.node()},
            [dict(mixture.HEADERS[1], shape=odd)],
            {},
        )
        assert len([sentence for sentence in found["refused"] if "heads of big have 80" in sentence]) == refused


@pytest.mark.parametrize(("limit", "refused"), [("1M", True), ("900G", False)])
def test_limits_of_main_memory_of_workers_and_routers(limit, refused):
    mains = {name: main_memory(name, 257000) for name in GROUPS["all"]}
    for services, key in (
        (chat(rpc_memory_max=limit, force_split=True), "chat.rpc_memory_max"),
        ({"fast": dict(FAST, memory_max=limit)}, "fast.memory_max"),
    ):
        found = plan(services, mains)["refused"]
        assert [one.partition(":")[0] for one in found] == [f"llama_services.{key}"] * refused, found
