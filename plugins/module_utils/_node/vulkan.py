# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices of a node that a llama.cpp built for Vulkan uses: as the built program lists them, with the details of
`vulkaninfo` and sysfs. Before there is a program vulkaninfo or sysfs is enough. Private to the collection.

A driver that hangs and a missing driver are results, not errors.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .._files import text_of
from .._text import printable
from . import drm, nvidia_smi
from .running import resident_mib
from .vulkaninfo import Found, parse, used

Facts = dict[str, Any]
VISIBLE = "GGML_VK_VISIBLE_DEVICES"
# Seconds for all programs together, and in which a process dies of SIGKILL unless it hangs in the kernel.
DEADLINE, DIES = 60.0, 1.0
# Bytes of one program's output: vulkaninfo prints 150 kB about a card.
MOST = 1 << 20
# Drivers are code of others: no program that loads them runs as root.
UNPRIVILEGED = 65534
HANGS = "%s did not end within %g s: a graphics driver hangs, see dmesg"
LISTED = re.compile(r"^[ \t]*Vulkan\d+: (.+) \((\d+) MiB, (\d+) MiB free\)[ \t]*$", re.MULTILINE)
TRAITS = re.compile(
    r"ggml_vulkan: \d+ = (.+) \(([^()]*(?:\([^()]*\)[^()]*)*)\) \| uma: ([01]).*\n(.*Device type is CPU)?"
)
# The drivers of cards that serve Vulkan.
VULKAN_DRIVERS = ("amdgpu", "xe", "i915", "nvidia")
# A process with less than this is not listed beside a card that works in main memory.
SMALL_MIB, PROCESSES = 64, 64
# Two reports of one size differ by less: the program's is rounded.
SAME = 0.02


class Used(NamedTuple):
    """A device that llama.cpp uses. number: in Vulkan's order, which GGML_VK_VISIBLE_DEVICES names; kind: as in
    vulkaninfo.Found; total, free: MiB; largest: bytes that one tensor may have; source: list-devices, vulkaninfo or
    sysfs."""

    number: int
    name: str
    kind: str | None
    driver: str | None
    slot: str | None
    total: int | None
    free: int | None
    largest: int | None
    source: str


class Answer(NamedTuple):
    """A program's output, empty if it failed; why: the reason then."""

    output: str = ""
    why: str = ""


def collect(
    environment: Mapping[str, str],
    program: str = "",
    tool: str = "vulkaninfo",
    sys: str = "/sys",
    proc: str = "/proc",
) -> Facts:
    """-> {available, reason, warning, gpus}, see module node_facts.

    environment: of the units, whose variables choose drivers and devices; program: llama-server of a build for Vulkan,
    empty for none.
    """
    cards = drm.collect(sys, proc, usage=True)
    end = time.monotonic() + DEADLINE
    info = _ask([tool], environment, end)
    built = _ask([program, "--verbosity", "5", "--list-devices"], environment, end) if program else Answer()
    visible = environment.get(VISIBLE)
    try:
        known = [_of_info(one) for one in used(parse(info.output), visible)] if info.output else []
        devices, warning = _listed(known, built, environment, program, end)
        if not info.output and not built.output:
            devices = _of_sysfs(cards["cards"], visible)
    except ValueError as error:
        return _none(f"{VISIBLE}: {error}")
    if not devices:
        return _none(_reason(info, built, cards))
    if built.why and os.path.exists(program):
        warning = f"{built.why}: the plan has the devices of {'vulkaninfo' if info.output else 'the kernel'}"
    by_slot = _pairs(devices, cards["cards"])
    hidden = [] if VISIBLE in environment else _hidden(devices, cards["cards"])
    if hidden and not warning:
        warning = (
            f"{', '.join(hidden)}: the kernel has it, llama.cpp does not use it through Vulkan: install the Vulkan "
            "driver of the card, NVIDIA's is in nvidia-vulkan-icd, libnvidia-gl or nvidia-driver-libs"
        )
    held = dict(cards["processes"])
    # NVIDIA's driver does not report processes to the kernel.
    if any(card.get("driver") == "nvidia" for card in by_slot.values()):
        held.update(nvidia_smi.processes_by_slot(nvidia_smi.collect()["gpus"]))
    memory, users = _main_memory(proc), _Users(proc, held)
    gpus = [_gpu(one, by_slot.get(one.number, {}), memory, users) for one in devices]
    return {"available": True, "reason": None, "warning": warning, "gpus": gpus}


