# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes whose llama.cpp computes through Vulkan."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.vulkan import of_vulkan
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.estimate import estimate
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.services import head_instances, node_rpc
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import GROUPS, MODELS, chat, nodes, plan

ALONE = {"model": "small", "quant": "Q8_0", "head": "node1", "ctx_size": 4096, "parallel": 1}
IGPU = {"name": "AMD Radeon Graphics (RADV RAPHAEL_MENDOCINO)", "unified": True, "own_mib": 512}


def gpu(index, **more):
    known = {"index": index, "name": "AMD Radeon RX 7900 XTX (RADV NAVI31)", "unified": False, "own_mib": 0}
    sizes = {"memory_total_mib": 24560, "memory_used_mib": 0, "largest_tensor": 4294967292, "processes": []}
    return {**known, **sizes, **more}


def node(name, *gpus):
    """A node as preflight sees it."""
    found = of_vulkan(name, {"gpus": list(gpus), "reason": None}, 64000, 1024)
    (main,) = devices.as_dicts(devices.of_node(name, [], 64000, 1024))
    return {"devices": devices.as_dicts(found), "main": main, "cores": 16}


def known(*gpus):
    return nodes(**{name: node(name, *gpus) for name in ("node1", "node2", "node3")})


def test_units_name_cards_by_their_indices():
    found = plan({"a": dict(ALONE, cards=[2]), "b": dict(ALONE, cards=1)}, known(gpu(0), gpu(2)))
    assert (found["cards"], found["refused"]) == ({"a": {"node1": ["2"]}, "b": {"node1": ["0"]}}, [])
    assert plan({"a": ALONE}, known(gpu(0), gpu(2)))["cards"] == {}


def test_units_leave_integrated_graphics_out():
    """A head would not use them beside a card, a worker would."""
    found = plan(chat(), known(gpu(0), gpu(1, **IGPU)))
    assert found["refused"] == []
    assert found["cards"] == {"chat": {name: ["0"] for name in ("node1", "node2", "node3")}}
    hostvars = {
        name: {"llama_fabric_address": "10.0.0.%s" % name[-1], "preflight_plan": found}
        for name in GROUPS["llama_nodes"]
    }
    (head,) = head_instances(chat(), MODELS, "node1", GROUPS, hostvars, "/m", found)
    (worker,) = node_rpc(chat(), "node2", GROUPS, hostvars, found)["workers"]
    assert (head.cards, worker["cards"]) == (["0"], ["0"])


def test_cards_of_two_vendors_serve_together():
    held = [{"pid": 7, "name": "llama-server", "memory_used_mib": 9000}]
    other = {"name": "NVIDIA GeForce RTX 3090", "memory_used_mib": 9000, "processes": held}
    given = known(gpu(0, **other, memory_total_mib=24576), gpu(1))
    for name in given:
        assert [one["others_mib"] for one in given[name]["devices"]] == [9000, 0]
    found = of_vulkan("n", {"gpus": [gpu(0, **other), gpu(1)], "reason": None}, 64000, 1024, [7])
    assert [(one.others_mib, one.bandwidth) for one in found] == [(0, 936), (0, 960)]
    assert plan({"a": ALONE, "b": dict(ALONE, cards=[1])}, given)["refused"] == []


def header(**more):
    """The header of model small, with these sizes of its largest tensors."""
    shape = estimate(MODELS["small"]["header"], 4 << 30)._replace(**more)
    return [{"item": {"model": "small", "quant": "Q8_0"}, "shape": shape.as_dict()}]


@pytest.mark.parametrize(
    ("limit", "tensors", "keys"),
    [
        (4294967292, {"largest": 4 << 30}, ["model"]),
        (4294967292, {"largest": (4 << 30) - (1 << 20)}, []),
        # An expert's too, but where all experts lie in main memory.
        (4294967292, {"largest_expert": 5 << 30}, ["model"]),
        (4294967292, {"largest_expert": 5 << 30, "cpu_moe": 80}, []),
        # Without vulkaninfo.
        (None, {"largest": 1100 << 20}, ["model"]),
        (None, {"largest": 900 << 20}, []),
        (1 << 20, {}, ["slot_ctx_size"]),
    ],
)
def test_tensor_beyond_the_driver_is_refused(limit, tensors, keys):
    refused = plan({"a": ALONE}, known(gpu(0, largest_tensor=limit)), header(**tensors))["refused"]
    assert [sentence.split(": ")[0] for sentence in refused] == [f"llama_services.a.{key}" for key in keys]
    words = f"at most {(limit or 1 << 30) >> 20} MiB are allowed by the driver of GPU0 of node1"
    assert all(words in sentence for sentence in refused)
