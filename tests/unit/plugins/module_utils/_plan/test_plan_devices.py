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
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

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


def test_managed_process_is_no_other_use():
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


def test_node_without_card_has_its_main_memory():
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


def test_bandwidth_that_inventory_gives_counts_more_than_table():
    described = [{"name": "any", "memory_mib": 1, "bandwidth": 77}, {"memory_mib": 1}]
    assert [one.bandwidth for one in of_node("n", [gpu(0), gpu(1)], 1, 1024, described=described)] == [77, 1134]
    assert of_node("n", [], 1, 1024, described=[{"main": True, "memory_mib": 9, "bandwidth": 50}])[0].bandwidth == 50


def test_name_of_inventory_gives_missing_bandwidth():
    described = [{"name": "RTX 3090", "memory_mib": 1}]
    assert of_node("n", [gpu(0, name="NVIDIA Graphics Device")], 1, 1024, described=described)[0].bandwidth == 936


def test_cards_are_numbered_by_node():
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
    (reported,) = as_dicts(devices)
    assert reported["others"] == {"llama-server[8]": 19000} and reported["kind"] == "GPU"
    assert [Device(**reported)] == devices
    # Claims of other services are part of one plan only.
    assert as_dicts([devices[0]._replace(claimed_mib=5)]) == [reported]


@pytest.mark.parametrize(("total", "others", "claimed", "margin", "mib"), [(9, 0, 0, 0, 9), (900, 5, 30, 200, 665)])
def test_room_of_device_excludes_other_uses(total, others, claimed, margin, mib):
    device = Device("n", "GPU0", "x", "GPU", total, others, margin, claimed_mib=claimed)
    assert device.room() == mib << 20 and device.free_mib() == mib + margin


def test_what_driver_does_not_tell_counts_as_free():
    untold = gpu(0, memory_used_mib=None, memory_free_mib=None)
    (device,) = of_node("n", [untold], 1, 1024)
    assert (device.total_mib, device.others_mib) == (32768, 0)
    (device,) = of_node("n", [gpu(0, memory_used_mib=None, memory_free_mib=30000)], 1, 1024)
    assert (device.total_mib, device.others_mib) == (30000, 0)
    (device,) = of_node("n", [gpu(0, used=500, memory_free_mib=None)], 1, 1024)
    assert (device.total_mib, device.others_mib) == (32768, 500)


def test_mig_card_is_its_first_instance():
    instance = dict.fromkeys(("memory_used_mib", "memory_free_mib"), 7)
    for more, total in (
        ({"mig": True, "mig_devices": [dict(instance, memory_total_mib=99), instance]}, 14),
        ({"mig": False, "mig_devices": [instance]}, 32510),
    ):
        assert of_node("n", [gpu(0, **more)], 1, 1024)[0].total_mib == total


def test_card_without_memory_is_no_device():
    assert [one.kind for one in of_node("n", [gpu(0, total=0)], 9, 1024)] == ["main"]
    assert [one.device for one in of_node("n", [gpu(0, memory_total_mib=None), gpu(1)], 9, 0)] == ["GPU1"]


def test_devices_of_inventory():
    (card, other) = of_inventory("n", [{"memory_mib": "5"}, {"name": "RTX 3090", "memory_mib": 6}], "7")
    assert card == Device("n", "GPU0", "GPU", "GPU", 5, 0, 7)
    assert (other.device, other.bandwidth, other.room()) == ("GPU1", 936, -1 << 20)
    assert of_inventory("n", [], 0) == []
    mains = [{"main": True, "memory_mib": 5}, {"main": True, "memory_mib": 6}]
    assert [one.total_mib for one in of_inventory("n", mains, 0)] == [5], "a node has one main memory"


def seen(gpus, visible, **more):
    return [one.device for one in of_node("n", gpus, 1, 0, visible=visible, **more) if one.kind == "GPU"]


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        ("", []),
        ("NoDevFiles", []),
        ("-1", []),
        (-1, []),
        ("0,-1,1", [0]),
        ("1,NoDevFiles,0", [1]),
        (" 1 , 0 ", [1, 0]),
        ("0,", [0]),
        ("01", [1]),
        ("GPU-0001, GPU-0000", [1, 0]),
        ("GPU-0001,-1", [1]),
    ],
)
def test_spellings_that_cuda_takes(visible, found):
    assert seen([gpu(0), gpu(1)], visible) == ["GPU%d" % index for index in found]


