# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Candidates for a service's settings."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.estimate import estimate
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.grid import tune_candidates, tune_quants
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.race import BASELINE
from ansible_collections.thefermisea.llama_cluster.tests.unit import three_nodes
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import (
    FACTS,
    GROUPS,
    MODELS,
    chat,
    main_memory,
    nodes,
)

HOSTVARS = {name: {"llama_fabric_address": "10.1.0.%d" % index} for index, name in enumerate(GROUPS["all"], 1)}
ALONE = {"model": "small", "quant": "Q8_0", "workers": None, "rpc_port": None, "ctx_size": None}
ALONE = dict(ALONE, slot_ctx_size=4096)
BUILDS = {"default": {"version": "b11434"}}
LOOPBACK = "RPC on loopback"


def candidates(services, axes=(), goal="single", memory=None, **more):
    memory = memory or nodes()
    return tune_candidates(services, "chat", MODELS, GROUPS, HOSTVARS, memory, [], BUILDS, [], axes, goal, **more)


def by_name(*args, **kwargs):
    return {one["name"]: one for one in candidates(*args, **kwargs)}


def test_deployed_service_comes_first():
    first = candidates(chat(**ALONE))[0]
    assert (first["name"], first["changes"], first["why"]) == (BASELINE, {}, "")
    assert first["services"] == chat(**ALONE) and first["plan"]["services"]["chat"]


def test_goal_decides_what_is_varied():
    varied = {
        goal: {key for one in candidates(chat(**ALONE, force_split=None), goal=goal) for key in one["changes"]}
        for goal in ("single", "total", "prompt")
    }
    assert varied["single"] == {"flash_attn", "draft"}
    assert varied["total"] == {"flash_attn", "draft", "ubatch_size", "parallel"}
    assert varied["prompt"] == {"flash_attn", "ubatch_size", "batch_size"}


def test_slots_keep_their_size():
    found = by_name(chat(**ALONE), axes=["parallel"])
    assert list(found) == [BASELINE, "parallel 2", "parallel 3", "parallel 4", "parallel 8"]
    assert found["parallel 3"]["changes"] == {"parallel": 3}
    whole = by_name(chat(**{**ALONE, "slot_ctx_size": None, "ctx_size": 8192}), axes=["parallel"])
    assert whole["parallel 3, ctx_size 24576"]["changes"] == {"parallel": 3, "ctx_size": 24576}


def test_shared_cache_is_one_slot():
    for key in ("slot_ctx_size", "ctx_size"):
        shared = {**ALONE, "slot_ctx_size": None, "kv_unified": True, "parallel": 4}
        shared[key] = 8192
        found = by_name(chat(**shared), axes=["slot_ctx_size"])
        assert [one["changes"] for one in found.values()][1:] == [{key: 4096}, {key: 16384}]
        assert by_name(chat(**shared), axes=["parallel"])["parallel 2"]["changes"] == {"parallel": 2}


def test_split_mode_needs_several_devices():
    assert list(by_name(chat(**ALONE), axes=["split_mode"])) == [BASELINE]
    found = by_name(chat(), axes=["split_mode"])
    assert list(found) == [BASELINE, "split_mode tensor"]
    other = found["split_mode tensor"]
    assert (other["changes"], other["why"], other["restarts_workers"]) == ({"split_mode": "tensor"}, "", False)
    assert list(by_name(chat(split_mode="tensor"), axes=["split_mode", "tensor_split"])) == [
        BASELINE,
        "split_mode layer",
    ]


def test_values_replace_other_spellings():
    service = chat(**ALONE, cache_type_k="q8_0", cache_type_v="q8_0")
    found = by_name(service, axes=["cache", "slot_ctx_size"])
    entry = found["cache f16"]["services"]["chat"]
    assert entry["cache"] == "f16" and "cache_type_k" not in entry and found["cache f16"]["why"] == ""
    assert found["slot_ctx_size 8192"]["services"]["chat"]["slot_ctx_size"] == 8192


