# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about a node for preflight and the roles, by subset. Read-only. Private to the collection."""

from __future__ import annotations

import base64
import contextlib
import glob
import grp
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._files import is_trusted, names_in, text_of
from . import drm, nvidia_smi, paths, vulkan
from . import fabric as fabrics
from . import units as services
from .build import build_info, kept_releases
from .command import answer, said
from .running import managed_processes
from .trials import Trials

UNITS = (
    *services.SERVICES,
    "llama-watchdog.service",
    "llama-firewall.service",
    "llama-endpoint-*.service",
)
LINKS = ("current", "previous", "build")
# Records of rules added to firewalld: for heads, for clients, and while a model is shared.
RECORDS = (paths.RPC_RULES, paths.CLIENT_RULES, paths.SHARE_RULES)
Facts = dict[str, Any]
ADDED = re.compile(r"(running|permanent) \S+ rule ")


def accounts(asked: Facts) -> Facts:
    """Entries of accounts and groups of these names and of accounts with these ids, split into fields."""
    keys = list(asked["names"]) + [one for one in asked["ids"] if one != "0"]
    return {"accounts": {"passwd": _entries("passwd", keys), "group": _entries("group", asked["names"])}}


def _entries(database: str, keys: Iterable[str]) -> list[list[str]]:
    found = answer(["getent", database] + list(keys), 2)  # 2: one of them is missing
    return [line.split(":") for line in found.split("\n") if line]


def writable(folders: Iterable[str]) -> Facts:
    """The directories that others than root may write; links are followed."""
    return {"writable": [folder for folder in folders if _others_may_write(folder)]}


