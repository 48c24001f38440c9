# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All services of an inventory together."""

import base64
import copy
import json
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _intent, _intent_check, _plan, _plan_catalog, _plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan_inventory import memory_plan, stored
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan_lines import lines

INVENTORIES = Path(__file__).resolve().parents[4] / "inventories"
GROUPS = {"all": ["node1", "node2", "node3"], "llama_nodes": ["node1", "node2", "node3"], "llama_head": ["node1"], "llama_rpc": ["node2", "node3"]}
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
SMALL = dict(FACTS, block_count=12, embedding_length=2048, feed_forward_length=8192, head_count=16, vocab_size=32000)
MODELS = {
    "big": {"repo": "some/big", "header": FACTS, "quants": {"Q8_0": {"files": ["b8"], "size": 77 * 10**9}, "Q4_K_M": {"files": ["b4"], "size": 47 * 10**9}}},
    "small": {"repo": "some/small", "header": SMALL, "quants": {"Q8_0": {"files": ["s8"], "size": 15 * 10**9}}},
    "unknown": {"repo": "some/unknown", "quants": {"Q8_0": {"files": ["u8"]}}},
}
CHAT = {
    "model": "big",
    "quant": "Q4_K_M",
    "head": "llama_head",
    "workers": "llama_rpc",
    "port": 8000,
    "rpc_port": 50052,
    "ctx_size": 8192,
    "parallel": 1,
}
FAST = {"kind": "router", "host": "node3", "models": {"small": "Q8_0"}, "models_max": 1, "port": 8080, "ctx_size": 4096, "parallel": 1}


def nodes(memory=32510, cores=40, **changed):
    found = {name: {"devices": _plan_devices.of_inventory(name, [{"name": "card", "memory_mib": memory}], 1024), "cores": cores} for name in GROUPS["all"]}
    found.update(changed)
    return found


def main_memory(node, memory=8192):
    return {"devices": _plan_devices.of_node(node, [], memory, 1024), "cores": 2}


def plan(services, nodes=None, headers=(), previous=(), build="b11434"):
    return memory_plan(services, MODELS, GROUPS, nodes or globals()["nodes"](), headers, build, previous)


def kept(planned, name="chat"):
    """As preflight reads back what head_server wrote."""
    text = json.dumps(stored(planned["services"][name]))
    return [{"item": name, "content": base64.b64encode(text.encode()).decode()}]


def chat(**changes):
    return {"chat": {key: value for key, value in dict(CHAT, **changes).items() if value is not None}}


def test_an_automatic_split_is_planned_and_says_where_its_sizes_come_from():
    planned = plan(chat())
    assert planned["refused"] == []
    (one,) = planned["services"]["chat"]
    assert (one["fits"], one["topology"], one["source"]) == (True, "split", "catalog")
    assert one["layers"] == {"node2": 27, "node3": 27, "node1": 26}
    assert any("ESTIMATED from llama_models" in line for line in lines(planned))


def test_a_header_is_better_than_the_catalog():
    shape = _plan_catalog.estimate(FACTS, 40 * 10**9)
    header = {"item": {"model": "big", "quant": "Q4_K_M"}, "shape": json.loads(json.dumps(_plan.shape_facts(shape)))}
    planned = plan(chat(), headers=[header])
    (one,) = planned["services"]["chat"]
    assert one["source"] == "header"
    assert sum(device["weights_mib"] for device in one["devices"]) < 40 * 10**9 / (1 << 20)
    assert not any("ESTIMATED" in line for line in lines(planned))


def test_explicit_layers_are_rendered_in_llama_cpps_order():
    planned = plan(chat(tensor_split={"node1": 20, "node2": 35, "node3": 25}))
    assert planned["refused"] == []
    assert planned["services"]["chat"][0]["tensor_split"] == [35, 25, 21]


def test_a_nodes_layers_are_spread_over_its_cards():
    two = {"devices": _plan_devices.of_inventory("node2", [{"memory_mib": 24000}, {"memory_mib": 24000}], 1024), "cores": 40}
    planned = plan(chat(tensor_split={"node1": 20, "node2": 35, "node3": 25}), nodes(node2=two))
    assert planned["services"]["chat"][0]["tensor_split"] == [18, 17, 25, 21]
    assert planned["services"]["chat"][0]["layers"] == {"node2": 35, "node3": 25, "node1": 20}