def test_threads_only_where_the_processor_computes():
    memory = {name: dict(main_memory(name, 64000), cores=16, physical_cores=8) for name in GROUPS["all"]}
    found = by_name(chat(**ALONE), axes=["threads"], memory=memory)
    assert list(found) == [BASELINE, "threads 4", "threads 16"]
    assert not found["threads 4"]["restarts_workers"] and found["threads 4"]["most_mib"] > 10000
    assert list(by_name(chat(**ALONE), axes=["threads"])) == [BASELINE]


def test_what_is_impossible_is_refused():
    found = by_name(chat(**ALONE, cache="q8_0"), axes=["flash_attn", "slot_ctx_size"])
    assert found["flash_attn off"]["why"].startswith("flash_attn: off seen with cache_type_v q8_0")
    assert found["flash_attn off"]["plan"] == {}
    large = by_name(chat(**{**ALONE, "slot_ctx_size": 400000}), axes=["slot_ctx_size"])
    assert large["slot_ctx_size 800000"]["why"] != ""


def test_few_values_are_combined_at_once():
    found = candidates(chat(**ALONE), axes=["flash_attn", "slot_ctx_size", "cache"])
    names = [one["name"] for one in found]
    assert len(found) == 18 and names[0] == BASELINE
    assert "flash_attn off, slot_ctx_size 8192, cache q4_0" in names
    assert {one["axis"] for one in found[1:]} == {"combination"}


def test_many_values_are_combined_when_they_won():
    axes = ["parallel", "ubatch_size", "flash_attn"]
    found = candidates(chat(**ALONE), axes=axes, goal="total")
    assert {one["axis"] for one in found[1:]} == set(axes)
    won = [{"axis": "parallel", "changes": {"parallel": 4}}, {"axis": "flash_attn", "changes": {"flash_attn": "off"}}]
    again = candidates(chat(**ALONE), axes=axes, goal="total", combine=won)
    assert [one["name"] for one in again[len(found) :]] == ["parallel 4, flash_attn off"]
    assert again[-1]["services"]["chat"]["parallel"] == 4


def test_split_moves_by_one_layer():
    found = by_name(chat(model="small", quant="Q8_0", force_split=True), axes=["tensor_split"])
    layers = found[BASELINE]["plan"]["services"]["chat"][0]["layers"]
    for one in list(found.values())[1:]:
        moved = one["changes"]["tensor_split"]
        assert sum(moved.values()) == sum(layers.values())
        assert sorted(moved[node] - layers[node] for node in moved) == [-1, 0, 1] and one["why"] == ""


def test_other_quants_on_the_node_are_placements():
    service = {**ALONE, "model": "big", "quant": "Q8_0", "cards": [0]}
    items = tune_quants(chat(**service), "chat", MODELS, "node1", GROUPS, "/m")
    assert [(one["quant"], one["dest"]) for one in items] == [("Q4_K_M", "/m/b4")]
    shape = json.loads(json.dumps(estimate(FACTS, 20 * 10**9).as_dict()))
    there = by_name(chat(**service), axes=["placement"], quants=[{"item": items[0], "shape": shape}])
    one = there["quant Q4_K_M"]
    assert (one["changes"], one["why"]) == ({}, "") and one["services"]["chat"]["quant"] == "Q4_K_M"
    missing = {"item": items[0], "msg": "no such file"}
    assert list(by_name(chat(**service), axes=["placement"], quants=[missing])) == [BASELINE, LOOPBACK]


def test_placements_are_no_settings():
    found = by_name(chat(model="small", quant="Q8_0", force_split=True), axes=["placement"])
    assert list(found) == [BASELINE, "only node1", "worker node2", LOOPBACK]
    assert {one["axis"] for one in found.values()} == {"", "placement"}
    assert {str(one["changes"]) for one in found.values()} == {"{}"}
    assert "workers" not in found["only node1"]["services"]["chat"] and found["only node1"]["why"] == ""
    assert found["worker node2"]["services"]["chat"]["workers"] == "node2"


