# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _nvidia_smi
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan_devices import bandwidth, cards, inventory_cards, of_node

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def gpus(name):
    return _nvidia_smi.parse((FIXTURES / name).read_text())["gpus"]


def gpu(index, total=32768, used=0, **more):
    fields = {"index": index, "name": "Tesla V100S-PCIE-32GB", "uuid": "GPU-%04d" % index, "memory_total_mib": total, "memory_used_mib": used}
    return dict(fields, **dict({"memory_free_mib": total - used - 258, "processes": [], "mig": None, "mig_devices": []}, **more))


def test_real_cards():
    for card, device in zip(gpus("nvidia_smi_535_v100s.xml"), of_node("node1", gpus("nvidia_smi_535_v100s.xml"), 384000, 1024)):
        assert device["kind"] == "GPU" and device["bandwidth"] == 1134
        assert device["total_mib"] == card["memory_used_mib"] + card["memory_free_mib"] <= card["memory_total_mib"]


def test_a_mig_instance_is_what_a_process_sees():
    (card,) = gpus("nvidia_smi_550_a100_mig.xml")[:1]
    assert card["mig"]
    device = of_node("node1", [card], 1, 1024)[0]
    assert device["total_mib"] <= card["mig_devices"][0]["memory_total_mib"] < card["memory_total_mib"]


def test_our_own_process_is_nobody_else():
    card = gpu(0, used=20000, processes=[{"pid": 7, "memory_used_mib": 18000}, {"pid": 8, "memory_used_mib": None}])
    assert of_node("n", [card], 1, 1024, [7, 8])[0]["others_mib"] == 2000
    assert of_node("n", [card], 1, 1024)[0]["others_mib"] == 20000
    assert of_node("n", [gpu(0, processes=None)], 1, 1024)[0]["others_mib"] == 0


@pytest.mark.parametrize("visible, found", [(None, [0, 1]), ("1", [1]), ("1,0", [1, 0]), ("GPU-0001", [1]), (0, [0]), ("0,9,1", [0])])
def test_only_the_visible_cards(visible, found):
    devices = of_node("n", [gpu(0), gpu(1)], 1, 1024, visible=visible)
    assert [device["device"] for device in devices] == ["GPU%d" % index for index in found]


def test_a_node_without_a_card_has_its_main_memory():
    assert of_node("n", [], 7812, 1024) == [
        {"node": "n", "device": "main", "name": "main memory", "kind": "main", "total_mib": 7812, "others_mib": 0, "margin_mib": 1024, "bandwidth": None}
    ]
    assert of_node("n", [gpu(0)], 7812, 1024, visible="")[0]["kind"] == "main"


def test_cards_as_they_are_typed():
    assert [card["memory_mib"] for card in cards("3x32510, 24000")] == [32510, 32510, 32510, 24000]
    assert [card["name"] for card in cards("2x1")] == ["node1", "node2"]


@pytest.mark.parametrize("text", ["", "3x", "3x0", "32GB", "0x32510", "3*32510"])
def test_what_is_no_card(text):
    with pytest.raises(ValueError, match="COUNTxMIB such as 3x32510 is needed"):
        cards(text)


def test_bandwidths_go_by_the_longest_name():
    assert bandwidth("Tesla V100S-PCIE-32GB") == 1134
    assert bandwidth("Tesla V100-SXM2-32GB") == 900
    assert bandwidth("Some other card") is None and bandwidth(None) is None


def test_cards_of_an_inventory():
    hostvars = {"a": {"llama_devices": [{"name": "H200", "memory_mib": 143771}, {"memory_mib": 24000}]}, "b": {}}
    assert [(card["node"], card["name"]) for card in inventory_cards(["a", "b"], hostvars)] == [("a", "H200"), ("a", "GPU")]
