# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of the machine: cards, disks, models, fabric, firewall, clock, gateway and jobs. Private to the
collection."""

from __future__ import annotations

import glob
import json
import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._exporter.cards import FOREIGN as DESKTOP
from .._exporter.cards import control_group, of_job, unit_of
from .._exporter.config import read, watched
from .._exporter.exposition import parse
from .._exporter.machine import certificate_ends, clock_synchronized, fenced
from .._gateway import draining
from .._llama.api import rows, table
from .._node import drm, fabric, nvidia_smi, paths
from .._node.command import said
from .._slurm import facts, state
from .._watchdog.firewall import LIST

# Seconds for the gateway's engine.
SHORT = 5.0
MIB = 1 << 20
JOB = "a job of SLURM"
SERVERS = ("llama-server", "ggml-rpc-server", "rpc-server")
# Throttling by a fault, not by the card's power limit.
THROTTLES = ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")
# Size and number of blocks of a model's file that are read.
BLOCK, BLOCKS = 4096, 16


def cards(units: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """{cards, xids, resets, driver, graphics}: cards with the units and other processes on each; driver of NVIDIA:
    {available, reason, version}; graphics, of other vendors: {reason: why they do not answer}."""
    facts, seen = nvidia_smi.collect(), drm.collect(usage=True)
    others = drm.gpus(seen)
    xids = [dict(one, node=None) for one in facts["xids"] or []]
    return {
        "cards": [_card(gpu) for gpu in facts["gpus"]] + [_card(gpu, DESKTOP) for gpu in others],
        "xids": xids,
        "resets": (drm.hangs(seen["cards"])[0] or []) if others else [],
        "driver": {"available": facts["available"], "reason": facts["reason"], "version": facts["driver"]},
        "graphics": {"reason": seen["reason"]},
    }


def _card(gpu: Mapping[str, Any], least: float = 0.0) -> dict[str, Any]:
    """A card's record. least: MiB of other processes that count."""
    own: dict[str, int] = {}
    others = []
    for process in gpu["processes"]:
        pid, mib = process["pid"] or 0, process["memory_used_mib"] or 0
        unit = unit_of(control_group(pid)) or (JOB if of_job(pid) else "") if pid else ""
        if unit:
            own[unit] = own.get(unit, 0) + int(mib * MIB)
        elif process.get("type") != "G" and mib >= least:
            name = process.get("name") or read(f"/proc/{pid}/comm", 64).strip()
            others.append({"pid": process["pid"], "name": os.path.basename(str(name)), "bytes": int(mib * MIB)})
    throttles = [one for one in gpu.get("throttle_reasons") or [] if one in THROTTLES]
    total, used = gpu["memory_total_mib"], gpu["memory_used_mib"]
    free = gpu["memory_free_mib"] if "memory_free_mib" in gpu else None if None in (total, used) else total - used
    return {
        "index": gpu["index"],
        "name": gpu["name"],
        "numa_node": gpu["numa_node"],
        "total": int((total or 0) * MIB) or None,
        "free_ratio": free / total if free is not None and total else None,
        "temperature": gpu["temperature_c"],
        "throttles": throttles,
        "throttled": bool(throttles),
        "uncorrected": table(gpu.get("ecc")).get("volatile_uncorrected"),
        "units": sorted(own),
        "foreign": others,
        "foreign_names": ", ".join(f"{one['name']}[{one['pid']}]" for one in others),
        "foreign_pids": ",".join(str(one["pid"]) for one in others),
        "foreign_bytes": sum(one["bytes"] for one in others),
        "foreign_servers": any(one["name"] in SERVERS for one in others),
    }


def disks(models: Iterable[str]) -> list[dict[str, Any]]:
    """The file systems that the services use, each once."""
    places = ["/", paths.STATE, paths.BUILDS, paths.TENSORS, "/var/log", "/var/tmp"]
    places += sorted({os.path.dirname(one) for one in models})
    found: dict[Any, dict[str, Any]] = {}
    for path in places:
        try:
            device, seen = os.stat(path).st_dev, os.statvfs(path)
        except OSError:
            continue
        size = seen.f_blocks * seen.f_frsize
        free = seen.f_bavail * seen.f_frsize
        if size and device not in found:
            inodes = seen.f_favail / seen.f_files if seen.f_files else 1.0
            found[device] = {
                "path": path,
                "size": size,
                "free": free,
                "free_ratio": free / size,
                "inodes_ratio": inodes,
            }
    return list(found.values())