@pytest.mark.parametrize(("cards", "kept"), [((32510,), False), ((32510, 32510), True)])
def test_head_with_one_card_has_no_split_mode(cards, kept):
    memory = nodes(node1={"devices": three_nodes.cards("node1", *cards), "cores": 40})
    services = chat(model="small", quant="Q8_0", split_mode="tensor")
    only = by_name(services, axes=["placement"], memory=memory)["only node1"]
    assert only["why"] == "" and ("split_mode" in only["services"]["chat"]) == kept


def rows(one):
    """{device: MiB} of the head's node."""
    devices = one["plan"]["services"]["chat"][0]["devices"]
    return {row["device"]: row["total_mib"] for row in devices if row["node"] == "node1"}


def processors(memory):
    return {name: dict(main_memory(name, memory), cores=16, physical_cores=8) for name in GROUPS["all"]}


def test_worker_on_loopback_has_what_the_head_had():
    split = by_name(chat(model="small", quant="Q8_0", force_split=True), axes=["placement"])
    assert split[LOOPBACK]["why"] == "" and rows(split[LOOPBACK]) == rows(split["only node1"])
    found = by_name(chat(**ALONE), axes=["placement"])
    assert rows(found[LOOPBACK]) == rows(found[BASELINE]) and not found[LOOPBACK]["restarts_workers"]
    several = nodes(node1={"devices": three_nodes.cards("node1", 32510, 32510), "cores": 40})
    assert rows(by_name(chat(**ALONE), axes=["placement"], memory=several)[LOOPBACK])["GPU1"] == 0


def test_processor_holds_worker_and_head():
    """Both have the memory of one node, where weights that a head shares with its output are there twice."""
    for service in (ALONE, {**ALONE, "cards": []}):
        found = by_name(chat(**service), axes=["placement"], memory=processors(64000))
        (single,), (both,) = rows(found[BASELINE]).values(), rows(found[LOOPBACK]).values()
        assert both > single and found[LOOPBACK]["why"] == ""
        assert found[LOOPBACK]["services"]["chat"]["threads"] == 8
    found = by_name(chat(**ALONE), axes=["placement"], memory=processors(both - 1))
    assert found[BASELINE]["plan"]["refused"] == []
    assert f"{both} MiB are needed on main of node1 and {both - 1} MiB are there" in found[LOOPBACK]["why"]


def test_loopback_has_a_port_of_no_service():
    services = chat(**{**ALONE, "port": 50053})
    services["other"] = dict(services["chat"], port=8001, head="node2", workers="node3", rpc_port=50052)
    one = by_name(services, axes=["placement"])[LOOPBACK]
    assert one["services"]["chat"]["rpc_port"] == 50054


@pytest.mark.parametrize(("key", "value"), [("cards", []), ("cache_ram", 512)])
def test_loopback_is_refused_as_workers_are(key, value):
    found = by_name(chat(**{**ALONE, key: value}), axes=["placement"])
    assert found[LOOPBACK]["why"].startswith(f"{key}: ") and "seen with workers" in found[LOOPBACK]["why"]


def test_replica_that_is_measured_has_the_worker():
    services = chat(**ALONE, head="llama_rpc")
    found = by_name(services, axes=["placement"], node="node3")
    parts = found[LOOPBACK]["plan"]["services"]["chat"]
    assert found[LOOPBACK]["why"] == "" and [part["node"] for part in parts] == ["node3"]


def test_unknown_axis_is_refused():
    with pytest.raises(Refusal, match=r"tune: axes thread seen.*threads"):
        candidates(chat(**ALONE), axes=["thread"])


def test_total_needs_several_slots():
    """With one slot there is no figure of several requests, and no candidate could win."""
    with pytest.raises(Refusal, match=r"goal total seen, a candidate with several slots is needed"):
        candidates(chat(**ALONE), axes=["flash_attn"], goal="total")
    assert len(candidates(chat(**{**ALONE, "parallel": 2}), axes=["flash_attn"], goal="total")) == 2
