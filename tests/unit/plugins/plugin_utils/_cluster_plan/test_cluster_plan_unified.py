# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes whose card works in main memory, such as a DGX Spark."""

import re

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.cards import plan_cards
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.services import node_serving
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import FACTS

GB10 = {"name": "NVIDIA GB10", "memory_mib": 121690}
GROUPS = {"all": ["spark1", "spark2"], "llama_nodes": ["spark1", "spark2"]}
MODELS = {
    "giant": {"header": FACTS, "quants": {"Q": {"files": ["g"], "size": 180 * 10**9}}},
    "half": {"header": FACTS, "quants": {"Q": {"files": ["h"], "size": 70 * 10**9}}},
    "other": {"header": FACTS, "quants": {"Q": {"files": ["o"], "size": 30 * 10**9}}},
}
SERVICE = {"quant": "Q", "head": "spark1", "port": 8000, "ctx_size": 4096, "parallel": 1}


def spark(node, memory=GB10["memory_mib"]):
    """A node as preflight sees it."""
    card = dict.fromkeys(("memory_total_mib", "memory_used_mib", "memory_free_mib"))
    card.update(index=0, name="NVIDIA GB10", uuid="GPU-" + node, processes=[], memory_reason="N/A")
    looked = devices.of_node(node, [card], memory, 1024)
    (main,) = devices.of_node(node, [], memory, 1024)
    return {"devices": devices.as_dicts(looked), "main": main.as_dict(), "cores": 20}


NODES = {node: spark(node) for node in GROUPS["llama_nodes"]}


def plan(nodes=None, **services):
    whole = {name: dict(SERVICE, **keys) for name, keys in services.items()}
    return memory_plan(whole, MODELS, GROUPS, nodes or NODES)


def rows(found, name="chat"):
    return [(row["node"], row["device"], row["layers"] > 0) for row in found["services"][name][0]["devices"]]


def test_two_nodes_hold_what_one_cannot():
    (single,) = plan(chat={"model": "giant"})["hopeless"]
    assert "more than the" in single
    found = plan(chat={"model": "giant", "workers": "spark2"})
    assert found["refused"] == [] and found["services"]["chat"][0]["fits"]
    assert rows(found) == [("spark2", "GPU0", True), ("spark1", "GPU0", True), ("spark1", "main", False)]
    assert len(found["services"]["chat"][0]["tensor_split"]) == 2


def test_plan_without_nodes_is_that_with_them():
    hostvars = {node: {"llama_devices": [GB10]} for node in GROUPS["llama_nodes"]}
    reported = plan_cards("", GROUPS, hostvars, "llama_nodes", 1024)
    nodes = {
        node: {"devices": reported["devices"][node], "main": reported["main"][node], "cores": 20}
        for node in GROUPS["llama_nodes"]
    }
    for keys in ({"model": "giant", "workers": "spark2"}, {"model": "half", "cache_ram": 8192}):
        assert plan(nodes, chat=keys)["services"] == plan(chat=keys)["services"]


@pytest.mark.parametrize("first", ["chat", "kept"])
def test_card_and_main_memory_are_one_memory(first):
    """Memory on the card is not free in main memory, whichever service is planned first."""
    on_card, beside = {"model": "half"}, {"model": "half", "cards": [], "port": 8001}
    services = {first: on_card, "other": beside} if first == "chat" else {"zeta": on_card, first: beside}
    found = plan(**services)
    assert any("does not fit" in sentence for sentence in found["refused"])
    assert plan(chat=on_card, embed={"model": "other", "cards": [], "port": 8001})["refused"] == []


def apu(node, limit=102400, memory=127000):
    """A node whose card may use so many MiB of its main memory."""
    sizes = {"memory_total_mib": limit, "memory_used_mib": 0, "memory_free_mib": limit}
    card = dict(sizes, index=0, name="AMD Radeon 8060S", uuid="", processes=[], unified=True, own_mib=0)
    (main,) = devices.of_node(node, [], memory, 1024)
    looked = devices.of_node(node, [card], memory, 1024)
    return {"devices": devices.as_dicts(looked), "main": main.as_dict(), "cores": 16}


def args_of(found, node, services):
    """The arguments of the first head of a node, or of its router's first model."""
    hostvars = {one: {"llama_fabric_address": "10.0.0.%d" % number} for number, one in enumerate(GROUPS["all"], 1)}
    (head,) = node_serving(services, MODELS, node, GROUPS, hostvars, "/opt/models", found)["heads"]
    return " ".join(head["models"][0]["args"] if head.get("models") else head["args"])


