# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd's sandbox of workers and heads, by accelerator. Private to the collection.

systemd 239 warns about a directive that it does not know and continues without it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ...module_utils._node import paths

# For a program that reads models, listens and computes: no privilege, no writes, no kernel interface, no namespace, no
# sockets except IP and local.
COMMON = (
    "UMask=0077",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "ProtectProc=invisible",
    "ProtectHostname=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "PrivateTmp=yes",
    "PrivateMounts=yes",
    # Hides all API keys; a head gets the file of its own service back.
    f"TemporaryFileSystem={paths.KEYS}:ro",
    "RemoveIPC=yes",
    "KeyringMode=private",
    "LockPersonality=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
    "SystemCallArchitectures=native",
    "SystemCallErrorNumber=EPERM",
    "SystemCallFilter=@system-service",
)

BY_ACCELERATOR = {
    # Without devices nothing needs more.
    "cpu": (
        "PrivateDevices=yes",
        "PrivateUsers=yes",
        "ProtectClock=yes",
        "ProcSubset=pid",
        "MemoryDenyWriteExecute=yes",
        "SystemCallFilter=~@privileged @resources",
    ),
    # CUDA maps memory that it writes and executes, reads /proc/driver/nvidia and binds memory to NUMA nodes: the
    # restrictions of the CPU would break it.
    # A library that cannot open the devices silently computes on the CPU, so ExecStartPre opens them first. systemd
    # resolves char-nvidia* when a unit starts, and finds nvidia-uvm only once its module is loaded: the first line
    # loads it, and the start after a failed one has it.
    "cuda": (
        "DevicePolicy=closed",
        "DeviceAllow=char-nvidia* rw",
        "ExecStartPre=+-/usr/bin/nvidia-modprobe -c 0 -u",
        "ExecStartPre=/bin/sh -c '[ ! -e /dev/nvidiactl -o -e /dev/nvidia-uvm ] || { echo \"/dev/nvidia-uvm: missing, "
        "CUDA needs it: install the package "
        'nvidia-modprobe, which makes it" >&2; exit 1; }; [ ! -e /dev/nvidiactl ] || exec 3<>/dev/nvidiactl '
        "4<>/dev/nvidia-uvm'",
    ),
    # Drivers of Vulkan compile shaders, and read the free memory in /proc/meminfo; NVIDIA's devices serve Vulkan too.
    # systemd resolves char-drm when a unit starts: the start after a failed one sees a driver that was loaded since.
    "vulkan": (
        "DevicePolicy=closed",
        "DeviceAllow=char-drm rw",
        "DeviceAllow=char-nvidia* rw",
        "ProtectClock=yes",
        "SystemCallFilter=~@privileged",
    ),
}
# Opens a card, since a program for Vulkan that cannot computes on the CPU silently.
OPENS = (
    'for card in /dev/dri/renderD* /dev/nvidiactl; do [ ! -c "$$card" ] || ! (exec 3<>"$$card") 2>/dev/null || exit 0; '
    'done; echo "/dev/dri: no render node seen that this unit may open, one is needed for Vulkan: load the driver of '
    'the card, and run site.yml, which lets the unit into the group of its render nodes" >&2; exit 1'
)

# Needed by libibverbs: netlink sockets and the char devices of the cards, which PrivateDevices would hide.
RDMA = ("RestrictAddressFamilies=AF_NETLINK", "DevicePolicy=closed", "DeviceAllow=char-infiniband_verbs rw")

# System calls of numactl before it becomes the program.
NUMA = "SystemCallFilter=sched_setaffinity set_mempolicy"


# Bytes that a driver keeps of compiled shaders.
SHADERS_MOST = 256 << 20


def unit_sandbox(
    accelerator: str,
    numa: bool = False,
    rdma: bool = False,
    groups: Sequence[str] = (),
    shaders: str = "",
    visible: str | None = None,
) -> list[str]:
    """Returns lines for [Service]. accelerator: cpu, cuda or vulkan; numa: whether numactl starts the program; rdma:
    whether its build uses RDMA. For vulkan: groups: those that may open the node's cards, which exist; shaders:
    directory of compiled shaders, below /var/cache, empty for none; visible: GGML_VK_VISIBLE_DEVICES of the inventory,
    which may name a device that is no hardware, or be empty for no device."""
    lines = list(COMMON + BY_ACCELERATOR[accelerator]) + ([NUMA] if numa else [])
    if accelerator == "vulkan":
        # systemd refuses a group that does not exist.
        lines += [f"SupplementaryGroups={' '.join(groups)}"] if groups else []
        folder = shaders.removeprefix(os.path.dirname(paths.TENSORS) + "/")
        lines += [f"CacheDirectory={folder}", "CacheDirectoryMode=0700"] if shaders else []
        unless = "" if visible is None else "[ -e /dev/dri ] || exit 0; "
        lines += [f"ExecStartPre=/bin/sh -c '{unless}{OPENS}'"] if visible != "" else []
    if rdma:
        lines = [line for line in lines if line != "PrivateDevices=yes"] + [line for line in RDMA if line not in lines]
    return lines


def shader_cache(folder: str) -> dict[str, str]:
    """The environment that has the drivers of Mesa and NVIDIA keep compiled shaders in a directory, and no more of them
    than SHADERS_MOST."""
    return {
        "MESA_SHADER_CACHE_DIR": folder,
        "MESA_SHADER_CACHE_MAX_SIZE": f"{SHADERS_MOST >> 20}M",
        "__GL_SHADER_DISK_CACHE_PATH": folder,
        "__GL_SHADER_DISK_CACHE_SIZE": str(SHADERS_MOST),
    }