def _none(reason: str) -> Facts:
    return {"available": False, "reason": reason, "warning": None, "gpus": []}


def _reason(info: Answer, built: Answer, cards: Facts) -> str:
    if info.output or built.output:
        names = ", ".join(one["name"] or one["slot"] for one in cards["cards"])
        seen = f", the kernel has {names}" if names else ""
        return f"Vulkan has no device that llama.cpp uses{seen}: install the Vulkan driver of the card"
    why = "".join(f", {one.why}" for one in (info, built) if one.why)
    return cards["reason"] or f"the kernel has no card with a driver for Vulkan, such as amdgpu or xe{why}"


def _of_info(one: Found) -> Used:
    total, free = (size >> 20 for size in one.sizes())
    return Used(one.number, one.name, one.kind, one.driver, one.slot, total, free, one.largest, "vulkaninfo")


def _listed(
    known: Sequence[Used], built: Answer, environment: Mapping[str, str], program: str, end: float
) -> tuple[list[Used], str | None]:
    """-> (the devices that the program lists, with what vulkaninfo knows of them; vulkaninfo's without a program, a
    warning if the two disagree). Raises ValueError if the indices of the devices are not known."""
    if not built.output:
        return list(known), None
    found = [(name, int(total), int(free)) for name, total, free in LISTED.findall(built.output)]
    if known and [one.name for one in known] == [name for name, _total, _free in found]:
        merged = [
            one._replace(total=total, free=free, source="list-devices")
            for one, (_name, total, free) in zip(known, found)
        ]
        differ = [one.name for one, new in zip(known, merged) if not _same(one.total, new.total)]
        return merged, (
            f"{', '.join(differ)}: llama-server lists another size than vulkaninfo, the plan uses llama-server's"
            if differ
            else None
        )
    indices = _indices(found, environment, program, end)
    kinds = {
        name: ("cpu" if cpu else "integrated" if uma == "1" else "discrete", driver)
        for name, driver, uma, cpu in TRAITS.findall(built.output)
    }
    devices = []
    for number, (name, total, free) in zip(indices, found):
        kind, driver = kinds.get(name, (None, None))
        devices.append(Used(number, name, kind, driver, None, total, free, None, "list-devices"))
    warning = "llama-server lists other devices than vulkaninfo, the plan uses llama-server's: %s instead of %s" % (
        ", ".join(one.name for one in devices) or "none",
        ", ".join(one.name for one in known) or "none",
    )
    return devices, warning if known else None


def _same(one: int | None, other: int | None) -> bool:
    return one == other or bool(one and other and abs(one - other) <= SAME * max(one, other))


def _indices(
    found: Sequence[tuple[str, int, int]], environment: Mapping[str, str], program: str, end: float
) -> list[int]:
    """The indices of listed devices in Vulkan's order: as the variable has them, or the first ones if the program lists
    the same devices for these. Raises ValueError."""
    if VISIBLE in environment:
        return [int(word) for word in re.findall(r"\d+", environment[VISIBLE])]
    indices = list(range(len(found)))
    if indices:
        chosen = {**environment, VISIBLE: ",".join(map(str, indices))}
        again = LISTED.findall(_ask([program, "--list-devices"], chosen, end).output)
        if [name for name, _total, _free in again] != [name for name, _total, _free in found]:
            raise ValueError(
                "llama-server does not print which of Vulkan's devices it uses, vulkaninfo is needed: install the "
                "package that has it, such as vulkan-tools"
            )
    return indices


