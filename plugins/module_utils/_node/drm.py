# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Graphics cards of a node from sysfs, and the memory that processes hold on them from fdinfo. Private to the
collection.

Of the drivers amdgpu, xe and i915; the cards of others are listed without sensors. The files are described in the
kernel's Documentation/gpu/amdgpu/driver-misc.rst, gpu/drm-usage-stats.rst and ABI/testing/sysfs-driver-intel-xe-hwmon.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import time
from collections.abc import Collection, Iterable
from typing import Any

from . import resets
from .disposable import Disposable

Card = dict[str, Any]
VENDORS = {"0x1002": "amd", "0x8086": "intel", "0x10de": "nvidia"}
# PCI classes: display controllers, and processing accelerators, which count with a render node only.
DISPLAY, ACCELERATOR = "0x03", "0x1200"
# Limits: cards, bytes of a file of sysfs, of a file of fdinfo, descriptors of a process, processes.
CARDS, TEXT, CLIENT, DESCRIPTORS, PROCESSES = 32, 256, 16384, 4096, 65536
# Seconds for all cards together: a file of a hung card may not answer.
DEADLINE = 10.0
# Seconds that the processes of one user may take.
LONGEST = 1.0
# Drivers whose cards compute by Vulkan.
DRIVERS = ("amdgpu", "xe", "i915", "nouveau")
HANGS = "sysfs gave no answer in %g s: a graphics driver hangs, see dmesg"
PCI_IDS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
LARGEST_IDS = 8 << 20
MIB = 1 << 20
SIZE = re.compile(r"^drm-(resident|memory|total)-(\S+):\s*(\d+)(?: (KiB|MiB))?\s*$", re.MULTILINE)
UNITS = {"": MIB, "KiB": 1024, "MiB": 1}
# Memory of the card, and main memory that it uses.
OWN, SHARED = re.compile(r"(?:vram|local)\d*\Z"), re.compile(r"(?:gtt|system)\d*\Z")
_child = Disposable(DEADLINE)


def collect(root: str = "/sys", proc: str = "/proc", usage: bool = False) -> dict[str, Any]:
    """-> {cards in order of their PCI slots, reason: why there is no card, or None, processes: {slot: {process id:
    MiB}}, if usage is True}.

    A card is {slot: "0000:03:00.0", vendor: amd, intel, nvidia or the PCI number, driver, device_id: "0x744c", name,
    numa_node, render: "/dev/dri/renderD128", unified: whether it has no memory of its own, vram_total_mib,
    vram_used_mib, gtt_total_mib, gtt_used_mib, busy_percent, temperature_c, power_w, and counters since boot of Intel's
    drivers for `between`: idle_ms, energy_uj, at: their monotonic time in seconds}; None for an unknown value. A child
    process reads them, which a driver that hangs may hold back: the caller waits until DEADLINE.
    """
    outcome = _child.run(lambda: _all(root, proc, usage))
    if outcome.error:
        return {"cards": [], "reason": HANGS % DEADLINE, "processes": {}}
    found, held = outcome.value
    processes = {slot: {int(pid): mib for pid, mib in sizes.items()} for slot, sizes in held.items()}
    return {"cards": [named(card) for card in found], "reason": None, "processes": processes}


def gpus(seen: dict[str, Any], before: Iterable[Card] = ()) -> list[dict[str, Any]]:
    """The cards of collect(usage=True) that services may compute on, as nvidia_smi.collect has them: {index: PCI slot,
    name, driver, numa_node, memory_total_mib, memory_used_mib, utilization, temperature_c, power_w, processes: [{pid,
    memory_used_mib}]}. before: cards of an earlier sample, for `between`."""
    earlier = {card["slot"]: card for card in before}
    found = []
    for card in filter(computes, seen["cards"]):
        held = seen["processes"].get(card["slot"], {})
        now = between(earlier.get(card["slot"], card), card)
        total, used = memory(card, held.values())
        found.append(
            {
                "index": card["slot"],
                "name": card["name"] or f"{card['vendor']} {card['device_id']}",
                "driver": card["driver"],
                "numa_node": card["numa_node"],
                "memory_total_mib": total,
                "memory_used_mib": used,
                "utilization": now["busy_percent"],
                "temperature_c": card["temperature_c"],
                "power_w": now["power_w"],
                "processes": [{"pid": pid, "memory_used_mib": mib} for pid, mib in sorted(held.items())],
            }
        )
    return found


