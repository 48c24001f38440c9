# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of a node from `nvidia-smi -q -x`. No GPU, no driver and a hung driver are results, not errors. Private to the
collection."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable
from typing import Any, Union
from xml.etree import ElementTree

from .._text import Refusal, printable
from . import kernel_log

Facts = dict[str, Any]
Number = Union[int, float]
DEADLINE = 10.0
XML_END = "</nvidia_smi_log>"
# Drivers from 610 write comments of one line.
COMMENT = re.compile(r"<!--[^\n]*?-->")
# Longer comments, and instructions, hide elements. nvidia-smi does not write them.
HIDES = re.compile(r"<(?!\?xml |!DOCTYPE )[!?]")
# Whole lines: the name of a process may hold the tag.
PROCESSES = re.compile(r"^\s*<processes>\s*$.*?^\s*</processes>\s*$", re.DOTALL | re.MULTILINE)
# Seconds in which a process dies of SIGKILL unless it hangs in the kernel.
DIES = 1.0
HANGS = "%s gave no answer in %g s: the driver hangs, see dmesg for NVRM or Xid"
# Calls that hang in the driver and survive SIGKILL: no further call is started meanwhile.
_hanging: list[subprocess.Popen[bytes]] = []
# Counters of memory errors: up to Volta one total, after it one for each memory; after driver 535 two for SRAM.
UNCORRECTED = (
    "double_bit/total",
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "dram_uncorrectable",
)
# (words of a failure, its remedy)
REMEDIES = (
    ("Driver/library version mismatch", "the kernel still runs the driver of before an update: reboot the node"),
    (
        "couldn't communicate with the NVIDIA driver",
        "its kernel module is not loaded: load it with modprobe nvidia and see dmesg",
    ),
    ("No devices were found", "the driver runs and found no GPU that works: see lspci and dmesg"),
    ("Unable to determine the device handle", "a card fell off the bus: look for Xid in dmesg and restart the node"),
    ("libnvidia-ml.so", "libraries of the driver are missing: install all packages of one driver version"),
    (
        "Insufficient Permissions",
        "/dev/nvidiactl or /dev/nvidia0 cannot be opened: see ls -l /dev/nvidia* and, in a container, its devices",
    ),
    (
        "Failed to initialize NVML: Unknown Error",
        "the devices cannot be used: restart the container, or look for NVRM in dmesg and restart the node",
    ),
)


def collect(
    tool: str = "nvidia-smi",
    deadline: float = DEADLINE,
    pci_root: str = "/sys/bus/pci/devices",
    kernel_log: str = "/dev/kmsg",
) -> Facts:
    """Facts of the node: {available, reason, warning, driver, cuda, gpus, xids, xids_reason}, see nvidia_smi_facts.

    deadline: seconds for all calls of the tool together.
    """
    end = time.monotonic() + deadline
    try:
        facts = parse(_run([tool, "-q", "-x"], deadline))
    except Refusal as error:
        facts = {"available": False, "reason": str(error), "warning": None, "driver": None, "cuda": None, "gpus": []}
    gpus = facts["gpus"]
    capabilities: dict[str, str] = {}
    instances: dict[tuple[str | None, int], str] = {}
    # Not in the XML of drivers from 418 to 595; drivers before 510 do not know compute_cap.
    with contextlib.suppress(Refusal):
        if any(gpu["compute_cap"] is None for gpu in gpus):
            capabilities = parse_capabilities(
                _run([tool, "--query-gpu=uuid,compute_cap", "--format=csv,noheader"], _left(end))
            )
    with contextlib.suppress(Refusal):
        if any(gpu["mig_devices"] for gpu in gpus):
            instances = parse_instances(_run([tool, "-L"], _left(end)))
    for gpu in gpus:
        gpu["compute_cap"] = gpu["compute_cap"] or capabilities.get(gpu["uuid"])
        gpu["numa_node"] = numa_node(gpu["pci_bus_id"], pci_root)
        for device in gpu["mig_devices"]:
            device["uuid"] = instances.get((gpu["uuid"], device["index"]))
    # A card that fell off the bus and a driver that hangs leave their reason only in the kernel's log.
    facts["xids"], facts["xids_reason"] = read_xids(kernel_log)
    for xid in facts["xids"] or []:
        xid["gpu"] = next((gpu["index"] for gpu in gpus if _pci_slot(gpu["pci_bus_id"]) == xid["pci_slot"]), None)
    return facts