def _others_may_write(folder: str) -> bool:
    try:
        seen = os.stat(folder)
    except FileNotFoundError:
        return False
    return bool(seen.st_uid or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def real(names: Iterable[str]) -> Facts:
    """{path: its target, links followed}"""
    return {"real": {path: os.path.realpath(path) for path in names}}


def packages(query: Sequence[str]) -> Facts:
    """Whether the package database has all that a query names: dpkg-query also knows packages of which only
    configuration is left."""
    status, output = said(query)
    return {"packages_installed": not status and not re.search("not-installed|config-files|half-", output)}


def selinux(_asked: Any) -> Facts:
    """Whether SELinux is enabled, and the file contexts that were added to its policy."""
    if said(["selinuxenabled"])[0]:
        return {"selinux": {"enabled": False, "contexts": []}}
    listed = said(["semanage", "fcontext", "--list", "--locallist", "--noheading"])[1]
    return {"selinux": {"enabled": True, "contexts": [line.split()[0] for line in listed.splitlines() if line.strip()]}}


CPUS = "/sys/devices/system/cpu"


def physical_cores(cpus: Iterable[int], root: str = CPUS) -> int:
    """The number of cores of logical CPUs, by their siblings. A CPU without a list of siblings counts as a core."""
    cores = set()
    for cpu in cpus:
        try:
            with open("%s/cpu%d/topology/thread_siblings_list" % (root, cpu), encoding="ascii") as stream:
                cores.add(stream.read().strip())
        except OSError:
            cores.add(str(cpu))
    return len(cores)


# The driver of a Grace Hopper adds the card's memory to the kernel's, as a NUMA node.
CARD_NODES = "/proc/driver/nvidia/gpus/*/numa_status"
NODE_MEMORY = "/sys/devices/system/node/node%s/meminfo"


def card_kib(status: str = CARD_NODES, memory: str = NODE_MEMORY) -> int:
    """KiB of the kernel's memory that are a card's."""
    found = 0
    for path in glob.glob(status)[:64]:
        with contextlib.suppress(OSError):
            with open(path, encoding="ascii", errors="replace") as stream:
                node = re.search(r"^Node:\s+(\d{1,4})\nStatus:\s+online$", stream.read(4096), re.MULTILINE)
            if node:
                with open(memory % node.group(1), encoding="ascii", errors="replace") as stream:
                    size = re.search(r" MemTotal:\s+(\d+) kB", stream.read(4096))
                found += int(size.group(1)) if size else 0
    return found


def machine(asked: Facts) -> Facts:
    """Main memory, cores, addresses, and on request the NUMA node of each core."""
    with open("/proc/meminfo", encoding="ascii", errors="replace") as stream:
        (total,) = re.findall(r"^MemTotal:\s+(\d+) kB", stream.read(), re.MULTILINE)
    addresses = fabrics.parse_addresses(said(["ip", "-o", "-4", "addr", "show"])[1])
    nodes = said(["lscpu", "--parse=NODE"])[1].splitlines() if asked["numa"] else []
    return {
        "machine": {
            "memory_mib": (int(total) - card_kib()) // 1024,
            "cores": len(os.sched_getaffinity(0)),
            "physical_cores": physical_cores(os.sched_getaffinity(0)),
            "addresses": sorted(address for address, name in addresses.items() if name != "lo"),
            "numa_nodes": [line for line in nodes if not line.startswith("#")],
        }
    }


def gpus(_asked: Any) -> Facts:
    """The cards that nvidia-smi and the kernel's graphics drivers know."""
    seen = drm.collect()
    return {"nvidia_smi": nvidia_smi.collect(), "llama_drm": {"cards": seen["cards"], "reason": seen["reason"]}}


def vulkan_devices(asked: Facts) -> Facts:
    """The devices that a llama.cpp built for Vulkan uses, with the environment of the node's units."""
    given = {str(name): str(text) for name, text in asked["environment"].items()}
    return {"vulkan": vulkan.collect(given, asked["program"] or "")}


def fabric(asked: Facts) -> Facts:
    """See llama_fabric_facts. Errors: Refusal."""
    return {"llama_fabric": fabrics.collect(**asked)}


def units(_asked: Any) -> Facts:
    """Managed units, chat templates, the start of a hold for maintenance, trials, and the groups that may open the
    node's cards. Errors: Refusal."""
    return {
        "units": [unit._asdict() for unit in services.unit_info(UNITS)],
        "templates": _templates(),
        "held": services.held_since(),
        "trials": Trials().report(),
        "card_groups": card_groups(),
    }


RENDER_NODES = "/dev/dri/renderD*"


def card_groups(pattern: str = RENDER_NODES) -> list[str]:
    """The groups of render nodes, by name: distributions call them render or video. Those without a name, and root's,
    cannot be given to a unit."""
    found = set()
    for path in glob.glob(pattern):
        with contextlib.suppress(OSError, KeyError):
            seen = os.stat(path)
            if stat.S_ISCHR(seen.st_mode) and seen.st_gid and seen.st_mode & stat.S_IRGRP:
                found.add(grp.getgrgid(seen.st_gid).gr_name)
    return sorted(found)


def _templates() -> list[str]:
    """Chat templates that are root's files, which have no mark in their text."""
    found = []
    for path in sorted(glob.glob(paths.TEMPLATES)):
        with contextlib.suppress(FileNotFoundError):
            found += [path] if is_trusted(os.lstat(path)) else []
    return found


def listeners(_asked: Any) -> Facts:
    """Listening sockets and managed processes, after units(): processes may restart. Errors: Refusal."""
    return {"listeners": answer(["ss", "-Hltnp"]), "managed_processes": managed_processes()}


def plans(asked: Iterable[str]) -> Facts:
    """{service: {item: service, content: its memory plan, prompt: its speed for a long prompt}}, both as base64
    if they exist."""
    return {"plans": {service: _plan(service) for service in asked}}


def _plan(service: str) -> dict[str, str]:
    found = {"item": service}
    for name, path in (("content", paths.PLANS), ("prompt", paths.PROMPTS)):
        text = text_of(path.replace("*", service))
        if text is not None:
            found[name] = base64.b64encode(text.encode("utf-8")).decode("ascii")
    return found


def build(asked: Facts) -> Facts:
    """The wanted releases compared with their manifests (empty name: the current one), the links, all releases, and the
    releases that snapshots and trials restore. Errors: Refusal."""
    prefix = asked["prefix"]
    links = {
        name: os.readlink(os.path.join(prefix, name)) for name in LINKS if os.path.islink(os.path.join(prefix, name))
    }
    folder = os.path.join(prefix, "releases")
    found = {
        "of": {release: build_info(prefix, release or None) for release in asked["releases"]},
        "links": links,
        "taken": [name for name in LINKS if name not in links and os.path.exists(os.path.join(prefix, name))],
        "releases": names_in(folder),
        "kept": kept_releases(),
    }
    return {"build": found}


def firewalls(_asked: Any) -> Facts:
    """The kernel's rules, whether firewalld runs, and the rules that earlier runs added to it."""
    found = {"ruleset": said(["nft", "list", "ruleset"])[1], "firewalld": not said(["firewall-cmd", "--state"])[0]}
    return dict(found, **records(RECORDS))


def interfaces(addresses: Iterable[str]) -> Facts:
    """{address or name: output of `ip` for its interface}: a head may listen at either."""
    return {"interfaces": {address: _interface(address) for address in addresses}}


def _interface(address: str) -> str:
    number = said(["getent", "ahostsv4", address])[1].split()[:1]
    return said(["ip", "-oneline", "-4", "address", "show", "to"] + number)[1].strip() if number else ""


def routes(addresses: Iterable[str]) -> dict[str, str]:
    """{address: the interface that packets to it leave by}."""
    found = {
        address: fabrics.parse_route(said(["ip", "-oneline", "route", "get", address])[1])[0] for address in addresses
    }
    return {address: interface or "" for address, interface in found.items()}


def records(noted: Iterable[str]) -> Facts:
    """{path: the rules of firewalld recorded there}."""
    return {
        "records": {path: [line for line in (text_of(path) or "").splitlines() if ADDED.match(line)] for path in noted}
    }


def files(asked: Iterable[str]) -> Facts:
    """{path: [size, second of its last change] of a file, None without one}. Archives drop fractions of a second."""
    return {"files": {path: _seen(path) for path in asked}}


def _seen(path: str) -> list[int] | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return [seen.st_size, int(seen.st_mtime)]


def watched(_asked: Any) -> Facts:
    """The watchdog's files, by name and mark."""
    found = []
    for path in sorted(glob.glob(paths.WATCHED_FILES)):
        kind = os.path.basename(path).partition("-")[0]
        if kind in ("rpc", *services.ANSWERING) and re.search(rf'"unit": "llama-{kind}[-.]', text_of(path) or ""):
            found.append(path)
    return {"watched": found}


# In this order: sockets after units.
SUBSETS = (
    ("accounts", accounts),
    ("writable", writable),
    ("real", real),
    ("packages", packages),
    ("selinux", selinux),
    ("machine", machine),
    ("gpus", gpus),
    ("vulkan", vulkan_devices),
    ("fabric", fabric),
    ("units", units),
    ("listeners", listeners),
    ("plans", plans),
    ("build", build),
    ("firewalls", firewalls),
    ("interfaces", interfaces),
    ("records", records),
    ("watched", watched),
    ("files", files),
)


def collect(asked: Mapping[str, Any]) -> Facts:
    """{fact: value} of the wanted subsets: {subset: argument}, None and False to skip one. Errors: Refusal."""
    facts: Facts = {}
    for name, look in SUBSETS:
        if asked.get(name) not in (None, False):
            for fact, value in look(asked[name]).items():
                # Several subsets add records.
                facts[fact] = dict(facts[fact], **value) if fact in facts else value
    return facts
