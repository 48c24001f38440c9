# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's cards as nvidia-smi reports them, cards of other vendors as the kernel does. Private to the
collection."""

from __future__ import annotations

import os
import time
from typing import Any, Callable

from .._node import drm, nvidia_smi, paths
from .config import read
from .exposition import Family
from .metrics import Families
from .units import SERVING, role_of

# Seconds between two samples.
LOOK = 15.0
MIB = 1 << 20
# The kernel does not tell a display's programs from others: a desktop's hold less, MiB.
FOREIGN = 512.0
# SLURM's process above all of a step, and the ancestors that are looked at.
STEP, LEVELS = "slurmstepd", 32


def unit_of(group: str) -> str:
    """The managed unit of a control group, "" for none. Only the outermost unit counts: users name the groups below
    their sessions and containers themselves."""
    for part in group.replace("\n", "/").split("/"):
        if part.endswith((".service", ".scope")):
            return part if role_of(part)[0] in SERVING else ""
    return ""


def of_job(pid: int, folder: str = paths.JOBS, step: str = STEP, root: int = 0) -> bool:
    """Whether a process is in a job of the user whose jobs services are, for which root has made the directory. step:
    the name of root's process above the processes of a job."""
    try:
        user = os.stat(folder).st_uid
        if user == 0 or os.stat("/proc/%d" % pid).st_uid != user:
            return False
        for _level in range(LEVELS):
            # Its name, which the user may choose, is in parentheses.
            name, _end, rest = read("/proc/%d/stat" % pid, 4096).rpartition(")")
            if name.partition("(")[2] == step and os.stat("/proc/%d" % pid).st_uid == root:
                return True
            pid = int(rest.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return False


def control_group(pid: int) -> str:
    return read("/proc/%d/cgroup" % pid, 4096)


class Cards:
    """nvidia-smi and the files of graphics drivers are read in separate processes, which may hang in a driver."""

    def __init__(
        self,
        collect: Callable[..., dict[str, Any]] = nvidia_smi.collect,
        groups: Callable[[int], str] = control_group,
        jobs: Callable[[int], bool] = of_job,
        others: Callable[..., dict[str, Any]] = drm.collect,
        resets: Callable[..., Any] = drm.hangs,
    ) -> None:
        self._collect, self._groups, self._jobs = collect, groups, jobs
        self._others, self._resets = others, resets
        self._before: list[drm.Card] = []
        self._seen: float | None = None  # the last complete output, seconds since 1970

    def look(self) -> list[Family]:
        facts, seen = self._collect(), self._others(usage=True)
        others = drm.gpus(seen, self._before)
        self._before = seen["cards"]
        hung = "hangs" in (facts["reason"] or "") or bool(seen["reason"])
        if (facts["gpus"] or others) and not hung:
            self._seen = time.time()
        elif self._seen is None and not hung:
            return []  # a node without a card
        found = Families()
        found.add("llama_sampler_cards_hung", int(hung))
        found.add("llama_sampler_cards_timestamp_seconds", None if self._seen is None else round(self._seen, 1))
        for gpu in facts["gpus"]:
            self._card(found, gpu, facts["driver"])
        for xid in facts.get("xids") or []:
            gpu = xid["pci_slot"] if xid["gpu"] is None else xid["gpu"]
            found.add("llama_gpu_xid_total", xid["count"], gpu=gpu, xid=xid["xid"])
        for card in others:
            self._other(found, card)
        for one in (self._resets(seen["cards"])[0] or []) if others else []:
            found.add("llama_gpu_resets_total", one["count"], gpu=one["slot"] or one["driver"], kind=one["kind"])
        return found.all()

    def _other(self, found: Families, card: dict[str, Any]) -> None:
        """A card that nvidia-smi does not know, by its PCI slot."""
        self._figures(found, card, "", card["driver"])
        foreign = [
            one["memory_used_mib"]
            for one in card["processes"]
            if one["memory_used_mib"] >= FOREIGN and self._is_foreign(one["pid"])
        ]
        found.add("llama_gpu_foreign_processes", len(foreign), gpu=card["index"])
        found.add("llama_gpu_foreign_memory_bytes", _bytes(sum(foreign)), gpu=card["index"])

    def _is_foreign(self, pid: int) -> bool:
        """Whether a process has not ended, and is neither of a unit nor of a job."""
        group = self._groups(pid)
        return bool(group) and not (unit_of(group) or self._jobs(pid))

    def _figures(self, found: Families, gpu: dict[str, Any], uuid: str, driver: str) -> None:
        card, busy = gpu["index"], gpu["utilization"]
        found.add("llama_gpu_info", 1, gpu=card, name=gpu["name"], uuid=uuid, driver=driver)
        found.add("llama_gpu_utilization_ratio", None if busy is None else busy / 100.0, gpu=card)
        found.add("llama_gpu_memory_used_bytes", _bytes(gpu["memory_used_mib"]), gpu=card)
        found.add("llama_gpu_memory_total_bytes", _bytes(gpu["memory_total_mib"]), gpu=card)
        found.add("llama_gpu_power_watts", gpu["power_w"], gpu=card)
        found.add("llama_gpu_temperature_celsius", gpu["temperature_c"], gpu=card)

    def _card(self, found: Families, gpu: dict[str, Any], driver: str) -> None:
        card = gpu["index"]
        self._figures(found, gpu, gpu["uuid"], driver)
        for reason in gpu["throttle_reasons"] or []:
            found.add("llama_gpu_throttled", 1, gpu=card, reason=reason)
        found.add("llama_gpu_ecc_uncorrected_total", gpu["ecc"]["volatile_uncorrected"], gpu=card)
        foreign: dict[int, int] = {}
        for process in gpu["processes"]:
            if process["type"] != "G" and self._is_foreign(process["pid"] or 0):  # not of the display
                size = _bytes(process["memory_used_mib"]) or 0
                foreign[process["pid"]] = foreign.get(process["pid"], 0) + size
        found.add("llama_gpu_foreign_processes", len(foreign), gpu=card)
        found.add("llama_gpu_foreign_memory_bytes", sum(foreign.values()), gpu=card)


def _bytes(mib: float | None) -> int | None:
    return None if mib is None else int(mib * MIB)
