# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node.vulkaninfo import parse, used
from ansible_collections.thefermisea.llama_cluster.tests.unit.vulkan_devices import (
    A770,
    GIB,
    SMALL_BAR,
    XTX,
    device,
    llvmpipe,
    nvidia,
    printed,
)

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
INTEGRATED = "INTEGRATED_GPU"
RAPHAEL = "AMD Radeon Graphics (RADV RAPHAEL_MENDOCINO)"
CARD = "AMD Radeon RX 7900 XTX (RADV NAVI31)"


def names(devices, visible=None):
    return [(one.number, one.name.split(" (")[0]) for one in used(parse(printed(*devices)), visible)]


def mib(sizes, kind="DISCRETE_GPU", **more):
    (one,) = parse(printed(device(0, CARD, sizes, kind, **more)))
    return tuple(size >> 20 for size in one.sizes())


def test_card_with_its_driver_and_slot():
    (one,) = parse(printed(device(0, CARD, XTX, slot=(0, 10, 0, 1))))
    assert (one.number, one.name, one.kind, one.slot, one.driver) == (0, CARD, "discrete", "0000:0a:00.1", "radv")
    assert one.vendor == 0x1002 and one.driver_id == "MESA_RADV" and one.supported


def test_output_of_a_real_node():
    (one,) = parse((FIXTURES / "vulkaninfo_1.4_llvmpipe.txt").read_text())
    assert (one.number, one.name, one.kind, one.slot) == (0, "llvmpipe (LLVM 19.1.7, 256 bits)", "cpu", None)
    assert (one.driver, one.supported, one.largest) == ("llvmpipe", True, 134217728)
    assert [heap.size >> 20 for heap in one.heaps] == [24105] and one.sizes()[1] < one.sizes()[0]


@pytest.mark.parametrize(
    ("sizes", "kind", "more", "total_and_free"),
    [
        (XTX, "DISCRETE_GPU", {}, (24560, 23841)),
        # Both parts of a card whose memory the CPU sees only in part.
        (SMALL_BAR, "DISCRETE_GPU", {}, (8192, 7493)),
        # Intel's driver offers nine tenths of what is free.
        (A770, "DISCRETE_GPU", {}, (16288, 14659)),
        # All heaps of integrated graphics: RADV splits them 2 to 1.
        (((2 * GIB, GIB, 0, True), (GIB, GIB, 0, False)), INTEGRATED, {}, (3072, 2048)),
        (XTX, "DISCRETE_GPU", {"budget": None}, (24560, 24560)),
        # Drivers without the extension have zeros there.
        (XTX, "DISCRETE_GPU", {"budget": False, "old": False}, (24560, 24560)),
        # A driver that subtracted more than there was.
        (((16 << 20, 18446744073271062528, 0, True),), "DISCRETE_GPU", {}, (16, 16)),
        (((GIB, GIB, 2 * GIB, True),), "DISCRETE_GPU", {}, (1024, 1024)),
    ],
)
def test_memory_counts_as_in_llama_cpp(sizes, kind, more, total_and_free):
    assert mib(sizes, kind, **more) == total_and_free


@pytest.mark.parametrize(
    ("limits", "extensions", "largest"),
    [
        ({}, [], 4294967292),
        ({"maxStorageBufferRange": "134217728"}, [], 134217728),
        ({"maxStorageBufferRange": "134217728"}, ["VK_EXT_shader_64bit_indexing"], 4294967292),
        ({"maxMemoryAllocationSize": "2147483648", "maxBufferSize": "0x10000000000"}, [], 2147483648),
        ({"maxMemoryAllocationSize": "unknown", "maxStorageBufferRange": "-1"}, [], None),
    ],
)
def test_largest_tensor_of_a_device(limits, extensions, largest):
    (one,) = parse(printed(device(0, CARD, XTX, limits=limits, extensions=extensions)))
    assert one.largest == largest


