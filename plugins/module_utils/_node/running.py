# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Program, libraries, memory and sockets of a process, from the kernel. Private to the collection.

A process can forge its command line, its environment and its answers, but not these.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from typing import Any

from . import drm, nvidia_smi, paths
from .managed import is_managed_file, is_managed_unit
from .sockets import parse_listeners, process_tree, socket_inodes
from .units import running_digest

# Libraries of a release that a process maps.
LIBRARY = re.compile(r"/lib(?:llama|ggml|mtmd)[^/]*\.so[^/]*\Z")
RELEASE = re.compile(rf"^{re.escape(paths.BUILDS)}/releases/([^/]+)/")
GONE = " (deleted)"
# Limit of files and of listening sockets.
MOST = 64
# Seconds for nvidia-smi.
CARDS = 10.0


def systemd_group(text: str) -> str:
    """/proc/PID/cgroup -> the path in systemd's own hierarchy of version 1, or in that of version 2 if systemd has no
    other: one of version 1 may be there that only the host of a container uses."""
    groups = dict(line.split(":", 2)[1:] for line in text.split("\n") if line.count(":") >= 2)
    own = groups.get("name=systemd", "/")
    return own if own != "/" else groups.get("", own)


def below_root(cgroup: str, root: str) -> list[str]:
    """The parts of a control group below that of process 1, which is root."""
    if root.endswith("/init.scope"):
        root = root[: -len("/init.scope")]
    below = cgroup[len(root) :] if cgroup.startswith(root) else cgroup
    return [part for part in below.split("/") if part]


def unit_of_group(cgroup: str, root: str) -> str | None:
    """The service unit of a process, None without one: the first part below slices. Groups further down, and of
    containers, have names of other users."""
    first = next((part for part in below_root(cgroup, root) if not part.endswith(".slice")), "")
    return first if first.endswith(".service") else None


def managed_processes(proc: str = "/proc", unit_dir: str = paths.UNITS) -> dict[str, str]:
    """{id: unit} of the processes of managed units, with children, and of nginx if it has the gateway's site."""
    found: dict[str, str] = {}
    managed: dict[str, bool] = {}
    root = group_of("1", proc)
    for pid in filter(str.isdigit, os.listdir(proc)):
        unit = unit_of_group(group_of(pid, proc), root)
        if unit and unit not in managed:
            path = os.path.join(unit_dir, unit)
            # Without a file the digest of its start counts.
            mine = is_managed_unit(path) if os.path.lexists(path) else bool(running_digest(unit))
            managed[unit] = mine or unit == "nginx.service" and is_managed_file(paths.NGINX_SITE.lstrip("/"))
        if unit and managed[unit]:
            found[pid] = unit
    return found


def group_of(pid: str, proc: str = "/proc") -> str:
    """The control group of a process; empty if it has ended."""
    # Names of groups may hold other line ends.
    try:
        with open(os.path.join(proc, pid, "cgroup"), encoding="utf-8", errors="replace", newline="\n") as stream:
            return systemd_group(stream.read())
    except OSError:
        return ""


def program(pid: int, proc: str = "/proc") -> dict[str, Any]:
    """-> {release: directory name of its release, None for another program; foreign: files outside of the release, or
    exchanged since its start}"""
    folder = os.path.join(proc, str(pid))
    files = [_link(os.path.join(folder, "exe")), *_libraries(os.path.join(folder, "maps"))]
    releases = [RELEASE.match(name) for name in files]
    own = releases[0].group(1) if releases[0] else None
    foreign = {
        name
        for name, match in zip(files, releases)
        if name and (name.endswith(GONE) or not match or match.group(1) != own)
    }
    return {"release": own, "foreign": sorted(foreign)}


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _libraries(path: str) -> list[str]:
    """The mapped libraries of llama.cpp."""
    found: set[str] = set()
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace", newline="\n") as stream:
        for line in stream:
            if len(found) >= MOST:
                break
            fields = line.rstrip("\n").split(None, 5)
            name = fields[5] if len(fields) > 5 else ""
            if LIBRARY.search(name[: -len(GONE)] if name.endswith(GONE) else name):
                found.add(name)
    return sorted(found)


def resident_mib(pids: Iterable[int], proc: str = "/proc") -> float:
    """Main memory that the processes hold: what they wrote, not the files that they map; MiB."""
    kib = 0
    for pid in pids:
        # A process's name may hold other line ends.
        path = os.path.join(proc, str(pid), "status")
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace", newline="\n") as stream:
            kib += sum(int(line.split()[1]) for line in stream if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")))
    return round(kib / 1024.0, 2)


def listens(pid: int, pids: Iterable[int], proc: str = "/proc") -> list[str]:
    """Listening sockets of pid and its descendants pids as address:port, IPv4 and IPv6."""
    own = socket_inodes(pids, proc)
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(os.path.join(proc, str(pid), "net", name), encoding="ascii") as stream:
            found.update(end for inode, end in parse_listeners(stream.read()).items() if inode in own)
    return sorted(found)[:MOST]


def cards_mib(gpus: list[dict[str, Any]], pids: set[int]) -> dict[str, float] | None:
    """{index of a card, or PCI slot of another vendor's: MiB that these processes hold there}; None without cards.

    In a container, and on a Jetson, nvidia-smi lists no process: a single card in use is theirs with 0 MiB.
    """
    if not gpus:
        return None
    if len(gpus) == 1 and not gpus[0]["processes"] and gpus[0].get("memory_used_mib") != 0:
        return {str(gpus[0]["index"]): 0.0}
    found: dict[str, float] = {}
    for gpu in gpus:
        held = [one["memory_used_mib"] or 0 for one in gpu["processes"] or [] if one["pid"] in pids]
        if held:
            found[str(gpu["index"])] = float(sum(held))
    return found


def processor(path: str = "/proc/cpuinfo") -> str | None:
    """The name of the node's processors."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return None


def running(pid: int) -> dict[str, Any]:
    """Result of llama_process for a process and its descendants."""
    pids = process_tree(pid)
    gpus = nvidia_smi.collect(deadline=CARDS)["gpus"] + drm.gpus(drm.collect(usage=True))
    held = cards_mib(gpus, pids)
    names = [gpu["name"] for gpu in gpus if str(gpu["index"]) in (held or {})]
    return dict(
        program(pid),
        resident_mib=resident_mib(pids),
        listens=listens(pid, pids),
        cards_mib=held,
        machine=", ".join(names) or processor(),
    )