def computes(card: Card) -> bool:
    """Whether services may compute on a card: not a server's own display, nor i915's graphics within a processor."""
    return bool(card["render"]) and card["driver"] in DRIVERS and not (card["driver"] == "i915" and card["unified"])


def hangs(found: Iterable[Card], path: str = resets.kernel_log.PATH) -> tuple[list[resets.Reset] | None, str | None]:
    """resets.read_resets, with the slot of the only card of a driver where older kernels print none."""
    slots: dict[str | None, list[str]] = {}
    for card in found:
        slots.setdefault(card["driver"], []).append(card["slot"])
    seen, reason = resets.read_resets(path)
    for one in seen or []:
        if one["slot"] is None and len(slots.get(one["driver"], ())) == 1:
            one["slot"] = slots[one["driver"]][0]
    return seen, reason


def _all(root: str, proc: str, usage: bool) -> tuple[list[Card], dict[str, dict[int, float]]]:
    found = _read(root)
    return found, users(unified(found), proc) if usage and any(map(computes, found)) else {}


def unified(found: Iterable[Card]) -> set[str]:
    """The slots of the cards that have no memory of their own."""
    return {card["slot"] for card in found if card["unified"]}


def memory(card: Card, held: Iterable[float] = ()) -> tuple[float | None, float | None]:
    """(total, used) of a card in MiB, with the main memory of one that has none of its own. held: of its processes,
    which count where the driver reports no use."""
    total, used = card["vram_total_mib"], card["vram_used_mib"]
    if card["unified"]:
        total, used = _sum(total, card["gtt_total_mib"]), _sum(used, card["gtt_used_mib"])
    sizes = list(held)
    return total, round(sum(sizes), 2) if used is None and sizes else used


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else round(one + other, 2)


def between(before: Card, now: Card) -> Card:
    """busy_percent and power_w of a card of Intel from its counters at two times, where they are None."""
    filled, passed = dict(now), now["at"] - before["at"]
    if passed <= 0:
        return filled
    if now["busy_percent"] is None and None not in (before["idle_ms"], now["idle_ms"]):
        busy = 100 * (1 - (now["idle_ms"] - before["idle_ms"]) / (1000 * passed))
        filled["busy_percent"] = round(min(100.0, max(0.0, busy)), 1)
    if now["power_w"] is None and None not in (before["energy_uj"], now["energy_uj"]):
        filled["power_w"] = round(max(0.0, now["energy_uj"] - before["energy_uj"]) / 1e6 / passed, 1)
    return filled


def usage(pid: int, root: str = "/proc", shared: Collection[str] = ()) -> dict[str, float]:
    """{slot: MiB that a process holds on its card}; in main memory only for the slots of `shared`, whose cards have no
    memory of their own, and for Intel's. Other users' processes need CAP_SYS_PTRACE."""
    found: dict[str, float] = {}
    seen: set[tuple[str, str]] = set()
    folder = os.path.join(root, str(pid))
    for name in _some(os.path.join(folder, "fd"), DESCRIPTORS):
        try:
            target = os.readlink(os.path.join(folder, "fd", name))
        except OSError:
            continue
        if not target.startswith("/dev/dri/"):
            continue
        text = _text(os.path.join(folder, "fdinfo", name), CLIENT) or ""
        slot, client = _value(text, "drm-pdev"), _value(text, "drm-client-id")
        # A client is open in several descriptors and, after a fork, in several processes.
        if slot and client and (slot, client) not in seen:
            seen.add((slot, client))
            found[slot] = round(found.get(slot, 0.0) + client_mib(text, slot in shared), 2)
    return found