def models(served: Mapping[str, str]) -> list[dict[str, Any]]:
    """The model files of heads: existence, magic number, and how many of some blocks are zero."""
    found = []
    for path, service in sorted(served.items()):
        one: dict[str, Any] = {"path": path, "service": service, "exists": os.path.isfile(path)}
        if one["exists"]:
            # The path may be a pipe, which must not block.
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    continue
                one["magic"] = stream.read(4) == b"GGUF"
                size = one["size"] = os.fstat(stream.fileno()).st_size
                zero = 0
                for part in range(BLOCKS):
                    stream.seek(size // 4 + (size - size // 4) * part // BLOCKS)
                    block = stream.read(BLOCK)
                    zero += bool(block) and not any(block)
                one["zero_blocks"], one["looked_at"] = zero, BLOCKS
        found.append(one)
    return found


def fabric_of(address: str | None, peers: Sequence[str], sysfs: str = "/sys") -> dict[str, Any]:
    """The interface of the fabric address, and InfiniBand interfaces of the node that are up. Errors: Refusal."""
    links = {}
    for folder in sorted(glob.glob(os.path.join(sysfs, "class/net/*"))):
        name = os.path.basename(folder)
        links[name] = fabric.describe(name, sysfs)
    spare = [name for name, one in sorted(links.items()) if one["link_layer"] == "InfiniBand" and one["state"] == "up"]
    found: dict[str, Any] = {"address": address, "infiniband": ", ".join(spare) or None}
    if address:
        facts = fabric.collect(address, peers, sysfs=sysfs)
        for name in ("interface", "link_layer", "state", "mtu", "ipoib_mode", "rate_gbps", "warnings"):
            found[name] = facts[name]
        found["warning"] = facts["warnings"][0] if facts["warnings"] else None
    return found


def addresses_of(units: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The fabric address of the node's worker, and the addresses of its heads' workers."""
    own = [str(unit["endpoint"]).rpartition(":")[0] for unit in units if unit.get("kind") == "rpc" and unit["endpoint"]]
    peers = {str(one).rpartition(":")[0] for unit in units for one in unit.get("rpc_endpoints") or ()}
    sampled = table(_json(paths.SAMPLER)).get("fabric_address")
    return {"address": own[0] if own else sampled or None, "peers": sorted(peers)}


def firewall() -> dict[str, Any]:
    """{fences: for each worker whether the kernel's rules admit only its head}."""
    found: dict[str, Any] = {"fences": []}
    workers = [one for one in watched() if one.kind == "rpc"]
    if workers:
        status, text = said(LIST)
        for one in workers:
            port = one.settings.get("port")
            if isinstance(port, int):
                closed = fenced("" if status else text, port)
                found["fences"].append({"unit": one.unit, "service": one.service, "port": port, "fenced": closed == 1})
    return found


def machine() -> dict[str, Any]:
    """{clock, numa, certificate}."""
    balancing = read("/proc/sys/kernel/numa_balancing").strip()
    return {
        "clock": {"synchronized": clock_synchronized()},
        "numa": {
            "nodes": len(glob.glob("/sys/devices/system/node/node[0-9]*")) or None,
            "balancing": int(balancing) if balancing.isdigit() else None,
        },
        "certificate": _certificate(),
    }


def jobs(config: str = paths.KEEPER_CONFIG, directory: str = paths.KEEPER) -> dict[str, Any]:
    """The keeper of SLURM's jobs and its services, on the host that submits them.

    -> keepers: [{why: it is not believed, or empty}]; jobs: [{service, state, reason: why it waits, serves, failures:
    jobs in a row that did not serve a minute, last, code, ended: why and when the last one ended}]
    """
    if not os.path.exists(config):
        return {"keepers": [], "jobs": []}
    content = state.read(directory)
    why = facts.mistrust(content, time.time())
    known = {} if why else state.known_of(content)
    return {
        "keepers": [{"why": why}],
        "jobs": [
            {
                "service": service,
                "state": one.state,
                "reason": one.reason,
                "serves": one.serves,
                "failures": one.failures,
                "last": str(one.last["words"]) if one.last else "",
                "code": one.last["code"] if one.last else "",
                "ended": one.last["at"] if one.last else None,
            }
            for service, one in sorted(known.items())
        ],
    }


def differences(config: str = paths.KEEPER_CONFIG) -> dict[str, Any]:
    """Differences of SLURM from the inventory, on the host that submits jobs. Errors: Refusal."""
    compared = table(_json(config)).get("compared")
    return facts.differences(compared) if compared else {"accounting": [], "gres": []}


def _certificate() -> dict[str, Any]:
    path = str(table(_json(paths.SAMPLER)).get("certificate") or "")
    expires = certificate_ends(path) if path else None
    return {"path": path or None, "left": None if expires is None else expires - time.time()}


def gateway() -> dict[str, Any]:
    """{there, asked: unknown model names that clients requested since the engine started, with counts}."""
    config = table(_json(paths.GATEWAY_CONFIG))
    asked = []
    if config:
        # A name may have become an alias meanwhile.
        served = {
            str(name)
            for service in table(config.get("services")).values()
            for model in rows(table(service).get("models")) or []
            for name in [model.get("name")] + list(model.get("aliases") or [])
        }
        for sample in parse(engine_says("/metrics")):
            is_unknown = sample.name == "llama_gateway_names_unknown_total" and sample.value > 0
            if is_unknown and sample.labels.get("name") not in served:
                asked.append({"model": sample.labels.get("name"), "count": int(sample.value)})
    return {"there": bool(config), "asked": asked}


def engine_says(path: str, at: str = paths.GATEWAY_SOCKET) -> str:
    """The response of the gateway's engine through its socket, "" for none."""
    try:
        return draining.ask(path, at, SHORT).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _json(path: str) -> Any:
    try:
        return json.loads(read(path))
    except (ValueError, RecursionError):
        return None