def test_devices_of_the_cpu_are_left_out():
    devices = [device(0, CARD, XTX), llvmpipe(1)]
    assert names(devices) == [(0, "AMD Radeon RX 7900 XTX")]
    assert names([llvmpipe(0)]) == []
    assert names(devices, "1") == [(1, "llvmpipe")]


def test_discrete_and_integrated_graphics_are_both_used():
    devices = [device(0, CARD, XTX), device(1, RAPHAEL, SMALL_BAR, INTEGRATED), llvmpipe(2)]
    assert [index for index, _name in names(devices)] == [0, 1]


def test_other_device_only_where_no_card_is():
    other = device(1, "Virtio-GPU Venus (AMD Radeon RX 7900 XTX)", XTX, "VIRTUAL_GPU")
    assert names([llvmpipe(0), other]) == [(1, "Virtio-GPU Venus")]
    assert [index for index, _name in names([device(0, CARD, XTX), other])] == [0]


def test_card_without_16_bit_storage_is_left_out():
    assert names([device(0, "AMD Radeon HD 7970", XTX, half=False), nvidia(1)]) == [(1, "NVIDIA GeForce RTX 3090")]


@pytest.mark.parametrize(
    ("drivers", "vendor", "chosen"),
    [
        (("AMD_OPEN_SOURCE", "MESA_RADV"), "0x1002", 1),
        (("MESA_RADV", "AMD_OPEN_SOURCE"), "0x1002", 0),
        (("AMD_PROPRIETARY", "AMD_OPEN_SOURCE"), "0x1002", 1),
        (("MESA_NVK", "NVIDIA_PROPRIETARY"), "0x10de", 1),
        (("MESA_DOZEN", "INTEL_OPEN_SOURCE_MESA"), "0x8086", 1),
        (("UNKNOWN", "UNKNOWN"), "0x8086", 0),
    ],
)
def test_card_of_two_drivers_counts_once(drivers, vendor, chosen):
    devices = [
        device(index, CARD, XTX, driver=driver, vendor=vendor, uuid="same") for index, driver in enumerate(drivers)
    ]
    assert [index for index, _name in names(devices)] == [chosen]
    luids = [device(index, CARD, XTX, driver=one, vendor=vendor, luid="a") for index, one in enumerate(drivers)]
    assert [index for index, _name in names(luids)] == [chosen]


def test_better_driver_of_a_card_comes_last():
    devices = [
        device(0, CARD, XTX, driver="AMD_OPEN_SOURCE", uuid="a"),
        device(1, "AMD Radeon RX 6600", XTX, uuid="b"),
        device(2, CARD, XTX, driver="MESA_RADV", uuid="a"),
    ]
    assert [index for index, _name in names(devices)] == [1, 2]


def test_variable_names_devices_in_its_order():
    devices = [device(0, CARD, XTX), nvidia(1), llvmpipe(2)]
    assert [index for index, _name in names(devices, "2, 0")] == [2, 0]
    assert names(devices, "") == []


@pytest.mark.parametrize(
    ("visible", "words"),
    [("Vulkan0", "Vulkan0 seen"), ("-1", "-1 seen"), ("3", "3 seen, one of 0, 1"), ("0,0", "0 seen twice")],
)
def test_variable_that_names_no_device(visible, words):
    with pytest.raises(ValueError, match=words):
        names([device(0, CARD, XTX), llvmpipe(1)], visible)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ERROR: [Loader Message] Code 0 : vkCreateInstance: Found no drivers!\nCannot create Vulkan instance.\n",
        "GPU0:\n",
        printed(device(0, CARD, ())),
        "GPU0:\nVkPhysicalDeviceProperties:\n\tdeviceName = \x1b[2J\n\tdeviceType = PHYSICAL_DEVICE_TYPE_CPU\n",
    ],
)
def test_output_without_a_device(text):
    assert used(parse(text)) == []