@pytest.mark.parametrize(
    ("visible", "word", "needed"),
    [
        ("0,0", "0", "each card once is"),
        ("0,00", "00", "each card once is"),
        ("GPU-0001,GPU-0001", "GPU-0001", "each card once is"),
        ("GPU-000", "GPU-000", "a UUID of one card"),
        ("GPU-9", "GPU-9", "a UUID of one card"),
        ("MIG-9", "MIG-9", "a UUID of one card or MIG instance"),
        ("0,GPU-0001", "GPU-0001", "only indices or only UUIDs"),
        ("GPU-0001,0", "0", "only indices or only UUIDs"),
        ("1gpu", "1gpu", "an index"),
        ("all", "all", "an index"),
        ("0;1", "0;1", "an index"),
        (True, "True", "an index"),
    ],
)
def test_spellings_that_hide_cards_are_refused(visible, word, needed):
    with pytest.raises(Refusal) as refused:
        seen([gpu(0), gpu(1)], visible)
    assert str(refused.value).startswith("n: %s in CUDA_VISIBLE_DEVICES seen, " % word) and needed in str(refused.value)


def test_mig_instance_is_found_by_its_name():
    def instance(number):
        sizes = {"memory_total_mib": 9 + number, "memory_used_mib": 0, "memory_free_mib": 9 + number}
        return dict(sizes, uuid="MIG-%d" % number, gpu_instance_id=number, compute_instance_id=0)

    cards = [gpu(0), gpu(1, mig=True, mig_devices=[instance(1), instance(2)])]
    for visible in ("MIG-2", "MIG-2,MIG-1", "MIG-GPU-0001/2/0"):
        (device,) = of_node("n", cards, 1, 0, visible=visible)
        assert (device.device, device.total_mib, device.uuid) == ("GPU1", 11, "MIG-2")
    with pytest.raises(Refusal, match="MIG-2 in CUDA_VISIBLE_DEVICES seen, only indices or only UUIDs"):
        seen(cards, "GPU-0001,MIG-2")


def untold(index=0, reason="N/A", name="NVIDIA GB10", **more):
    sizes = dict.fromkeys(("memory_total_mib", "memory_used_mib", "memory_free_mib"))
    return gpu(index, **dict(sizes, memory_reason=reason, name=name, **more))


@pytest.mark.parametrize("reason", ["N/A", "[N/A]", "Not Supported"])
@pytest.mark.parametrize("visible", [None, "0", "GPU-0000"])
def test_card_without_own_memory_has_main_memory(reason, visible):
    jobs = [process(7, 5000), process(8, 300), process(9, None)]
    (device,) = of_node("n", [untold(reason=reason, processes=jobs)], 121690, 1024, [7], visible)
    assert (device.kind, device.device, device.total_mib, device.unified) == ("GPU", "GPU0", 121690, True)
    assert (device.others_mib - device.others["the system"], device.bandwidth) == (300, 273)


@pytest.mark.parametrize(
    ("name", "total", "memory", "own", "expected"),
    [
        # All of main memory, of which the system needs a part.
        ("GB10", 121690, 121690, None, (0, 0, 3802)),
        ("Orin", 7620, 7620, None, (0, 0, 1024)),
        # Strix Halo with a limit of 100 GiB: the system has room beside it.
        ("Strix Halo", 102400 + 512, 127000, 512, (512, 24600 - 3968, 0)),
        # With a limit of nearly all of it the system has a part of the card.
        ("Strix Halo", 126000, 127000, None, (0, 0, 2968)),
        # BC-250 with 12 GiB set aside by the firmware, and half of the rest.
        ("BC-250", 12288 + 1800, 3600, 12288, (12288, 776, 0)),
        ("BC-250", 12288 + 1800, 3600, None, (10488, 0, 1024)),
    ],
)
def test_pool_of_card_and_main_memory(name, total, memory, own, expected):
    sizes = {"memory_total_mib": total, "memory_used_mib": 0, "memory_free_mib": total}
    (device,) = of_node("n", [gpu(0, name=name, unified=True, own_mib=own, **sizes)], memory, 1024)
    assert (device.own_mib, device.spare_mib, device.others_mib) == expected and device.unified
    assert device.total_mib == total and set(device.others) <= {"the system"}