def test_a_head_without_a_card_holds_no_layers_beside_workers():
    planned = plan(chat(), nodes(48000, node1=main_memory("node1")))
    (one,) = planned["services"]["chat"]
    assert [device["node"] for device in one["devices"]] == ["node2", "node3"]
    assert (one["layers"], one["tensor_split"]) == ({"node2": 80, "node3": 0}, [81])


def test_nodes_without_cards_use_their_main_memory():
    lab = {name: main_memory(name, 64000) for name in GROUPS["all"]}
    planned = plan(chat(force_split=True), lab)
    assert planned["refused"] == []
    assert sorted(planned["services"]["chat"][0]["layers"]) == ["node2", "node3"]
    alone = plan(chat(workers=None, rpc_port=None), {"node1": main_memory("node1", 64000)})
    assert alone["services"]["chat"][0]["layers"] == {"node1": 80}
    assert alone["services"]["chat"][0]["tensor_split"] == []


def test_what_fits_one_card_is_refused_a_split():
    (sentence,) = plan(chat(model="small", quant="Q8_0"))["refused"]
    assert sentence.startswith("llama_services.chat.workers: small Q8_0 fits GPU0 of node1 alone (")
    assert sentence.endswith("needed, since a split is slower: drop workers, or set force_split: true")
    tight = {"devices": _plan_devices.of_inventory("node1", [{"memory_mib": 8000}], 1024), "cores": 40}
    (sentence,) = plan(chat(model="small", quant="Q8_0"), nodes(node1=tight))["refused"]
    assert "fits GPU0 of node2 alone (" in sentence and "make node2 the head and drop workers" in sentence
    forced = plan(chat(model="small", quant="Q8_0", force_split=True))
    assert forced["refused"] == [] and forced["services"]["chat"][0]["topology"] == "split"
    single = plan(chat(model="small", quant="Q8_0", workers=None))
    assert single["refused"] == [] and single["services"]["chat"][0]["topology"] == "single"


def test_what_does_not_fit_is_refused_with_what_would():
    planned = plan(chat(quant="Q8_0", ctx_size=32768), nodes(26000))
    (sentence,) = planned["refused"]
    assert sentence.startswith("llama_services.chat.quant: big Q8_0 with 32768 tokens a slot of f16 KV cache does not fit, ")
    assert "MiB are needed on GPU0 of node" in sentence and ", or choose quant Q4_K_M (47.0 GB), or use 4 cards of 26000 MiB" in sentence
    assert ", the worst of 3 devices that are too small: lower slot_ctx_size to " in sentence
    assert not planned["services"]["chat"][0]["fits"]
    assert any("does not fit" in line for line in lines(planned))


def test_layers_that_do_not_fit_are_refused_with_the_split_that_does():
    (sentence,) = plan(chat(tensor_split={"node1": 10, "node2": 60, "node3": 10}))["refused"]
    assert sentence.startswith("llama_services.chat.tensor_split: big Q4_K_M with ")
    assert "are there: set tensor_split to auto (node2 27, node3 27, node1 26)" in sentence


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"ctx_size": 65536}, "llama_services.chat.ctx_size: 65536 tokens a slot seen, at most 40960 are allowed by the header of big, llama-server caps"),
        ({"ctx_size": 65536, "parallel": 2}, None),
        ({"ctx_size": None, "slot_ctx_size": 40961, "parallel": 2}, "llama_services.chat.slot_ctx_size: 40961 tokens a slot seen"),
        ({"ctx_size": None, "slot_ctx_size": 32768, "parallel": 2}, None),
        ({"threads": 41}, "llama_services.chat.threads: 41 seen, at most the 40 cores of node1 are needed: lower it"),
        ({"tensor_split": {"node1": 26, "node2": 26, "node3": 27}}, "llama_services.chat.tensor_split: 79 layers in all seen, the 80 of big are needed"),
        ({"model": "unknown", "quant": "Q8_0"}, "llama_services.chat.tensor_split: auto seen without a plan of unknown Q8_0 ("),
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


def test_cores_as_older_cores_of_ansible_hand_them_on():
    of = {name: dict(facts, cores="40") for name, facts in nodes().items()}
    assert plan(chat(threads=40), of)["refused"] == []
    assert len(plan(chat(threads=41), of)["refused"]) == 3


