# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.devices import main_memory, of_cards
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.cards import (
    card_errors,
    cards,
    inventory_cards,
    plan_cards,
)

GROUPS = {"all": ["a", "b"], "llama_nodes": ["a", "b"], "unused": []}
DESCRIBED = {
    "a": {"llama_devices": [{"name": "H200", "memory_mib": 143771}, {"memory_mib": 24000}]},
    "b": {"llama_devices": [{"memory_mib": 9000}]},
}


def errors(devices="", hostvars=None, nodes="llama_nodes", each=True, groups=None):
    return card_errors(devices, nodes, groups or GROUPS, hostvars or DESCRIBED, each)


@pytest.mark.parametrize(
    "text, found",
    [
        ("3x32510, 24000", [("node1", 32510), ("node2", 32510), ("node3", 32510), ("node4", 24000)]),
        ("24GB", [("node1", 24576)]),
        ("24GiB,24gb,24G,24576MiB", [("node%d" % number, 24576) for number in (1, 2, 3, 4)]),
        (
            "2x24GB+12GB,48GB",
            [("node1", 24576), ("node1", 12288), ("node2", 24576), ("node2", 12288), ("node3", 49152)],
        ),
    ],
)
def test_cards_as_they_are_typed(text, found):
    assert [(card["node"], card["memory_mib"]) for card in cards(text)] == found


def test_a_node_without_a_card():
    typed = cards("24GB,2xmain:256GB")
    assert [(card["node"], card.get("main", False), card["memory_mib"]) for card in typed] == [
        ("node1", False, 24576),
        ("node2", True, 262144),
        ("node3", True, 262144),
    ]
    assert [device.device for device in of_cards(typed, 1024)] == ["GPU0", "main", "main"]


def test_main_memory_beside_cards():
    """It holds no layers, and experts."""
    typed = cards("2x24GB+12GB+main:256GB")
    assert [(card["memory_mib"], card.get("main", False)) for card in typed] == [
        (24576, False),
        (12288, False),
        (262144, True),
    ] * 2
    assert [device.device for device in of_cards(typed, 1024)] == ["GPU0", "GPU1"] * 2
    groups = {"all": ["a", "b"], "llama_nodes": ["a", "b"]}
    planned = plan_cards("24GB+main:256GB,48GB", groups, {"a": {}, "b": {}}, "llama_nodes", 1024)
    assert planned["main"] == {"a": main_memory("a", {"memory_mib": 262144}, 1024).as_dict(), "b": {}}
    described = {"a": {"llama_devices": [{"memory_mib": 24000}, {"main": True, "memory_mib": 64000}]}}
    own = plan_cards("", {"all": ["a"], "llama_nodes": ["a"]}, described, "llama_nodes", 1024)
    assert (own["main"]["a"]["total_mib"], len(own["devices"]["a"])) == (64000, 1)


@pytest.mark.parametrize(
    "text",
    [
        "main:",
        "main:256GB+24GB",
        "24GB+main:",
        "main:24GB+main:256GB",
        "",
        "3x",
        "3x0",
        "32TB",
        "0x32510",
        "3*32510",
        "24GB+",
        "2x2x24GB",
        "24.5GB",
    ],
)
def test_what_is_no_card(text):
    with pytest.raises(Refusal, match="COUNTxSIZE such as 3x24GB is needed"):
        cards(text)
    assert errors(text or "x")[0].startswith("devices: ")


def test_cards_of_an_inventory():
    assert [(card["node"], card["name"]) for card in inventory_cards(["a", "b"], DESCRIBED, GROUPS)] == [
        ("a", "H200"),
        ("a", "GPU"),
        ("b", "GPU"),
    ]


def test_default_nodes_are_nodes_with_cards():
    groups = {"all": list("ab"), "llama_nodes": list("ab")}
    card, main = {"llama_devices": [{"memory_mib": 24000}]}, {"llama_devices": [{"main": True, "memory_mib": 256000}]}
    assert [one["node"] for one in inventory_cards([], {"a": main, "b": card}, groups)] == ["b"]
    assert [one["node"] for one in inventory_cards([], {"a": main, "b": main}, groups)] == ["a", "b"]


def test_enough_cards_are_no_mistake():
    assert errors() == [] and errors("2x24GB") == [] and errors("24GB+24GB,48GB", {"a": {}, "b": {}}) == []
    assert errors("5x24GB", nodes="unused", each=False) == []