def _of_sysfs(cards: Iterable[Facts], visible: str | None) -> list[Used]:
    """The cards with a driver for Vulkan, in the order of Vulkan's loader: those with memory of their own first.
    Raises ValueError."""
    own = [card for card in cards if card["driver"] in VULKAN_DRIVERS and card["render"]]
    own.sort(key=lambda card: (bool(card["unified"]), card["slot"]))
    devices = []
    for index, card in enumerate(own):
        total = card["vram_total_mib"]
        if card["unified"]:
            total = total + card["gtt_total_mib"] if total is not None and card["gtt_total_mib"] is not None else None
        name = card["name"] or f"{card['vendor']} {card['device_id']}"
        kind = "integrated" if card["unified"] else "discrete"
        size = None if total is None else int(total)
        devices.append(Used(index, name, kind, card["driver"], card["slot"], size, None, None, "sysfs"))
    if visible is None:
        return devices
    words = [word for word in re.split(r"[\s,]+", visible) if word]
    if len(set(words)) < len(words) or not all(word in map(str, range(len(devices))) for word in words):
        raise ValueError(f"{visible[:40]} seen, vulkaninfo is needed to compare it with: install vulkan-tools")
    return [devices[int(word)] for word in words]


def _pairs(devices: Sequence[Used], cards: Sequence[Facts]) -> dict[int, Facts]:
    """{index of a device: its card of sysfs}: by slot, or by size if each has one card that is alike."""
    by_slot = {card["slot"]: card for card in cards}
    found = {one.number: by_slot[one.slot] for one in devices if one.slot in by_slot}
    rest = [one for one in devices if one.slot is None and one.kind != "cpu"]
    left = [card for card in cards if card["driver"] in VULKAN_DRIVERS and card not in found.values()]
    if rest and len(rest) == len(left):
        left.sort(key=lambda card: (bool(card["unified"]), card["slot"]))
        for one, card in zip(rest, left):
            vendor = {"amd": r"AMD|Radeon|RADV", "intel": "Intel", "nvidia": "NVIDIA"}.get(card["vendor"])
            if vendor and re.search(vendor, one.name):
                found[one.number] = card
    return found


def _hidden(devices: Sequence[Used], cards: Iterable[Facts]) -> list[str]:
    """The cards with memory of their own, or NVIDIA's, that are not among the devices. Devices of unknown slots may be
    any card."""
    slots = [one.slot for one in devices if one.kind != "cpu"]
    if None in slots:
        return []
    return [
        card["name"] or f"{card['vendor']} {card['device_id']} ({card['slot']})"
        for card in cards
        if card["driver"] in VULKAN_DRIVERS and card["render"] and not card["unified"] and card["slot"] not in slots
    ]


class _Users:
    """Processes with memory on cards, or in main memory. held: {slot: {process id: MiB}}."""

    def __init__(self, proc: str, held: Mapping[str, Mapping[int, float]]) -> None:
        self.proc, self.held = proc, held
        self._resident: dict[int, float] | None = None

    def of_card(self, slot: str | None) -> list[Facts]:
        return [self._process(pid, mib) for pid, mib in sorted(self.held.get(slot or "", {}).items())]

    def of_memory(self, slot: str | None) -> list[Facts]:
        """The largest processes by what they have in main memory and on a card that works there."""
        if self._resident is None:
            pids = [int(name) for name in os.listdir(self.proc) if name.isdigit()]
            self._resident = {pid: resident_mib([pid], self.proc) for pid in pids}
        sizes = dict(self._resident)
        for pid, mib in self.held.get(slot or "", {}).items():
            sizes[pid] = sizes.get(pid, 0.0) + mib
        large = sorted((pid for pid, mib in sizes.items() if mib >= SMALL_MIB), key=lambda pid: -sizes[pid])
        return [self._process(pid, sizes[pid]) for pid in large[:PROCESSES]]

    def _process(self, pid: int, mib: float) -> Facts:
        name = (text_of(os.path.join(self.proc, str(pid), "comm")) or "").strip() or None
        return {"pid": pid, "type": None, "name": name, "memory_used_mib": round(mib)}