def users(shared: Collection[str] = (), root: str = "/proc") -> dict[str, dict[int, float]]:
    """{slot: {process id: MiB}} of all processes that have opened a card."""
    found: dict[str, dict[int, float]] = {}
    spent: dict[int, float] = {}  # seconds by user
    for pid in [name for name in _names(root) if name.isdigit()][:PROCESSES]:
        began = time.monotonic()
        try:
            user = os.stat(os.path.join(root, pid)).st_uid
        except OSError:
            continue
        # Very many descriptors of one user hide no card.
        if spent.get(user, 0.0) > LONGEST:
            continue
        for slot, mib in usage(int(pid), root, shared).items():
            found.setdefault(slot, {})[int(pid)] = mib
        spent[user] = spent.get(user, 0.0) + time.monotonic() - began
    return found


def client_mib(text: str, shared: bool = False) -> float:
    """The memory of one client of a driver, from its fdinfo; older drivers print it under the second key."""
    sizes: dict[str, dict[str, float]] = {}
    for kind, region, number, unit in SIZE.findall(text):
        sizes.setdefault(region, {})[kind] = int(number) / UNITS[unit]
    held = {region: _first(one, ("resident", "memory", "total")) for region, one in sizes.items()}
    own = [mib for region, mib in held.items() if OWN.match(region)]
    if shared or not own:
        own += [mib for region, mib in held.items() if SHARED.match(region)]
    return round(sum(own), 2)


def _first(sizes: dict[str, float], kinds: Iterable[str]) -> float:
    return next(sizes[kind] for kind in kinds if kind in sizes)


def _value(text: str, key: str) -> str:
    found = re.search(r"^%s:\s*(\S+)\s*$" % key, text, re.MULTILINE)
    return found.group(1) if found else ""


def named(card: Card) -> Card:
    """The card with the name of the list of PCI devices, if the driver gave none and the node has that list."""
    return {**card, "name": card["name"] or pci_name(card["vendor_id"], card["device_id"])}


@functools.lru_cache(maxsize=CARDS)
def pci_name(vendor: str, device: str, lists: tuple[str, ...] = PCI_IDS) -> str | None:
    """The name of a PCI device such as "Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]"."""
    text = next((text for text in (_text(path, LARGEST_IDS) for path in lists) if text), "")
    block = re.search(r"^%s  .*\n((?:[\t#].*\n|\n)*)" % vendor[2:], text, re.MULTILINE)
    found = block and re.search(r"^\t%s  (.+)$" % device[2:], block.group(1), re.MULTILINE)
    return found.group(1).strip()[:120] if found else None


def _read(root: str) -> list[Card]:
    folder = os.path.join(root, "bus/pci/devices")
    found: list[Card] = []
    for slot in _names(folder):
        path = os.path.join(folder, slot)
        kind = _text(os.path.join(path, "class")) or ""
        if len(found) < CARDS and kind.startswith((DISPLAY, ACCELERATOR)):
            card = _card(slot, path)
            if card and (kind.startswith(DISPLAY) or card["render"]):
                found.append(card)
    return found


