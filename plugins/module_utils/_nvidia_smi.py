# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of a node as `nvidia-smi -q -x` describes them. No GPU, no driver and a hung driver are answers. Private to the collection."""

import contextlib
import os
import re
import subprocess
import time
from xml.etree import ElementTree

DEADLINE = 10.0


class NotAvailable(Exception):
    """Why nvidia-smi describes no GPU, in one sentence."""


def collect(tool="nvidia-smi", deadline=DEADLINE, pci_root="/sys/bus/pci/devices"):
    """Facts of the node: {available, reason, driver, cuda, gpus}, see nvidia_smi_facts. deadline: seconds for all of it."""
    end = time.monotonic() + deadline
    try:
        facts = parse(_run([tool, "-q", "-x"], deadline))
    except NotAvailable as error:
        return {"available": False, "reason": str(error), "driver": None, "cuda": None, "gpus": []}
    capabilities = {}
    if any(gpu["compute_cap"] is None for gpu in facts["gpus"]):
        # Drivers before 510 do not know the field.
        with contextlib.suppress(NotAvailable):
            capabilities = parse_capabilities(_run([tool, "--query-gpu=uuid,compute_cap", "--format=csv,noheader"], max(0.1, end - time.monotonic())))
    for gpu in facts["gpus"]:
        gpu["compute_cap"] = gpu["compute_cap"] or capabilities.get(gpu["uuid"])
        gpu["numa_node"] = numa_node(gpu["pci_bus_id"], pci_root)
    return facts


def _run(command, deadline):
    """Output of nvidia-smi. Errors: NotAvailable."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise NotAvailable("%s cannot be run (%s): no NVIDIA driver is installed" % (command[0], os.strerror(error.errno))) from None
    try:
        output = process.communicate(timeout=deadline)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        # Not waited for: a process that hangs in the driver does not even die of SIGKILL.
        process.kill()
        process.stdout.close()
        raise NotAvailable("%s gave no answer in %g s: the driver hangs, see dmesg for NVRM or Xid" % (command[0], deadline)) from None
    if process.returncode:
        lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no message"]
        raise NotAvailable("%s failed with status %d: %s" % (command[0], process.returncode, lines[0].rstrip(".")))
    return output


def parse(text):
    """XML of `nvidia-smi -q -x` -> {available, reason, driver, cuda, gpus}; numa_node is not in it. Errors: NotAvailable."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise NotAvailable("nvidia-smi printed no XML (%s): %r" % (error, " ".join(text.split())[:80])) from None
    gpus = [_gpu(index, element) for index, element in enumerate(root.findall("gpu"))]
    return {
        "available": bool(gpus),
        "reason": None if gpus else "nvidia-smi lists no GPU",
        "driver": _text(root, "driver_version"),
        "cuda": _text(root, "cuda_version"),
        "gpus": gpus,
    }


def parse_capabilities(text):
    """'UUID, 7.0' lines -> {uuid: compute capability}."""
    return dict(re.findall(r"^\s*(GPU-\S+?)\s*,\s*(\d+\.\d+)\s*$", text, re.MULTILINE))


def numa_node(bus_id, pci_root="/sys/bus/pci/devices"):
    """NUMA node of '00000000:3B:00.0'; None when the machine has none or does not tell."""
    found = re.match(r"^[0-9A-Fa-f]*([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])$", bus_id or "")
    if not found:
        return None
    try:
        with open(os.path.join(pci_root, found.group(1).lower(), "numa_node"), encoding="ascii") as stream:
            node = int(stream.read())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _text(element, *paths):
    """Text of the first of paths that says something. What the card or driver does not support says N/A, '[N/A]', 'Unknown Error'."""
    for path in paths:
        value = (element.findtext(path) or "").strip().strip("[]")
        if value and value != "None" and not re.match(r"N/A|Not Supported|Unknown|Insufficient|Requested|GPU is lost|GPU requires reset|ERR!", value):
            return value
    return None