def _left(end: float) -> float:
    return max(0.1, end - time.monotonic())


def _run(command: list[str], deadline: float) -> str:
    """Output of nvidia-smi. Errors: Refusal."""
    _hanging[:] = [one for one in _hanging if one.poll() is None]
    if _hanging:
        raise Refusal(HANGS % (command[0], deadline))
    try:
        # A session of its own, so that its children can be killed with it.
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        remedy = ": no NVIDIA driver is installed" if error.errno == errno.ENOENT else ""
        raise Refusal(f"{command[0]} cannot be run ({os.strerror(error.errno or 0)}){remedy}") from None
    try:
        output = process.communicate(timeout=deadline)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdout:
            process.stdout.close()
        try:
            process.wait(DIES)
        except subprocess.TimeoutExpired:
            _hanging.append(process)
        raise Refusal(HANGS % (command[0], deadline)) from None
    # A card with a corrupt infoROM gives an exit status although the answer is complete.
    if process.returncode and XML_END not in output:
        raise Refusal("%s failed with status %d: %s" % (command[0], process.returncode, _explained(output)))
    return output


def _explained(output: str) -> str:
    """A message of nvidia-smi in one line, with its remedy if there is one."""
    message = ", ".join(line.strip().rstrip(".") for line in output.splitlines() if line.strip()) or "no message"
    return printable(message, 300) + next((": " + remedy for words, remedy in REMEDIES if words in message), "")


def parse(text: str) -> Facts:
    """Output of `nvidia-smi -q -x` -> {available, reason, warning, driver, cuda, gpus}; numa_node is not in it. Errors:
    Refusal."""
    # Messages about single cards stand before or after the XML.
    start = max(0, text.find("<?xml"))
    end = text.rfind(XML_END) + len(XML_END) if XML_END in text else len(text)
    broken, log = "", COMMENT.sub("", text[start:end])
    try:
        root = _read(log)
    except ElementTree.ParseError as error:
        # The name of a process may hold anything.
        broken = f" nvidia-smi printed no XML ({error}): its processes are left out"
        try:
            root = _read(PROCESSES.sub("<processes/>", log))
        except ElementTree.ParseError:
            raise Refusal(f"nvidia-smi printed no XML ({error}): {_explained(text[:start] or text[:300])}") from None
    gpus = [_gpu(index, element) for index, element in enumerate(root.findall("gpu"))]
    return {
        "available": bool(gpus),
        "reason": None if gpus else "nvidia-smi lists no GPU",
        "warning": " ".join((text[:start] + " " + text[end:] + broken).split()) or None,
        "driver": _text(root, "driver_version", "kmd_version"),
        "cuda": _text(root, "cuda_version", "cuda_umd_version"),
        "gpus": gpus,
    }


def _read(text: str) -> ElementTree.Element:
    """The XML, with each card once, below no other card, with one list of processes, and no more cards than are
    attached. Errors: ParseError."""
    root = ElementTree.fromstring(text)
    gpus = root.findall("gpu")
    names = [_text(gpu, "uuid") for gpu in gpus] + [_text(gpu, "pci/pci_bus_id") or gpu.get("id") for gpu in gpus]
    names = [name for name in names if name]
    if (
        HIDES.search(text)
        or len(names) != len(set(names))
        or len(gpus) != len(list(root.iter("gpu")))
        or len(list(root.iter("processes"))) > len(gpus)
        or len(gpus) > (_number(root, "attached_gpus") or len(gpus))
    ):
        raise ElementTree.ParseError("the name of a process describes cards")
    return root


def parse_capabilities(text: str) -> dict[str, str]:
    """'UUID, 7.0' lines -> {uuid: compute capability}."""
    return dict(re.findall(r"^\s*(GPU-\S+?)\s*,\s*(\d+\.\d+)\s*$", text, re.MULTILINE))