def test_threads_are_counted_on_the_numa_node_that_each_program_is_bound_to():
    numa = {"head": "1", "rpc": "0", "cpus": ["0", "0", "0", "1"]}
    of = {name: dict(facts, numa=dict(numa, head="" if name != "node1" else "1")) for name, facts in nodes().items()}
    found = plan(chat(threads=3), of)["refused"]
    assert found == ["llama_services.chat.threads: 3 seen, at most the 1 cores of NUMA node 1 of node1 are needed: lower it"]
    assert plan(chat(threads=1), of)["refused"] == []


def test_without_any_header_weights_that_exceed_all_cards_are_refused():
    models = {"giant": {"parameters": 671 * 10**9, "quants": {"Q5_K_M": {"files": ["g"], "bits_per_weight": 5.7}}}}
    found = memory_plan(chat(model="giant", quant="Q5_K_M"), models, GROUPS, nodes())
    (sentence,) = found["refused"]
    assert sentence.startswith("llama_services.chat.quant: giant Q5_K_M has 671.0 billion weights at 5.7 bits, about 478.1 GB, more than the 102.3 GB of GPU")


def test_why_it_is_an_estimate_is_said():
    failed = {"item": {"model": "big", "quant": "Q4_K_M"}, "msg": "llama_plan: https://hub: cannot be reached", "failed": True}
    assert "  llama_plan: https://hub: cannot be reached" in lines(plan(chat(), headers=[failed]))


@pytest.mark.parametrize(
    "keys, build, tokens",
    [
        ({}, "b11434", 40960),
        ({"rope_scaling": "yarn", "rope_scale": 4, "yarn_orig_ctx": 32768}, "b11434", 131072),
        ({"rope_scaling": "yarn", "rope_scale": 4}, "b11434", 163840),
        # What scales as the header does, or not by YaRN, changes no cap.
        ({"rope_scaling": "yarn", "yarn_orig_ctx": 32768}, "b11434", 40960),
        ({"rope_scaling": "linear", "rope_scale": 4}, "b11434", 40960),
        # Before b10754 (llama.cpp #28030) no scaling does.
        ({"rope_scaling": "yarn", "rope_scale": 4, "yarn_orig_ctx": 32768}, "b7772", 40960),
        ({"rope_scaling": "yarn", "override_kv": ["qwen3.context_length=int:131072"]}, "b7772", 131072),
        ({"override_kv": ["qwen3.context_length=int:131072"]}, "b11434", 131072),
        ({"override_kv": ["llama.context_length=int:131072", "qwen3.rope.freq_base=float:1e6"]}, "b11434", 40960),
    ],
)
def test_the_context_that_llama_server_caps_slots_at(keys, build, tokens):
    def refused(count):
        small_cache = {"cache_type_k": "q4_0", "cache_type_v": "q4_0", "ctx_size": None, "force_split": True}
        return plan(chat(slot_ctx_size=count, **dict(small_cache, **keys)), nodes(80000), build=build)["refused"]

    assert refused(tokens) == []
    (sentence,) = refused(tokens + 1)
    assert sentence.startswith("llama_services.chat.slot_ctx_size: %d tokens a slot seen, at most %d are allowed by the header of big, " % (tokens + 1, tokens))
    assert "override_kv: ['qwen3.context_length=int:%d']" % (tokens + 1) in sentence


def test_the_way_out_of_the_headers_context_is_one():
    """What the refusal names is taken."""
    (sentence,) = plan(chat(slot_ctx_size=131072, ctx_size=None), nodes(80000))["refused"]
    assert ": lower it, or set rope_scaling: yarn, rope_scale: 4, yarn_orig_ctx: 40960, or for a model that needs no scaling override_kv: " in sentence
    named = {"rope_scaling": "yarn", "rope_scale": 4, "yarn_orig_ctx": 40960}
    assert plan(chat(slot_ctx_size=131072, ctx_size=None, **named), nodes(80000))["refused"] == []
    (older,) = plan(chat(slot_ctx_size=131072, ctx_size=None), nodes(80000), build="b7772")["refused"]
    assert "yarn_orig_ctx: 40960 and override_kv: ['qwen3.context_length=int:131072']" in older


def test_a_header_that_scales_positions_caps_too():
    shape = _plan_catalog.estimate(FACTS, 47 * 10**9)._replace(rope_scaling=True)
    header = {"item": {"model": "big", "quant": "Q4_K_M"}, "shape": _plan.shape_facts(shape)}
    (sentence,) = plan(chat(ctx_size=65536), nodes(48000), [header])["refused"]
    assert sentence.endswith("set override_kv: ['qwen3.context_length=int:65536'], its header scales already")