def _main_memory(proc: str) -> tuple[int, int]:
    """(MiB of main memory, MiB of it in use)."""
    text = text_of(os.path.join(proc, "meminfo")) or ""
    sizes = {key: int(kib) // 1024 for key, kib in re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", text, re.M)}
    total = sizes.get("MemTotal", 0)
    return total, max(0, total - sizes.get("MemAvailable", total))


def _gpu(device: Used, card: Facts, memory: tuple[int, int], users: _Users) -> Facts:
    """The fact of one device. card: of sysfs, {} if not known."""
    slot, total = device.slot or card.get("slot"), device.total
    # A device of the CPU works in main memory.
    unified = device.kind in ("integrated", "cpu") if device.kind else card.get("unified")
    own, used_mib = 0, card.get("vram_used_mib")
    if unified:
        # Memory that firmware reserves for a card is no main memory; a driver may report more than there is.
        own = int(card.get("vram_total_mib") or 0)
        total = None if total is None else own + min(max(0, total - own), memory[0])
        used_mib = memory[1] + (used_mib or 0)
    elif used_mib is None and total is not None and device.free is not None:
        used_mib = total - device.free
    return {
        "index": device.number,
        "name": printable(device.name, 120),
        "slot": slot,
        "driver": device.driver or card.get("driver"),
        "source": device.source,
        "unified": unified,
        "own_mib": own,
        "largest_tensor": device.largest,
        "memory_total_mib": total,
        "memory_used_mib": None if used_mib is None else round(used_mib),
        "processes": users.of_memory(slot) if unified else users.of_card(slot),
    }


def _ask(command: Sequence[str], environment: Mapping[str, str], end: float) -> Answer:
    """The standard output of a program and, behind it, its errors. Without root's rights, in the cards' groups."""
    options: dict[str, Any] = {}
    if os.geteuid() == 0:
        options = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": _groups()}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C", "MESA_SHADER_CACHE_DISABLE": "true", **environment},
            start_new_session=True,
            **options,
        )
    except OSError as error:
        return Answer(why=f"{command[0]} cannot be run ({os.strerror(error.errno or 0)})")
    output, whole = _output(process, end)
    with contextlib.suppress(ProcessLookupError):
        # Also what it started.
        os.killpg(process.pid, signal.SIGKILL)
    try:
        status = process.wait(DIES)
    except subprocess.TimeoutExpired:
        return Answer(why=HANGS % (command[0], DEADLINE))
    if not whole or status:
        return Answer(why=f"{command[0]} failed with status {status}")
    return Answer(output)


def _output(process: subprocess.Popen[bytes], end: float) -> tuple[str, bool]:
    """-> (output, errors behind it; whether that was all of it, before the deadline and within the limit)"""
    pieces: dict[int, list[bytes]] = {}
    size = 0
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdout, process.stderr):
            if stream:
                selector.register(stream, selectors.EVENT_READ)
                pieces[stream.fileno()] = []
        while selector.get_map():
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready or size > MOST:
                return "", False
            for key, _events in ready:
                piece = os.read(key.fd, 1 << 16)
                size += len(piece)
                pieces[key.fd].append(piece)
                if not piece:
                    selector.unregister(key.fileobj)
    try:
        process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "", False
    return "\n".join(b"".join(own).decode("utf-8", "replace") for own in pieces.values()), True


def _groups() -> list[int]:
    """The groups that may open the node's cards, but not root's."""
    found = set()
    for path in glob.glob("/dev/dri/*"):
        with contextlib.suppress(OSError):
            found.add(os.stat(path).st_gid)
    return sorted(found - {0})