def _number(element, *paths):
    """Like _text, without the unit: '32768 MiB' -> 32768, '25.44 W' -> 25.44."""
    found = re.match(r"^-?\d+(\.\d+)?", _text(element, *paths) or "")
    if not found:
        return None
    return float(found.group()) if found.group(1) else int(found.group())


def _switch(element, path):
    return {"Enabled": True, "Disabled": False}.get(_text(element, path))


def _gpu(index, gpu):
    return {
        "index": index,
        "name": _text(gpu, "product_name"),
        "uuid": _text(gpu, "uuid"),
        "pci_bus_id": _text(gpu, "pci/pci_bus_id") or gpu.get("id"),
        "compute_cap": _text(gpu, "compute_cap"),
        "memory_total_mib": _number(gpu, "fb_memory_usage/total"),
        "memory_used_mib": _number(gpu, "fb_memory_usage/used"),
        "memory_free_mib": _number(gpu, "fb_memory_usage/free"),
        "utilization": _number(gpu, "utilization/gpu_util"),
        "memory_utilization": _number(gpu, "utilization/memory_util"),
        "temperature_c": _number(gpu, "temperature/gpu_temp"),
        # Drivers from 535 on name the section anew, and from 545 on the draw too.
        "power_w": _number(
            gpu,
            "gpu_power_readings/power_draw",
            "gpu_power_readings/average_power_draw",
            "gpu_power_readings/instant_power_draw",
            "power_readings/power_draw",
        ),
        "power_limit_w": _number(gpu, "gpu_power_readings/current_power_limit", "gpu_power_readings/power_limit", "power_readings/power_limit"),
        "persistence_mode": _switch(gpu, "persistence_mode"),
        "mig": _switch(gpu, "mig_mode/current_mig"),
        "mig_devices": [_mig_device(device) for device in gpu.findall("mig_devices/mig_device")],
        "ecc": _ecc(gpu),
        "throttle_reasons": _throttle_reasons(gpu),
        "processes": [_process(process) for process in gpu.findall("processes/process_info")],
    }


def _mig_device(device):
    return {
        "index": _number(device, "index"),
        "gpu_instance_id": _number(device, "gpu_instance_id"),
        "memory_total_mib": _number(device, "fb_memory_usage/total"),
        "memory_used_mib": _number(device, "fb_memory_usage/used"),
        "memory_free_mib": _number(device, "fb_memory_usage/free"),
    }


def _ecc(gpu):
    facts = {"enabled": _switch(gpu, "ecc_mode/current_ecc")}
    for period in ("volatile", "aggregate"):
        errors = gpu.find("ecc_errors/" + period)
        for kind, volta, parts in (
            ("corrected", "single_bit/total", ("sram_correctable", "dram_correctable")),
            # Up to 535 one counter for SRAM, after it one for parity and one for SEC-DED.
            ("uncorrected", "double_bit/total", ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")),
        ):
            counts = []
            if errors is not None:
                counts = [count for count in [_number(errors, path) for path in (volta,) + parts] if count is not None]
            facts["%s_%s" % (period, kind)] = sum(counts) if counts else None
    return facts


def _throttle_reasons(gpu):
    """Names of active reasons, without the idle clock: an idle card is not throttled. None when the card does not tell."""
    for section in ("clocks_event_reasons", "clocks_throttle_reasons"):
        reasons = gpu.find(section)
        if reasons is not None and len(reasons):
            active = [re.sub("^clocks_(event|throttle)_reasons?_", "", reason.tag) for reason in reasons if (reason.text or "").strip() == "Active"]
            return sorted(name for name in active if name != "gpu_idle")
    return None


def _process(process):
    return {
        "pid": _number(process, "pid"),
        "type": _text(process, "type"),
        "name": _text(process, "process_name"),
        "memory_used_mib": _number(process, "used_memory"),
    }