@pytest.mark.parametrize(
    "given, sentence",
    [
        (
            {"nodes": "llama_nodes", "groups": {"all": []}, "each": False},
            "devices: none given, and no inventory with nodes in group llama_nodes, one of them is needed: run with -e "
            "devices=48GB,24GB+24GB, or with -i ",
        ),
        ({"devices": "5x24GB"}, "devices: 5 nodes seen, 2 are needed, one for each of a, b: give such as 2x24GB"),
        (
            {"hostvars": {"a": DESCRIBED["a"], "b": {}}},
            "llama_devices: missing for b, the memory of each card is needed to plan without asking nodes: ",
        ),
        ({"hostvars": {"a": {}, "b": {}}, "each": False}, "llama_devices: missing for a, b, "),
        ({"nodes": "unused", "each": False}, "llama_devices: missing for unused, "),
        (
            {"nodes": "a,bb", "each": False},
            "nodes: bb is neither a host nor a group of this inventory, did you mean b?",
        ),
        (
            {"hostvars": {"a": {"llama_devices": [{"name": "RTX 3090"}]}, "b": DESCRIBED["b"]}},
            "llama_devices: card 1 without memory_mib seen for a, ",
        ),
        (
            {"hostvars": {"a": {"llama_devices": [{"memory_mib": "24GB"}]}, "b": DESCRIBED["b"]}},
            "llama_devices.1.memory_mib: '24GB' seen for a, ",
        ),
        (
            {"hostvars": {"a": {"llama_devices": {"memory_mib": 24576}}, "b": DESCRIBED["b"]}},
            "llama_devices: a map of 1 seen for a, a list of maps is needed: ",
        ),
    ],
)
def test_each_mistake_is_one_sentence(given, sentence):
    (found,) = errors(**given)
    assert found.startswith(sentence)
    assert "32510" not in found


def test_what_was_written_becomes_cards_and_devices():
    assert plan_cards("", GROUPS, DESCRIBED) == {
        "refused": [],
        "cards": inventory_cards([], DESCRIBED, GROUPS),
        "devices": {},
        "main": {},
    }
    assert [card["node"] for card in plan_cards("", GROUPS, DESCRIBED, "b")["cards"]] == ["b"]
    typed = plan_cards("24GB+12GB,48GB", GROUPS, {"a": {}, "b": {}}, "llama_nodes", 1024)
    assert (typed["refused"], [card["node"] for card in typed["cards"]]) == ([], ["node1", "node1", "node2"])
    seen = {
        node: [(one["node"], one["device"], one["total_mib"], one["margin_mib"]) for one in devices]
        for node, devices in typed["devices"].items()
    }
    assert seen == {
        "a": [("a", "GPU0", 24576, 1024), ("a", "GPU1", 12288, 1024)],
        "b": [("b", "GPU0", 49152, 1024)],
    }
    own = plan_cards("", GROUPS, DESCRIBED, "llama_nodes", 0)["devices"]
    assert [device["name"] for device in own["a"] + own["b"]] == ["H200", "GPU", "GPU"]
    refused = plan_cards("5x24GB", GROUPS, DESCRIBED, "llama_nodes", 1024)
    assert refused == {"refused": errors("5x24GB"), "cards": [], "devices": {}, "main": {}}


@pytest.mark.parametrize(
    ("nodes", "hostvars", "end"),
    [
        ("unused", {}, "or run with -e devices=1x24GB"),
        ("a", {"a": {}}, "or run with -e devices=1x24GB"),
        ("llama_nodes", {"a": {}, "b": {}}, "or run with -e devices=2x24GB"),
    ],
)
def test_next_step_has_card_for_each_node(nodes, hostvars, end):
    (found,) = errors(nodes=nodes, hostvars=hostvars or DESCRIBED, each=False)
    assert found.endswith(end)


@pytest.mark.parametrize("groups", [{"all": []}, {"all": [], "llama_nodes": []}])
def test_inventory_without_nodes_needs_cards_that_are_typed(groups):
    (found,) = errors(groups=groups, each=False)
    assert found.startswith("devices: none given, and no inventory with nodes")
    assert errors("24GB", groups=groups, each=False) == []


@pytest.mark.parametrize(
    ("text", "mib"),
    [("1", 1), ("24576MB", 24576), ("2gib", 2048), ("2g", 2048), ("10GB", 10240), ("99x1", 1)],
)
def test_a_size_in_each_unit(text, mib):
    found = cards(text)
    assert {card["memory_mib"] for card in found} == {mib}
    assert [card["node"] for card in found] == ["node%d" % number for number in range(1, len(found) + 1)]
    assert len(found) == (99 if "x" in text else 1)
    assert found[0] == {"name": "GPU", "node": "node1", "memory_mib": mib}


def test_node_with_card_and_main_memory_has_cards():
    both = {"llama_devices": [{"main": True, "memory_mib": 9000}, {"memory_mib": 24000}]}
    main = {"llama_devices": [{"main": True, "memory_mib": 9000}]}
    groups = {"all": ["a", "b"], "llama_nodes": ["a", "b"]}
    assert [card["node"] for card in inventory_cards([], {"a": both, "b": main}, groups)] == ["a", "a"]
    assert inventory_cards([], {"a": {}, "b": {"llama_devices": None}}, groups) == []
