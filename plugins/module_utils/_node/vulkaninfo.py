# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vulkan's devices from the output of `vulkaninfo`, and which of them llama.cpp uses. Private to the collection.

The rules are in ggml_vk_instance_init and ggml_backend_vk_get_device_memory of b11434.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# Limits: devices, heaps of a device.
DEVICES, HEAPS = 32, 16
BEGINS = re.compile(r"^GPU(\d+):[ \t]*$", re.MULTILINE)
HEAP = re.compile(
    r"^[ \t]*memoryHeaps\[\d+\]:\s*\n\s*size\s*= (\d+).*\n(?:\s*budget\s*= (\d+).*\n\s*usage\s*= (\d+).*\n)?"
    r"\s*flags:.*\n((?:\s*(?:MEMORY_HEAP_\w+|None)\s*\n)*)",
    re.MULTILINE,
)
# llama.cpp takes the driver of a card with the lower number, and else the first one.
PRIORITIES = {
    0x1002: {"MESA_RADV": 1, "AMD_OPEN_SOURCE": 2, "AMD_PROPRIETARY": 3},
    0x8086: {"INTEL_OPEN_SOURCE_MESA": 1, "INTEL_PROPRIETARY_WINDOWS": 2},
    0x10DE: {"NVIDIA_PROPRIETARY": 1, "MESA_NVK": 2},
    0x5143: {"QUALCOMM_PROPRIETARY": 1, "MESA_TURNIP": 2},
}
OTHER_LAYER, UNRANKED = 100, 1 << 31


class Heap(NamedTuple):
    """Sizes are bytes; budget and usage are None without VK_EXT_memory_budget."""

    size: int
    budget: int | None
    usage: int | None
    local: bool

    def free(self) -> int:
        """Drivers that subtract one unsigned number from another print a budget beyond the size."""
        if self.budget is None or self.usage is None or not self.usage <= self.budget <= self.size:
            return self.size
        return self.budget - self.usage


class Found(NamedTuple):
    """A device of Vulkan. number: in Vulkan's order, which GGML_VK_VISIBLE_DEVICES names; kind: discrete, integrated,
    virtual, cpu or other; slot: its PCI slot such as 0000:03:00.0, None if not known; ids: those by which llama.cpp
    recognizes the same card; largest: bytes that one tensor may have, None if not known."""

    number: int
    name: str
    kind: str
    vendor: int
    driver: str
    driver_id: str
    slot: str | None
    ids: tuple[str, ...]
    supported: bool
    heaps: list[Heap]
    largest: int | None

    def sizes(self) -> tuple[int, int]:
        """(total, free) in bytes as llama.cpp counts them: all heaps of integrated graphics, else the card's
        own."""
        own = [heap for heap in self.heaps if heap.local or self.kind == "integrated"]
        return sum(heap.size for heap in own), sum(heap.free() for heap in own)


def parse(text: str) -> list[Found]:
    """The devices in what `vulkaninfo` prints, in Vulkan's order. One without a name, a type or memory is left out."""
    starts = list(BEGINS.finditer(text))[:DEVICES]
    ends = [one.start() for one in starts[1:]] + [len(text)]
    found = [_device(int(one.group(1)), text[one.end() : end]) for one, end in zip(starts, ends)]
    return [one for one in found if one is not None]


def _device(number: int, text: str) -> Found | None:
    name, kind = _value(text, "deviceName"), _value(text, "deviceType")
    with_budget = bool(re.search(r"^\s*VK_EXT_memory_budget\s*:", text, re.MULTILINE))
    heaps = [
        Heap(int(size), int(budget) if budget and with_budget else None, int(usage or 0), "DEVICE_LOCAL" in flags)
        for size, budget, usage, flags in HEAP.findall(text)[:HEAPS]
    ]
    if not name or not kind or not heaps:
        return None
    kinds = {"DISCRETE_GPU": "discrete", "INTEGRATED_GPU": "integrated", "VIRTUAL_GPU": "virtual", "CPU": "cpu"}
    luid = _value(text, "deviceLUID") if _value(text, "deviceLUIDValid") == "true" else None
    return Found(
        number=number,
        name=name[:256],
        kind=kinds.get(kind.removeprefix("PHYSICAL_DEVICE_TYPE_"), "other"),
        vendor=_number(text, "vendorID") or 0,
        driver=(_value(text, "driverName") or "")[:256],
        driver_id=(_value(text, "driverID") or "").removeprefix("DRIVER_ID_"),
        slot=_slot(text),
        ids=tuple(one for one in (_value(text, "deviceUUID"), luid) if one),
        supported=_value(text, "storageBuffer16BitAccess") == "true",
        heaps=heaps,
        largest=_largest(text),
    )


def _largest(text: str) -> int | None:
    """Bytes of the largest tensor: of a buffer, an allocation, and of what a shader without 64-bit indices reaches."""
    buffer, allocation = _number(text, "maxBufferSize"), _number(text, "maxMemoryAllocationSize")
    reach = _number(text, "maxStorageBufferRange")
    if re.search(r"^[ \t]*VK_EXT_shader_64bit_indexing[ \t]*:", text, re.MULTILINE):
        reach = None
    return min((one for one in (buffer, allocation, reach) if one), default=None)


def _slot(text: str) -> str | None:
    parts = [_number(text, name) for name in ("pciDomain", "pciBus", "pciDevice", "pciFunction")]
    known = [one for one in parts if one is not None]
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*known) if len(known) == len(parts) else None


def _value(text: str, key: str) -> str | None:
    found = re.search(r"^[ \t]*%s[ \t]*= (.*?)[ \t]*$" % key, text, re.MULTILINE)
    return found.group(1) if found else None


def _number(text: str, key: str) -> int | None:
    """Decimal or hexadecimal; newer releases write both, one of them in brackets."""
    found = re.match(r"(0x[0-9a-fA-F]{1,16}|\d{1,20})\b", _value(text, key) or "")
    return int(found.group(1), 0) if found else None


def used(devices: Sequence[Found], visible: str | None = None) -> list[Found]:
    """The devices that llama.cpp uses, in its order: Vulkan0 is the first. visible: GGML_VK_VISIBLE_DEVICES, None if
    it is not set. Raises ValueError with words for what llama.cpp does not take, or silently takes otherwise."""
    if visible is not None:
        return _named(devices, visible)
    chosen: list[Found] = []
    for new in devices:
        if new.kind not in ("discrete", "integrated") or not new.supported:
            continue
        old = next((one for one in chosen if set(one.ids) & set(new.ids)), None)
        if old is None:
            chosen.append(new)
        elif _priority(new, old.vendor) < _priority(old, old.vendor):
            chosen.remove(old)
            chosen.append(new)
    return chosen or [one for one in devices if one.kind != "cpu"][:1]


def _priority(device: Found, vendor: int) -> int:
    if device.driver_id == "MESA_DOZEN":
        return OTHER_LAYER
    return PRIORITIES.get(vendor, {}).get(device.driver_id, UNRANKED)


def _named(devices: Sequence[Found], visible: str) -> list[Found]:
    by_number = {one.number: one for one in devices}
    chosen: list[Found] = []
    for word in visible.replace(",", " ").split():
        if not re.fullmatch(r"\d{1,9}", word):
            raise ValueError(f"{word[:40]} seen, numbers of devices with commas between are needed")
        if int(word) not in by_number:
            raise ValueError(f"{int(word)} seen, one of {', '.join(map(str, by_number)) or 'no device'} is needed")
        if by_number[int(word)] in chosen:
            raise ValueError(f"{int(word)} seen twice, each device once is needed")
        chosen.append(by_number[int(word)])
    return chosen