def test_workers_that_no_layer_is_left_for_are_refused():
    of = nodes(24000, node3={"devices": _plan_devices.of_inventory("node3", [{"main": True, "memory_mib": 257000}], 1024), "cores": 40})
    (sentence,) = plan(chat(quant="Q4_K_M"), dict(of, node2=dict(of["node2"], devices=_cards("node2", 24000, 24000))))["refused"]
    assert sentence == (
        "llama_services.chat.workers: node3 would hold no layers, since the GPUs hold all of big Q4_K_M, and each worker needs one: leave it out of workers"
    )
    # What two cards cannot hold is left over for it, forced or not.
    for force in (None, True):
        planned = plan(chat(quant="Q4_K_M", force_split=force), of)
        assert planned["refused"] == []
        assert 0 < planned["services"]["chat"][0]["layers"]["node3"] < 20
        assert any("what the GPUs cannot hold is left over for node3 main" in line for line in lines(planned))


def _cards(node, *sizes):
    return _plan_devices.of_inventory(node, [{"memory_mib": size} for size in sizes], 1024)


def test_layers_per_node_need_no_header_for_several_cards():
    """What the head is told is the same whether its model's header was read or not."""
    two = {"devices": _cards("node2", 24000, 24000), "cores": 40}
    split = {"node1": 20, "node2": 35, "node3": 25}
    unknown = json.loads(json.dumps(plan(chat(model="unknown", quant="Q8_0", tensor_split=split), nodes(node2=two))))
    assert unknown["services"] == {} and unknown["refused"] == []
    known = plan(chat(tensor_split=split), nodes(node2=two))["services"]["chat"][0]
    assert unknown["rendered"] == {"chat": {"layers": known["layers"], "tensor_split": known["tensor_split"]}}
    hostvars = {name: {"ansible_host": name, "llama_fabric_address": "10.1.0." + name[-1], "preflight_plan": unknown} for name in GROUPS["all"]}
    (head,) = _intent.head_instances(chat(model="unknown", quant="Q8_0", tensor_split=split), MODELS, "node1", GROUPS, hostvars, "/opt/models")
    assert head["args"][head["args"].index("--tensor-split") + 1] == "18,17,25,21"
    assert head["layers"] == split


def test_a_plan_of_everything_refuses_what_it_cannot_plan():
    part = {name: facts for name, facts in nodes().items() if name == "node2"}

    def told(services, nodes):
        return memory_plan(services, MODELS, GROUPS, nodes, (), "b11434", complete=True)["refused"]

    assert told(chat(tensor_split={"node1": 20, "node2": 35, "node3": 25}), part) == [
        "llama_services.chat: not planned, node1 and node3 are not part of this run, a plan needs all nodes of a service: run without --limit"
    ]
    (sentence,) = told(chat(model="unknown", quant="Q8_0"), nodes())
    assert sentence.startswith("llama_services.chat: not planned, its header was not read and llama_models.unknown has no header")
    (sentence,) = told({"fast": dict(FAST, models={"unknown": "Q8_0"})}, nodes())
    assert sentence.startswith("llama_services.fast: not planned, unknown Q8_0: ")
    assert told(chat(), nodes()) == []


def test_fifteen_devices_and_no_more():
    def of(count):
        return nodes(node2={"devices": _plan_devices.of_inventory("node2", [{"memory_mib": 8000}] * count, 256), "cores": 40})

    assert plan(chat(force_split=True), of(13))["refused"] == []
    (sentence,) = plan(chat(force_split=True), of(14))["refused"]
    assert sentence.startswith("llama_services.chat.workers: 16 devices seen, at most 15 are allowed")


def test_fewer_layers_than_devices():
    of = nodes(node2={"devices": _plan_devices.of_inventory("node2", [{"memory_mib": 8000}] * 12, 256), "cores": 40})
    (sentence,) = plan(chat(model="small", quant="Q8_0", force_split=True), of)["refused"]
    assert sentence.startswith("llama_services.chat.workers: 14 devices seen, at most 12 are allowed, one for each layer of small")


def test_layers_for_a_head_without_a_card():
    split = {"node1": 20, "node2": 30, "node3": 30}
    (sentence,) = plan(chat(tensor_split=split), nodes(48000, node1=main_memory("node1")))["refused"]
    assert sentence.startswith("llama_services.chat.tensor_split.node1: 20 layers seen, 0 are needed")