def test_weights_are_not_mapped_in_shared_memory():
    chat = dict(SERVICE, model="half")
    found = plan(chat=chat)
    assert found["load_modes"] == {"chat": {"spark1": "dio"}}
    assert [line for line in found["lines"] if line.startswith("chat: load_mode: auto is dio, ")]
    assert "--load-mode dio" in args_of(found, "spark1", {"chat": chat})
    router = {"kind": "router", "head": "spark1", "port": 8080, "models": {"half": "Q"}, "ctx_size": 4096}
    found = memory_plan({"fast": router}, MODELS, GROUPS, NODES)
    assert "--load-mode dio" in args_of(found, "spark1", {"fast": router})
    for chosen in ({"load_mode": "mmap"}, {"mmap": True}, {"cards": []}):
        found = plan(chat=chat | chosen)
        assert found["load_modes"] == {} and "--load-mode dio" not in args_of(found, "spark1", {"chat": chat | chosen})


def test_limit_counts_weights_that_are_not_mapped():
    """The inputs, 1.2 GB of 70, are pages of their file only where they are mapped."""
    limit = {"model": "half", "memory_max": "1G"}
    (sentence,) = plan(chat=limit)["refused"]
    assert "memory_max: 1G seen" in sentence and plan(chat=limit | {"load_mode": "mmap"})["refused"] == []


def test_main_memory_beside_limit_of_card_is_free():
    nodes = {"spark1": apu("spark1"), "spark2": apu("spark2")}
    kept = {"model": "half", "cache_ram": 20000}
    assert plan(nodes, chat=kept)["refused"] == []
    # The card has room for what does not fit beside it.
    (row, main) = plan(nodes, chat=kept, other={"model": "other", "cards": [], "port": 8001})["services"]["chat"][0][
        "devices"
    ]
    assert row["free_mib"] == 102400 and main["kv_mib"] == 20000
    (sentence,) = plan(nodes, chat=dict(kept, cache_ram=60000))["refused"]
    assert "drop cache_ram" in sentence


def test_worker_shares_memory_with_services_of_its_node():
    split = {"model": "giant", "workers": "spark2"}
    assert plan(chat=split, other={"model": "half", "head": "spark2", "cards": [], "port": 8001})["refused"]


def test_memory_set_aside_is_not_main_memory():
    """A BC-250 of 16 GB, 12 of which the firmware set aside."""
    limit = {"memory_total_mib": 14088, "memory_used_mib": 0, "memory_free_mib": 14088}
    card = dict(limit, index=0, name="AMD BC-250", uuid="", processes=[], unified=True, own_mib=12288)
    (main,) = devices.of_node("spark1", [], 3600, 1024)
    node = {"devices": devices.as_dicts(devices.of_node("spark1", [card], 3600, 1024)), "main": main.as_dict()}
    models = {"small": {"header": FACTS, "quants": {"Q": {"files": ["s"], "size": 10 * 10**9}}}}
    service = dict(SERVICE, model="small", ctx_size=1024)
    assert memory_plan({"chat": service}, models, GROUPS, {"spark1": dict(node, cores=6)})["refused"] == []


def test_prompts_in_main_memory_take_from_the_card():
    assert plan(chat={"model": "half", "cache_ram": 8192})["refused"] == []
    (sentence,) = plan(chat={"model": "half", "cache_ram": 70000})["refused"]
    assert "drop cache_ram" in sentence


def test_head_counts_in_memory_of_its_card():
    """Where only the sum is too much, the sentence has both."""
    card, main = (row["total_mib"] for row in plan(chat={"model": "half"})["services"]["chat"][0]["devices"])
    nodes = {"spark1": spark("spark1", (card + main // 2) * 32 // 31)}
    (sentence,) = plan(nodes, chat={"model": "half"})["refused"]
    words = (
        r"does not fit, (\d+) MiB are needed on GPU0 of spark1, (\d+) MiB more in its main memory, which is the same "
        r"memory, and (\d+) MiB are there beside the system"
    )
    needed, more, there = map(int, re.search(words, sentence).groups())
    assert (needed, more) == (card, main) and needed < there < needed + more


def test_one_margin_is_kept_of_one_memory():
    part = plan(chat={"model": "half"})["services"]["chat"][0]
    assert [row["margin_mib"] for row in part["devices"]] == [1024, 0]


def test_router_counts_both_in_one_memory():
    router = {"kind": "router", "head": "spark1", "port": 8080, "models": {"half": "Q", "other": "Q"}, "ctx_size": 4096}
    together = memory_plan({"fast": router}, MODELS, GROUPS, NODES)
    assert [part["models_max"] for part in together["services"]["fast"]] == [2, 2]
    kept = memory_plan({"fast": dict(router, cache_ram=30000)}, MODELS, GROUPS, NODES)
    assert [part["models_max"] for part in kept["services"]["fast"]] == [1, 1]
