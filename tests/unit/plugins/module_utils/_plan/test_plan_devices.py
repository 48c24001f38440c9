# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import nvidia_smi
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.devices import (
    Device,
    as_dicts,
    of_cards,
    of_inventory,
    of_node,
)

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"


def gpus(name):
    return nvidia_smi.parse((FIXTURES / name).read_text())["gpus"]


def gpu(index, total=32768, used=0, **more):
    fields = {
        "index": index,
        "name": "Tesla V100S-PCIE-32GB",
        "uuid": "GPU-%04d" % index,
        "memory_total_mib": total,
        "memory_used_mib": used,
    }
    return dict(
        fields, **dict({"memory_free_mib": total - used - 258, "processes": [], "mig": None, "mig_devices": []}, **more)
    )


def process(pid, used, name="/opt/llama.cpp/current/bin/llama-server"):
    return {"pid": pid, "memory_used_mib": used, "name": name}


def test_real_cards():
    for card, device in zip(
        gpus("nvidia_smi_535_v100s.xml"), of_node("node1", gpus("nvidia_smi_535_v100s.xml"), 384000, 1024)
    ):
        assert device.kind == "GPU" and device.bandwidth == 1134
        assert device.total_mib == card["memory_used_mib"] + card["memory_free_mib"] <= card["memory_total_mib"]


def test_a_mig_instance_is_what_a_process_sees():
    (card,) = gpus("nvidia_smi_550_a100_mig.xml")[:1]
    assert card["mig"]
    device = of_node("node1", [card], 1, 1024)[0]
    assert device.total_mib <= card["mig_devices"][0]["memory_total_mib"] < card["memory_total_mib"]


def test_a_device_is_known_by_its_uuid():
    assert [device.uuid for device in of_node("n", [gpu(0), gpu(1)], 1, 1024)] == ["GPU-0000", "GPU-0001"]
    part = {"memory_total_mib": 9, "memory_used_mib": 0, "memory_free_mib": 9, "uuid": "MIG-1"}
    for uuid, known in (("MIG-1", "MIG-1"), (None, "")):
        assert of_node("n", [gpu(0, mig=True, mig_devices=[dict(part, uuid=uuid)])], 1, 1024)[0].uuid == known
    assert of_node("n", [], 1, 1024)[0].uuid == of_inventory("n", [{"memory_mib": 9}], 1)[0].uuid == ""


def test_our_own_process_is_nobody_else():
    card = gpu(0, used=20000, processes=[process(7, 18000), process(8, None)])
    assert of_node("n", [card], 1, 1024, [7, 8])[0].others_mib == 2000
    assert of_node("n", [card], 1, 1024)[0].others_mib == 20000
    assert of_node("n", [gpu(0, processes=None)], 1, 1024)[0].others_mib == 0
    # The driver counts what two processes share for each of them.
    assert (
        of_node("n", [gpu(0, used=100, processes=[process(7, 60), process(8, 60)])], 1, 1024, [7, 8])[0].others_mib == 0
    )


def test_the_largest_processes_of_others_are_named():
    jobs = [process(number, 100 * number, "/opt/vasp/bin/vasp\x1b_std") for number in range(1, 6)] + [
        process(9, 30000),
        process(8, None, None),
    ]
    others = of_node("n", [gpu(0, used=20000, processes=jobs)], 1, 1024, [9])[0].others
    assert others == {"vasp?_std[5]": 500, "vasp?_std[4]": 400, "vasp?_std[3]": 300, "3 more processes": 300}
    assert of_node("n", [gpu(0, processes=[process(8, None, None)])], 1, 1024)[0].others == {"?[8]": None}


@pytest.mark.parametrize(
    "visible, found", [(None, [0, 1]), ("1", [1]), ("1,0", [1, 0]), ("GPU-0001", [1]), (0, [0]), ("0,9,1", [0])]
)
def test_only_the_visible_cards(visible, found):
    devices = of_node("n", [gpu(0), gpu(1)], 1, 1024, visible=visible)
    assert [device.device for device in devices] == ["GPU%d" % index for index in found]


def test_a_node_without_a_card_has_its_main_memory():
    assert of_node("n", [], 7812, 1024) == [
        Device(
            node="n",
            device="main",
            name="main memory",
            kind="main",
            total_mib=7812,
            others_mib=0,
            margin_mib=1024,
            bandwidth=None,
        )
    ]
    assert of_node("n", [gpu(0)], 7812, 1024, visible="")[0].kind == "main"