def test_services_that_share_a_card_are_added_up():
    alone = plan(chat(), nodes(28000))["services"]["chat"][0]
    planned = plan(dict(chat(), fast=FAST), nodes(28000))
    fast = planned["services"]["fast"][0]
    beside = planned["services"]["chat"][0]
    assert planned["refused"] == []
    shared = {device["node"]: device for device in beside["devices"]}["node3"]
    assert shared["free_mib"] == 28000 - fast["devices"][0]["total_mib"]
    assert shared["total_mib"] <= shared["free_mib"]
    assert beside["layers"]["node3"] < alone["layers"]["node3"]
    text = "\n".join(planned["sharing"])
    assert "apart, with node3 left out of workers: fits (node2 " in text and "alternating, with fast stopped: fits" in text
    assert "decision: beside fast, as in the table; to keep them apart leave node3 out of workers" in text
    assert "beside fast, as in the table: fits (node2 %d layers, " % beside["layers"]["node2"] in text


def test_only_the_largest_models_of_a_router_are_loaded_at_once():
    models = dict(MODELS, medium=dict(MODELS["small"], quants={"Q8_0": {"files": ["m8"], "size": 9 * 10**9}}))
    router = dict(FAST, models={"small": "Q8_0", "medium": "Q8_0"})
    free = []
    for most in (1, 2):
        planned = memory_plan(dict(chat(), fast=dict(router, models_max=most)), models, GROUPS, nodes(40000), (), "b11434")
        free.append({device["node"]: device["free_mib"] for device in planned["services"]["chat"][0]["devices"]}["node3"])
    assert free[0] > free[1] > 0


def test_a_router_whose_model_does_not_fit():
    (sentence,) = plan({"fast": FAST}, nodes(12000))["refused"]
    assert sentence.startswith("llama_services.fast.models: small Q8_0 with 4096 tokens a slot of f16 KV cache does not fit, ")


def test_the_plan_does_not_wander():
    """What our own service uses is not what others use, and a split that still fits is kept."""
    first = plan(chat())
    assert plan(chat(), previous=kept(first))["services"] == first["services"]
    busy = nodes()
    busy["node2"]["devices"][0]["others_mib"] = 20000
    moved = plan(chat(), busy)["services"]["chat"][0]["counts"]
    # Somebody else was there and has gone: nothing is restarted for that.
    assert moved != first["services"]["chat"][0]["counts"]
    assert plan(chat(), previous=kept(plan(chat(), busy)))["services"]["chat"][0]["counts"] == moved
    # What no longer fits, or was made for something else, is planned anew.
    assert plan(chat(), busy, previous=kept(first))["services"]["chat"][0]["counts"] == moved
    assert plan(chat(ctx_size=4096), previous=kept(plan(chat(), busy)))["services"]["chat"][0]["counts"] == [27, 27, 26]


def test_what_is_stored_does_not_change_with_what_is_free():
    busy = nodes()
    busy["node2"]["devices"][0]["others_mib"] = 100
    assert stored(plan(chat())["services"]["chat"]) == stored(plan(chat(), busy)["services"]["chat"])


@pytest.mark.parametrize("content", [None, "", "!", base64.b64encode(b"[]").decode(), base64.b64encode(b'[{"inputs": [1]}]').decode()])
def test_a_stored_plan_that_is_none(content):
    assert plan(chat(), previous=[{"item": "chat", "content": content}])["refused"] == []


def test_a_run_without_a_node_keeps_its_earlier_split():
    part = {name: facts for name, facts in nodes().items() if name != "node3"}
    planned = plan(chat(), part, previous=kept(plan(chat())))
    assert planned["refused"] == []
    assert planned["services"]["chat"][0]["tensor_split"] == [27, 27, 27]
    assert "node3 is not part of this run" in planned["unplanned"]["chat"]
    assert any("chat: not planned" in line for line in lines(planned))
    (sentence,) = plan(chat(), part)["refused"]
    assert sentence.startswith("llama_services.chat.tensor_split: auto seen and node3 is not part of this run, all nodes of the service are needed: ")
    without_head = {name: facts for name, facts in nodes().items() if name != "node1"}
    assert plan(chat(), without_head)["refused"] == []


