# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways in which a service's model can be served with the same flags."""

import json
import math

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.variants import variants
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.services import head_instances
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import (
    GROUPS,
    MODELS,
    chat,
    described,
    main_memory,
    nodes,
)

HOSTVARS = {name: {"llama_fabric_address": "10.1.0.%d" % index} for index, name in enumerate(GROUPS["all"], 1)}
SMALL = {"model": "small", "quant": "Q8_0"}


def planned(services, memory=None, headers=(), models=None, previous=()):
    memory, models = memory or nodes(), models or MODELS
    plan = json.loads(json.dumps(memory_plan(services, models, GROUPS, memory, headers)))
    (head,) = head_instances(services, models, "node1", GROUPS, HOSTVARS, "/opt/models", plan)
    found = variants(services, head.as_dict(), models, GROUPS, memory, headers, {}, previous, plan, 100)
    return {one["name"]: one for one in found["variants"]}


def test_variants_of_split():
    found = planned(chat(**SMALL, force_split=True))
    assert list(found) == ["all", "local", "loopback", "one"]
    assert [one["title"] for one in found.values()] == ["2 workers", "only node1", "RPC on loopback", "worker node2"]
    assert [one["running"] for one in found.values()] == [True, False, False, False]
    assert {one["why"] for one in found.values()} == {""}
    assert found["all"]["rpc_endpoints"] == ["10.1.0.2:50052", "10.1.0.3:50052"]
    assert found["local"]["rpc_endpoints"] == [] and found["local"]["tensor_split"] == []
    # All layers and the output behind RPC, nothing on the card that the head sees too.
    assert found["loopback"]["tensor_split"] == [13] and found["loopback"]["loopback"] is True
    assert found["one"]["rpc_endpoints"] == ["10.1.0.2:50052"] and found["one"]["workers"] == ["node2"]
    assert sum(found["one"]["tensor_split"]) == 13 and len(found["one"]["tensor_split"]) == 2


def test_inventory_layers_apply_only_to_deployed_variant():
    layers = {"node1": 2, "node2": 5, "node3": 5}
    found = planned(chat(**SMALL, force_split=True, tensor_split=layers))
    assert found["all"]["tensor_split"] == [5, 5, 3]
    assert found["one"]["why"] == "" and sum(found["one"]["tensor_split"]) == 13


def test_main_memory_is_no_device_beside_rpc_server():
    found = planned(chat(**SMALL, force_split=True), {name: main_memory(name, 64000) for name in GROUPS["all"]})
    assert found["loopback"]["tensor_split"] == [] and found["loopback"]["why"] == ""
    assert found["one"]["tensor_split"] == []


def test_loopback_keeps_split_of_several_cards():
    two = {"devices": described("node1", {"memory_mib": 9500}, {"memory_mib": 9500}), "cores": 40}
    found = planned(chat(**SMALL, force_split=True), nodes(node1=two))
    assert len(found["local"]["tensor_split"]) == 2 and sum(found["local"]["tensor_split"]) == 13
    assert found["loopback"]["tensor_split"] == found["local"]["tensor_split"]


def test_variants_with_one_worker_and_none():
    found = planned(chat(**SMALL, force_split=True, workers="node3"))
    assert list(found) == ["all", "local", "loopback"] and found["all"]["title"] == "worker node3"
    found = planned(chat(**SMALL, workers=None, rpc_port=None))
    assert [(one["name"], one["running"]) for one in found.values()] == [("local", True), ("loopback", False)]


def test_misfit_variant_has_reason():
    found = planned(chat(quant="Q8_0"), nodes(33000))
    for name in ("local", "loopback"):
        assert found[name]["fits"] is False
        assert found[name]["why"].startswith("big Q8_0 with 8192 tokens a slot of f16 KV cache does not fit, ")
    assert "choose quant Q4_K_M" not in found["local"]["why"]  # 47 GB is too large, too
    assert "choose quant Q4_K_M (47.0 GB)" in planned(chat(quant="Q8_0"), nodes(60000))["local"]["why"]
    assert found["one"]["fits"] is False and found["all"]["why"] == ""