def test_main_memory_of_an_inventory_is_no_card():
    (device,) = of_inventory("mem1", [{"main": True, "memory_mib": 257000, "bandwidth": 200, "name": "RTX 3090"}], 1024)
    assert (device.kind, device.device, device.bandwidth, device.total_mib) == ("main", "main", 200, 257000)
    assert of_inventory("mem1", [{"main": True, "memory_mib": 257000}], 1024)[0].bandwidth is None
    # llama.cpp computes there only on a node without a GPU.
    both = of_inventory("n", [{"main": True, "memory_mib": 257000}, {"name": "RTX 3090", "memory_mib": 24576}], 1024)
    assert [(one.kind, one.device, one.bandwidth) for one in both] == [("GPU", "GPU0", 936)]


def test_a_bandwidth_that_the_inventory_gives_counts_more_than_the_table():
    described = [{"name": "any", "memory_mib": 1, "bandwidth": 77}, {"memory_mib": 1}]
    assert [one.bandwidth for one in of_node("n", [gpu(0), gpu(1)], 1, 1024, described=described)] == [77, 1134]
    assert of_node("n", [], 1, 1024, described=[{"main": True, "memory_mib": 9, "bandwidth": 50}])[0].bandwidth == 50


def test_cards_of_one_node_have_numbers_of_their_own():
    devices = of_cards(
        [{"node": "a", "memory_mib": 1}, {"node": "b", "memory_mib": 2}, {"node": "a", "memory_mib": 3}], 0
    )
    assert [(one.node, one.device, one.total_mib) for one in devices] == [
        ("a", "GPU0", 1),
        ("a", "GPU1", 3),
        ("b", "GPU0", 2),
    ]


def test_a_filter_returns_what_the_plan_reads_again():
    devices = of_node("n", [gpu(0, used=20000, processes=[process(8, 19000)])], 1, 1024)
    (told,) = as_dicts(devices)
    assert told["others"] == {"llama-server[8]": 19000} and told["kind"] == "GPU"
    assert [Device(**told)] == devices
    # What other services of a plan have of a device is known in that plan alone.
    assert as_dicts([devices[0]._replace(claimed_mib=5)]) == [told]


@pytest.mark.parametrize(("total", "others", "claimed", "margin", "mib"), [(9, 0, 0, 0, 9), (900, 5, 30, 200, 665)])
def test_the_room_of_a_device_is_what_nobody_else_has(total, others, claimed, margin, mib):
    device = Device("n", "GPU0", "x", "GPU", total, others, margin, claimed_mib=claimed)
    assert device.room() == mib << 20 and device.free_mib() == mib + margin


def test_what_a_driver_does_not_tell_counts_as_free():
    untold = gpu(0, memory_used_mib=None, memory_free_mib=None)
    (device,) = of_node("n", [untold], 1, 1024)
    assert (device.total_mib, device.others_mib) == (32768, 0)
    (device,) = of_node("n", [gpu(0, memory_used_mib=None, memory_free_mib=30000)], 1, 1024)
    assert (device.total_mib, device.others_mib) == (30000, 0)
    (device,) = of_node("n", [gpu(0, used=500, memory_free_mib=None)], 1, 1024)
    assert (device.total_mib, device.others_mib) == (32768, 500)


def test_three_processes_are_named_each():
    jobs = [process(number, number, "x" * 41) for number in (1, 2, 3)]
    others = of_node("n", [gpu(0, processes=jobs)], 1, 1024)[0].others
    assert others == {"%s...[%d]" % ("x" * 40, number): number for number in (1, 2, 3)}


def test_a_card_with_mig_and_without_an_instance_is_itself():
    instance = dict.fromkeys(("memory_used_mib", "memory_free_mib"), 7)
    for more, total in (
        ({"mig": True, "mig_devices": []}, 32510),
        ({"mig": True, "mig_devices": [dict(instance, memory_total_mib=99), instance]}, 14),
        ({"mig": False, "mig_devices": [instance]}, 32510),
    ):
        assert of_node("n", [gpu(0, **more)], 1, 1024)[0].total_mib == total


def test_a_card_without_memory_is_none_and_may_be_asked_for():
    assert [one.kind for one in of_node("n", [gpu(0, total=0)], 9, 1024)] == ["main"]
    assert [one.device for one in of_node("n", [gpu(0, memory_total_mib=None), gpu(1)], 9, 0)] == ["GPU1"]


def test_devices_that_nobody_looked_at():
    (card, other) = of_inventory("n", [{"memory_mib": "5"}, {"name": "RTX 3090", "memory_mib": 6}], "7")
    assert card == Device("n", "GPU0", "GPU", "GPU", 5, 0, 7)
    assert (other.device, other.bandwidth, other.room()) == ("GPU1", 936, -1 << 20)
    assert of_inventory("n", [], 0) == []
    mains = [{"main": True, "memory_mib": 5}, {"main": True, "memory_mib": 6}]
    assert [one.total_mib for one in of_inventory("n", mains, 0)] == [5], "a node has one main memory"
