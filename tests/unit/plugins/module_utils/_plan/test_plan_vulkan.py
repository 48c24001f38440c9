# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.devices import is_integrated, of_inventory
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.vulkan import of_vulkan
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal

CARD, HALO = "AMD Radeon RX 7900 XTX (RADV NAVI31)", "Radeon 8060S Graphics (RADV GFX1151)"
MAIN = 128000


def gpu(index, name=CARD, total=24560, used=300, unified=False, **more):
    known = {
        "index": index,
        "name": name,
        "unified": unified,
        "own_mib": 0,
        "largest_tensor": 4294967292,
        "memory_total_mib": total,
        "memory_used_mib": used,
        "processes": [],
    }
    return {**known, **more}


def facts(*gpus, reason=None):
    return {"available": bool(gpus), "reason": reason, "warning": None, "gpus": list(gpus)}


def halo(index=0, total=98816, used=6000, own=512, **more):
    return gpu(index, HALO, total, used, True, own_mib=own, **more)


def process(pid, mib, name="llama-server"):
    return {"pid": pid, "name": name, "memory_used_mib": mib}


def devices(*gpus, **more):
    return of_vulkan("n", facts(*gpus), MAIN, 1024, **more)


def test_cards_are_devices_in_their_order():
    first, second = devices(gpu(0), gpu(1, "AMD Radeon RX 6600 (RADV NAVI23)", 8176, 0))
    assert (first.device, first.kind, first.total_mib, first.others_mib, first.bandwidth) == (
        *("GPU0", "GPU", 24560, 300),
        960,
    )
    assert (second.device, second.bandwidth, second.word(), second.uuid) == ("GPU1", 224, "1", "")
    assert not first.unified and first.tensor_mib == 4095 and not first.pinned


@pytest.mark.parametrize("name", ["intel 0x56a0", "Navi 31 [Radeon RX 7900 XT/7900 XTX]"])
def test_name_of_inventory_gives_missing_bandwidth(name):
    """Without vulkaninfo sysfs has another name, or none."""
    named = [{"name": "Intel Arc A770", "memory_mib": 16288}]
    assert [devices(gpu(0, name), described=given)[0].bandwidth for given in ([], named)] == [None, 560]
    assert devices(gpu(0), described=named)[0].bandwidth == 960


def test_managed_processes_are_no_other_use():
    (one,) = devices(gpu(0, used=9000, processes=[process(7, 8000), process(8, 700, "kwin")]), pids=[7])
    assert one.others_mib == 1000 and one.others == {"kwin[8]": 700}


def test_unknown_limit_is_the_lowest_of_all():
    assert devices(gpu(0, largest_tensor=None))[0].tensor_mib == 1024


@pytest.mark.parametrize(
    ("total", "own", "used", "managed", "others", "spare"),
    [
        # GTT of 96 of 128 GB: other processes, and the head, have the rest first.
        (98816, 512, 6000, 0, 0, 128000 - 98304 - 6000),
        (98816, 512, 40000, 0, 40000 - 29696, 0),
        # Nothing else runs: the system's part, a 32nd, is kept.
        (98816, 512, 40000, 40000, 0, 29696 - 4000),
        # All of main memory, as on a DGX Spark.
        (128000, 0, 6000, 1000, 5000, 0),
        (128000, 0, 6000, 5000, 4000, 0),
        # 96 GB reserved by firmware.
        (98304 + 128000, 98304, 6000, 0, 6000, 0),
    ],
)
def test_card_in_main_memory_shares_it(total, own, used, managed, others, spare):
    (one,) = devices(halo(total=total, own=own, used=used, processes=[process(7, managed)]), pids=[7])
    assert (one.unified, one.own_mib, one.others_mib, one.spare_mib) == (True, own, others, spare)


def test_integrated_graphics_beside_a_card_are_left_out():
    (one,) = devices(gpu(0), halo(1))
    assert one.device == "GPU0" and one.pinned
    with pytest.raises(Refusal, match=r"n: 0,1 in GGML_VK_VISIBLE_DEVICES seen, .* drop 1 \(Radeon 8060S"):
        devices(gpu(0), halo(1), visible="0,1")
    assert [device.pinned for device in devices(halo(1), visible="1")] == [False]


@pytest.mark.parametrize(("reason", "words"), [("no driver\x1b", "no driver?"), (None, "Vulkan has no device")])
def test_node_without_a_device_is_refused(reason, words):
    with pytest.raises(Refusal) as refused:
        of_vulkan("n", facts(reason=reason), MAIN, 1024)
    assert f"n: no device seen, one is needed for a build with accelerator vulkan, but {words}: " in str(refused.value)


def test_unknown_memory_is_in_the_inventory_or_refused():
    card = gpu(0, "Intel(R) Arc(tm) A770 Graphics (DG2)", None, None)
    with pytest.raises(Refusal, match="n: nothing seen as the memory of GPU0, its size is needed: write llama_devices"):
        devices(card)
    (one,) = devices(card, described=[{"memory_mib": 16288, "bandwidth": 500}])
    assert (one.total_mib, one.bandwidth, one.unified) == (16288, 500, False)
    (one,) = devices(gpu(0, "Intel(R) Graphics (LNL)", None, None, None), described=[{"memory_mib": 24000}])
    assert (one.total_mib, one.unified, one.own_mib) == (24000, True, 0)


@pytest.mark.parametrize(
    ("name", "integrated"),
    [
        (HALO, True),
        ("Radeon 8060S", True),
        ("AMD Radeon 780M Graphics (RADV PHOENIX)", True),
        ("AMD BC-250 (RADV GFX1013)", True),
        ("Intel(R) Arc(tm) Graphics (LNL)", True),
        ("AMD Radeon RX 6700M (RADV NAVI22)", False),
        ("NVIDIA GeForce GTX 780M", False),
        (CARD, False),
        ("Intel(R) Arc(tm) A770 Graphics (DG2)", False),
    ],
)
def test_names_of_graphics_within_processors(name, integrated):
    assert is_integrated(name) is integrated
    assert of_inventory("n", [{"name": name, "memory_mib": 9000}], 0)[0].unified is integrated