def test_other_services_of_the_node_keep_their_memory():
    beside = {"model": "small", "quant": "Q8_0", "head": "node1", "port": 8001, "ctx_size": 4096, "parallel": 1}
    services = {**chat(**SMALL, force_split=True), "beside": beside}
    assert planned({"chat": services["chat"]}, nodes(24000))["local"]["why"] == ""
    plan = memory_plan(services, MODELS, GROUPS, nodes(24000))
    heads = head_instances(services, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models", plan)
    head = next(one for one in heads if one.service == "chat").as_dict()
    found = variants(services, head, MODELS, GROUPS, nodes(24000), [], {}, [], plan, 100)
    # Two of the four are not tried: one worker and the deployed one load, and one generates.
    assert "are there beside beside" in next(one for one in found["variants"] if one["name"] == "local")["why"]
    weights = sum(row["weights_mib"] for row in plan["services"]["chat"][0]["devices"])
    assert found["minutes"] == math.ceil((2 * weights / 200 + 100 / 10) / 60) > 2


def test_model_that_cannot_be_planned_is_not_tried():
    found = planned(chat(model="unknown", quant="Q8_0", tensor_split={"node1": 4, "node2": 4, "node3": 4}))
    assert "its header was not read" in found["local"]["why"] and found["local"]["fits"] is True


# The ceiling: bytes of weights that each device reads for a token, by its bandwidth.


def dense(*bandwidths):
    """A dense model of which the header was read, on three nodes with cards of these bandwidths."""
    header = {"item": {"model": "big", "quant": "Q4_K_M"}, "shape": mixture.HEADERS[1]["shape"]}
    cards = [{"memory_mib": 40000, "bandwidth": rate} for rate in bandwidths]
    memory = {name: {"devices": described(name, card)} for name, card in zip(GROUPS["all"], cards, strict=True)}
    return planned(chat(force_split=True), memory, [header])


def test_the_ceiling_is_one_after_the_other():
    found = dense(1000, 1000, 1000)
    read = sum(mixture.DENSE.block_bytes) + mixture.DENSE.output_bytes
    for name in ("all", "local", "loopback", "one"):
        assert found[name]["ceiling"] == pytest.approx(1e12 / read, rel=1e-3)


def test_slow_worker_lowers_ceiling_of_its_variants():
    found = dense(1000, 100, 1000)
    assert found["local"]["ceiling"] > found["all"]["ceiling"] > 0
    assert found["one"]["ceiling"] < found["local"]["ceiling"]


def test_one_unknown_bandwidth_is_no_ceiling():
    found = dense(1000, None, 1000)
    assert found["all"]["ceiling"] is None and found["local"]["ceiling"] is not None


def test_experts_count_as_far_as_token_uses_them():
    shape = mixture.SHAPE
    cards = [{"memory_mib": 300000, "bandwidth": 1000}]
    memory = {"node1": {"devices": described("node1", *cards), "cores": 40}}
    services = {"chat": dict(mixture.SERVICE)}
    found = planned(services, memory, mixture.HEADERS, mixture.MODELS)
    experts = sum(shape.expert_bytes)
    read = sum(shape.block_bytes) - experts + experts * shape.n_expert_used / shape.n_expert + shape.output_bytes
    assert found["local"]["ceiling"] == pytest.approx(1e12 / read, rel=1e-3)
    # Without a header the bytes of experts are unknown.
    assert planned(services, memory, models=mixture.MODELS)["local"]["ceiling"] is None


def test_expert_advice_is_for_local_variant():
    service = dict(mixture.SERVICE, workers="llama_rpc", rpc_port=50052)
    memory = {
        name: {"devices": described(name, {"memory_mib": 60000}), "main": main_memory(name, 257000)["devices"][0]}
        for name in GROUPS["all"]
    }
    found = planned({"chat": service}, memory, mixture.HEADERS, mixture.MODELS)
    assert found["all"]["why"] == "" and found["local"]["fits"] is False
    assert "set cpu_moe to auto, the experts of " in found["local"]["why"]