def test_driver_that_tells_size_of_gb10_changes_nothing():
    sizes = {"memory_total_mib": 121690, "memory_used_mib": 0, "memory_free_mib": 121690}
    (reported,) = of_node("n", [gpu(0, name="NVIDIA GB10", **sizes)], 121690, 1024)
    (found,) = of_node("n", [untold()], 121690, 1024)
    assert reported == found


def test_grace_hopper_is_card_beside_main_memory():
    card = gpu(0, name="NVIDIA GH200 480GB", memory_total_mib=97871, memory_used_mib=0, memory_free_mib=97871)
    (device,) = of_node("n", [card], 480000, 1024)
    assert (device.total_mib, device.unified, device.bandwidth) == (97871, False, 4000)


def test_card_is_one_in_facts_and_in_inventory():
    described = [{"name": "NVIDIA GB10", "memory_mib": 119000}]
    (looked_at,) = of_node("n", [untold()], 121690, 1024, described=described)
    assert [looked_at._replace(uuid="")] == of_inventory("n", described, 1024) and looked_at.unified
    # A virtual GPU has memory of its own, though its driver does not tell it.
    described = [{"name": "GRID A100-20C", "memory_mib": 20000}] * 2
    cards = [untold(index, name="GRID A100-20C") for index in (0, 1)]
    found = of_node("n", cards, 64000, 1024, described=described)
    assert [one._replace(uuid="") for one in found] == of_inventory("n", described, 1024)
    assert [one.unified for one in found] == [False, False]


@pytest.mark.parametrize(
    ("cards", "memory", "visible", "words"),
    [
        ([untold()], 0, None, "n: N/A seen as the memory of GPU0, "),
        ([untold(), untold(1)], 64000, None, "n: N/A seen as the memory of GPU0, "),
        (
            [untold(1, "Insufficient Permissions")],
            64000,
            None,
            "n: Insufficient Permissions seen as the memory of GPU1",
        ),
        ([untold(0, name="GRID A100-20C")], 64000, None, "n: N/A seen as the memory of GPU0, "),
        ([gpu(0, memory_total_mib=None, memory_free_mib=None)], 64000, "0", "n: nothing seen as the memory of GPU0, "),
    ],
)
def test_memory_that_is_not_known_is_refused(cards, memory, visible, words):
    with pytest.raises(Refusal) as refused:
        of_node("n", cards, memory, 1024, visible=visible)
    assert str(refused.value).startswith(words) and "write llama_devices for the node" in str(refused.value)


ABSENT = [
    untold(0, "GPU is lost", "RTX 3090"),
    untold(0, "[GPU requires reset]", "RTX 3090"),
    gpu(0, mig=True, mig_devices=[]),
]


@pytest.mark.parametrize("card", ABSENT)
def test_absent_card_is_no_device(card):
    assert seen([card, gpu(1)], None) == ["GPU1"]


@pytest.mark.parametrize("card", [*ABSENT, gpu(0, compute_mode="Prohibited")])
@pytest.mark.parametrize("visible", [None, "0", "0,1"])
def test_card_that_cannot_compute_is_refused(card, visible):
    described = [{"name": "RTX 3090", "memory_mib": 24576}]
    with pytest.raises(Refusal, match=r"^n: .* seen on GPU0, a card that computes is needed: "):
        seen([card, gpu(1)][: 1 if visible is None else 2], visible, described=described)


def test_mig_instance_hides_all_other_cards():
    part = {"memory_total_mib": 9, "memory_used_mib": 0, "memory_free_mib": 9, "uuid": "MIG-1"}
    cards = [gpu(0), gpu(1, mig=True, mig_devices=[part]), gpu(2, mig=True, mig_devices=[part])]
    assert seen(cards, None) == ["GPU1"] and seen(cards, "0,2,1") == ["GPU2"]
    assert seen(cards, "0") == ["GPU0"]