def parse_instances(text: str) -> dict[tuple[str | None, int], str]:
    """Lines of `nvidia-smi -L` -> {(uuid of the GPU, index of the MIG device): uuid of the MIG device}."""
    instances: dict[tuple[str | None, int], str] = {}
    gpu: str | None = None
    for line in text.splitlines():
        card = re.match(r"^GPU \d+: .*\(UUID: (GPU-\S+)\)", line)
        device = re.match(r"^\s+MIG \S+\s+Device\s+(\d+): \(UUID: (MIG-\S+)\)", line)
        if card:
            gpu = card.group(1)
        elif device:
            instances[gpu, int(device.group(1))] = device.group(2)
    return instances


def processes_by_slot(gpus: Iterable[Facts]) -> dict[str, dict[int, Number]]:
    """{PCI slot as sysfs writes it: {process id: MiB}} of the cards of `collect`."""
    found: dict[str, dict[int, Number]] = {}
    for gpu in gpus:
        slot = _pci_slot(gpu["pci_bus_id"])
        held = {one["pid"]: one["memory_used_mib"] for one in gpu["processes"] if one["memory_used_mib"]}
        if slot:
            found[slot + gpu["pci_bus_id"][-2:].lower()] = held
    return found


def _pci_slot(bus_id: str | None) -> str | None:
    """'00000000:3B:00.0' -> '0000:3b:00', as the kernel writes it; None if it is no PCI address."""
    found = re.match(r"^[0-9A-Fa-f]*([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\.[0-9A-Fa-f]\Z", bus_id or "")
    return found.group(1).lower() if found else None


def numa_node(bus_id: str | None, pci_root: str = "/sys/bus/pci/devices") -> int | None:
    """NUMA node of '00000000:3B:00.0'; None if unknown."""
    slot = _pci_slot(bus_id)
    if not bus_id or not slot:
        return None
    try:
        with open(os.path.join(pci_root, slot + bus_id[-2:].lower(), "numa_node"), encoding="ascii") as stream:
            node = int(stream.read())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _text(element: ElementTree.Element, *paths: str) -> str | None:
    """Text of the first of paths that has a value; N/A, '[N/A]', 'Unknown Error' and the like are no value."""
    for path in paths:
        value = (element.findtext(path) or "").strip().strip("[]")
        if (
            value
            and value != "None"
            and not re.match(
                r"N/A|Not Supported|Not Found|Unknown|Insufficient|Requested|GPU is lost|GPU requires reset|ERR!", value
            )
        ):
            return value
    return None


def _number(element: ElementTree.Element, *paths: str) -> Number | None:
    """Like _text, without the unit: '32768 MiB' -> 32768, '25.44 W' -> 25.44."""
    found = re.match(r"^-?\d+(\.\d+)?", _text(element, *paths) or "")
    if not found:
        return None
    return float(found.group()) if found.group(1) else int(found.group())


def _switch(element: ElementTree.Element, *paths: str) -> bool | None:
    """The first of paths that has a value, as a boolean; None without one."""
    return {"Enabled": True, "Yes": True, "Disabled": False, "No": False}.get(_text(element, *paths) or "")


def _sum(element: ElementTree.Element, *paths: str) -> Number | None:
    """Sum of the numbers at paths; None without a number."""
    numbers = [number for number in [_number(element, path) for path in paths] if number is not None]
    return sum(numbers) if numbers else None