def test_the_plan_reaches_the_heads_command_line():
    hostvars = {name: {"ansible_host": name, "llama_fabric_address": "10.1.0." + name[-1]} for name in GROUPS["all"]}
    planned = json.loads(json.dumps(plan(chat())))
    hostvars["node1"]["preflight_plan"] = planned
    (head,) = _intent.head_instances(chat(), MODELS, "node1", GROUPS, hostvars, "/opt/models")
    assert head["args"][head["args"].index("--tensor-split") + 1] == "27,27,27"
    assert head["layers"] == {"node2": 27, "node3": 27, "node1": 26}
    del hostvars["node1"]["preflight_plan"]
    (head,) = _intent.head_instances(chat(), MODELS, "node1", GROUPS, hostvars, "/opt/models")
    assert "--tensor-split" not in head["args"]


def reference(name, **changes):
    """A plan of a reference inventory from its catalog. changes: of service reasoning."""
    folder = INVENTORIES / name / "group_vars"
    models = yaml.safe_load((folder / "all/models.yml").read_text())["llama_models"]
    intent = yaml.safe_load((folder / "all/services.yml").read_text())
    devices = yaml.safe_load((folder / "llama_nodes.yml").read_text())["llama_devices"]
    services = copy.deepcopy(intent["llama_services"])
    services["reasoning"].update(dict({"quant": intent["llama_quant"], "tensor_split": intent["llama_tensor_split"]}, **changes))
    groups = yaml.safe_load((INVENTORIES / name / "hosts.yml").read_text())["all"]["children"]["llama_nodes"]["children"]
    groups = {group: list(members["hosts"]) for group, members in groups.items()}
    groups["llama_nodes"] = groups["all"] = sorted(host for hosts in groups.values() for host in hosts)
    hosts = {host: {"devices": _plan_devices.of_inventory(host, devices, 1024), "cores": 40} for host in groups["all"]}
    return memory_plan(services, models, groups, hosts, (), intent["llama_cpp_version"])


def test_the_reference_cluster_fits_its_quant():
    planned = reference("beefcake2")
    assert planned["refused"] == []
    assert planned["services"]["reasoning"][0]["tensor_split"] == [27, 27, 27]


def test_the_maps_that_the_reference_inventories_name_are_those_of_the_plan():
    for name in ("beefcake2", "beefcake2-slurm"):
        (named,) = re.findall(r"it says: ({.*?})", (INVENTORIES / name / "group_vars/all/services.yml").read_text())
        assert reference(name)["services"]["reasoning"][0]["layers"] == yaml.safe_load(named)


def test_the_tiers_of_the_reference_cluster_share_no_card():
    planned = reference("beefcake2-slurm")
    assert (planned["refused"], planned["sharing"]) == ([], [])
    assert [device["node"] for device in planned["services"]["reasoning"][0]["devices"]] == ["vasp-03", "vasp-01"]
    assert [device["node"] for device in planned["services"]["fast"][0]["devices"]] == ["vasp-02"]


def test_the_tiers_of_the_reference_cluster_cannot_share_evenly():
    third = {"workers": "llama_rpc:llama_router", "tensor_split": {"vasp-01": 26, "vasp-02": 27, "vasp-03": 27}}
    planned = reference("beefcake2-slurm", **third)
    (sentence,) = planned["refused"]
    assert "on GPU0 of vasp-02" in sentence and "set tensor_split to auto (vasp-03 " in sentence
    assert "  decision: none, it does not fit beside fast; to keep them apart leave vasp-02 out of workers" in planned["sharing"]
    third["tensor_split"] = "auto"
    assert reference("beefcake2-slurm", **third)["refused"] == []


def test_the_intent_checks_know_the_new_keys():
    hostvars = {name: {"llama_fabric_address": "10.1.0.%d" % number} for number, name in enumerate(GROUPS["all"], 1)}

    def errors(models=None, **changes):
        return _intent_check.errors(chat(**changes), models or MODELS, GROUPS, hostvars)

    assert errors(force_split=True, slot_ctx_size=8192) == []
    assert errors(force_split="yes")[0].startswith("llama_services.chat.force_split: 'yes' seen")
    assert errors(slot_ctx_size=0)[0].startswith("llama_services.chat.slot_ctx_size: 0 seen")
    broken = dict(MODELS, big=dict(MODELS["big"], header={"architecture": "qwen3", "blocks": 80}))
    assert [one.partition(":")[0] for one in errors(broken)] == ["llama_models.big.header.blocks", "llama_models.big.header"]