def _card(slot: str, path: str) -> Card | None:
    vendor, device = _text(os.path.join(path, "vendor")), _text(os.path.join(path, "device"))
    if not (re.fullmatch(r"0x[0-9a-f]{4}", vendor or "") and re.fullmatch(r"0x[0-9a-f]{4}", device or "")):
        return None
    driver = _target(os.path.join(path, "driver"))
    render = next((name for name in _names(os.path.join(path, "drm")) if re.match(r"renderD\d+\Z", name)), None)
    # A card that sleeps is not woken up.
    awake = _text(os.path.join(path, "power/runtime_status")) != "suspended"
    monitor = next(iter(_names(os.path.join(path, "hwmon"))), None) if awake else None
    sensors = os.path.join(path, "hwmon", monitor or "none")
    power = _first_number(sensors, "power1_average", "power1_input")
    temperature = _temperature(sensors)
    return {
        "slot": slot,
        "vendor": VENDORS.get(vendor or "", vendor),
        "vendor_id": vendor,
        "driver": driver,
        "device_id": device,
        "name": _text(os.path.join(path, "product_name")) or None,
        "numa_node": _numa(os.path.join(path, "numa_node")),
        "render": render and "/dev/dri/" + render,
        "unified": _unified(slot, path, driver),
        "vram_total_mib": _mib(_vram(path)),
        "vram_used_mib": _mib(_number(os.path.join(path, "mem_info_vram_used"))),
        "gtt_total_mib": _mib(_number(os.path.join(path, "mem_info_gtt_total"))),
        "gtt_used_mib": _mib(_number(os.path.join(path, "mem_info_gtt_used"))),
        "busy_percent": _number(os.path.join(path, "gpu_busy_percent")) if awake else None,
        "temperature_c": None if temperature is None else temperature / 1000.0,
        "power_w": None if power is None else round(power / 1e6, 1),
        "idle_ms": _idle(path) if awake else None,
        "energy_uj": _first_number(sensors, "energy1_input", "energy2_input"),
        "at": round(time.monotonic(), 3),
    }


def _unified(slot: str, path: str, driver: str | None) -> bool | None:
    if driver == "amdgpu":
        # The maker of its memory chips: none, and in older kernels unknown, for graphics within a processor.
        return _text(os.path.join(path, "mem_info_vram_vendor")) in (None, "", "unknown")
    # Intel's graphics within a processor are on the first bus.
    return slot.endswith(":00:02.0") if driver in ("xe", "i915") else None


def _vram(path: str) -> int | None:
    """Bytes of the card's memory: of amdgpu, and of xe and i915 where those report it."""
    tiles = [
        _number(os.path.join(path, name, "physical_vram_size_bytes"))
        for name in _names(path)
        if re.match(r"tile\d+\Z", name)
    ]
    local = [_number(os.path.join(node, "lmem_total_bytes")) for node in _nodes(path)]
    return _number(os.path.join(path, "mem_info_vram_total")) or sum(one or 0 for one in tiles + local) or None


def _numa(path: str) -> int | None:
    number = _number(path)
    return None if number is None or number < 0 else number


def _nodes(path: str) -> list[str]:
    folder = os.path.join(path, "drm")
    return [os.path.join(folder, name) for name in _names(folder) if re.match(r"card\d+\Z", name)]


def _idle(path: str) -> int | None:
    """Milliseconds in which the card's engines slept, since boot: of the busiest, which sleeps least."""
    tiles = [name for name in _names(path) if re.match(r"tile\d+\Z", name)]
    units = [os.path.join(path, tile, unit) for tile in tiles for unit in _names(os.path.join(path, tile))]
    files = [os.path.join(unit, "gtidle/idle_residency_ms") for unit in units]
    files += [os.path.join(card, "gt/gt0/rc6_residency_ms") for card in _nodes(path)]
    slept = [one for one in map(_number, files) if one is not None]
    return min(slept) if slept else None


def _temperature(sensors: str) -> int | None:
    """The temperature of the chip: amdgpu's edge, xe's package; 1/1000 °C."""
    return _first_number(sensors, "temp1_input", "temp2_input")


def _first_number(folder: str, *names: str) -> int | None:
    found = (_number(os.path.join(folder, name)) for name in names)
    return next((one for one in found if one is not None), None)


def _mib(size: int | None) -> float | None:
    return None if size is None else round(size / MIB, 2)


def _number(path: str) -> int | None:
    text = _text(path)
    return int(text) if text and re.fullmatch(r"-?\d{1,18}", text) else None


def _text(path: str, most: int = TEXT) -> str | None:
    """A file's text without blanks around it; None if it cannot be read, as while a card is reset."""
    try:
        with open(path, "rb") as stream:
            return stream.read(most).decode("utf-8", "replace").strip()
    except OSError:
        return None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _some(folder: str, most: int) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in itertools.islice(entries, most)]
    except OSError:
        return []


def _target(path: str) -> str | None:
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return None