def _gpu(index: int, gpu: ElementTree.Element) -> Facts:
    return {
        "index": index,
        "name": _text(gpu, "product_name"),
        "uuid": _text(gpu, "uuid"),
        "pci_bus_id": _text(gpu, "pci/pci_bus_id") or gpu.get("id"),
        "compute_cap": _text(gpu, "compute_cap"),
        "compute_mode": _text(gpu, "compute_mode"),
        "memory_total_mib": _number(gpu, "fb_memory_usage/total"),
        "memory_reason": _memory_reason(gpu),
        "memory_used_mib": _number(gpu, "fb_memory_usage/used"),
        "memory_free_mib": _number(gpu, "fb_memory_usage/free"),
        "utilization": _number(gpu, "utilization/gpu_util"),
        "temperature_c": _number(gpu, "temperature/gpu_temp"),
        # Renamed: the section by driver 535, the draw after 555.
        "power_w": _number(
            gpu,
            "gpu_power_readings/average_power_draw",
            "gpu_power_readings/instant_power_draw",
            "gpu_power_readings/power_draw",
            "power_readings/power_draw",
        ),
        "mig": _switch(gpu, "mig_mode/current_mig"),
        "mig_devices": [_mig_device(device) for device in gpu.findall("mig_devices/mig_device")],
        "ecc": {"volatile_uncorrected": _sum(gpu, *(f"ecc_errors/volatile/{one}" for one in UNCORRECTED))},
        "throttle_reasons": _throttle_reasons(gpu),
        "processes": [_process(process) for process in gpu.findall("processes/process_info")],
    }


def _memory_reason(gpu: ElementTree.Element) -> str | None:
    """Text printed in place of the memory size, such as N/A of a card without memory of its own; None with a size."""
    path = "fb_memory_usage/total"
    return None if _number(gpu, path) is not None else (gpu.findtext(path) or "").strip() or None


def _mig_device(device: ElementTree.Element) -> Facts:
    return {
        "index": _number(device, "index"),
        "gpu_instance_id": _number(device, "gpu_instance_id"),
        "compute_instance_id": _number(device, "compute_instance_id"),
        "memory_total_mib": _number(device, "fb_memory_usage/total"),
        "memory_used_mib": _number(device, "fb_memory_usage/used"),
        "memory_free_mib": _number(device, "fb_memory_usage/free"),
    }


def _throttle_reasons(gpu: ElementTree.Element) -> list[str] | None:
    """Names of active reasons except the idle clock, sorted; None if the card reports no reasons."""
    for section in ("clocks_event_reasons", "clocks_throttle_reasons"):
        reasons = gpu.find(section)
        if reasons is not None and len(reasons):
            active = [
                re.sub("^clocks_(event|throttle)_reasons?_", "", reason.tag)
                for reason in reasons
                if (reason.text or "").strip() == "Active"
            ]
            return sorted(name for name in active if name != "gpu_idle")
    return None


def _process(process: ElementTree.Element) -> Facts:
    return {
        "pid": _number(process, "pid"),
        "type": _text(process, "type"),
        "name": _text(process, "process_name"),
        "memory_used_mib": _number(process, "used_memory"),
    }


Xid = dict[str, Any]
# NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, name=..., text; the instance stands there on a MIG device.
XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})[^)]*\): (\d+)(?:, *(.*))?$", re.IGNORECASE
)
# A driver that loads after that logs no Xid. The kernel writes \x0a for the ends of lines within one record.
FALLEN = re.compile(
    r"NVRM: The NVIDIA GPU ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-7]\b.*(fallen off the bus)", re.IGNORECASE
)
FALLEN_XID = 79


def read_xids(path: str = kernel_log.PATH) -> tuple[list[Xid] | None, str | None]:
    """(xids, None), or (None, what is needed to read the log).

    xids: one {pci_slot, xid, count, seconds_ago, message} for each card and number, oldest first; seconds_ago and
    message of the latest. As far back as the ring buffer of the kernel goes.
    """
    records, reason = kernel_log.read(path)
    return (None if records is None else xids_in(records)), reason


def xids_in(records: list[kernel_log.Record]) -> list[Xid]:
    """Records of the kernel's log -> the list of read_xids."""
    found: dict[tuple[str, int], Xid] = {}
    for record in records:
        match, fallen = XID.match(record.text), FALLEN.match(record.text)
        if match:
            slot, number, message = match.group(1).lower(), int(match.group(2)), match.group(3)
        elif fallen:
            slot, number, message = fallen.group(1).lower(), FALLEN_XID, fallen.group(2)
        else:
            continue
        entry = found.setdefault((slot, number), {"pci_slot": slot, "xid": number, "count": 0})
        entry["count"] += 1
        entry["seconds_ago"] = record.seconds_ago
        entry["message"] = message or None
    return list(found.values())
