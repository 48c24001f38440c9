# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's cards, as nvidia-smi tells of them. Private to the collection."""

from __future__ import annotations

import time
from typing import Any, Callable

from .._node import nvidia_smi
from .config import read
from .exposition import Family
from .metrics import Families
from .units import SERVING, role_of

# Seconds between two looks, and without a whole answer until a card's last values are no more.
LOOK, LASTS = 15.0, 60.0
MIB = 1 << 20


def unit_of(group: str) -> str:
    """The unit of ours that a control group belongs to, "" for none. What a process calls itself proves nothing; and
    below a unit of its own, such as that of a session, anybody may name groups as he likes."""
    for part in group.replace("\n", "/").split("/"):
        if part.endswith((".service", ".scope")):
            return part if role_of(part)[0] in SERVING else ""
    return ""


def control_group(pid: int) -> str:
    return read("/proc/%d/cgroup" % pid, 4096)


class Cards:
    """hung: whether nvidia-smi does not answer. It is started by itself, so that one that hangs in the driver holds up
    nobody but this part."""

    def __init__(
        self,
        collect: Callable[..., dict[str, Any]] = nvidia_smi.collect,
        groups: Callable[[int], str] = control_group,
    ) -> None:
        self._collect, self._groups = collect, groups
        self._whole: float | None = None  # when the last whole answer came, since 1970
        self._last: list[Family] = []

    def look(self) -> list[Family]:
        facts = self._collect()
        reason = facts["reason"] or ""
        # A node without a card has nothing to be silent about.
        hung = "hangs" in reason
        if facts["gpus"]:
            self._whole = time.time()
            self._last = self._families(facts)
        elif self._whole is None and not hung:
            return []
        found = Families()
        found.add("llama_sampler_cards_hung", int(hung))
        found.add("llama_sampler_cards_timestamp_seconds", None if self._whole is None else round(self._whole, 1))
        fresh = self._whole is not None and time.time() - self._whole <= LASTS
        return found.all() + (self._last if fresh else [])

    def _families(self, facts: dict[str, Any]) -> list[Family]:
        found = Families()
        for gpu in facts["gpus"]:
            card = gpu["index"]
            found.add("llama_gpu_info", 1, gpu=card, name=gpu["name"], uuid=gpu["uuid"], driver=facts["driver"])
            found.add("llama_gpu_utilization_ratio", _part(gpu["utilization"]), gpu=card)
            found.add("llama_gpu_memory_used_bytes", _bytes(gpu["memory_used_mib"]), gpu=card)
            found.add("llama_gpu_memory_total_bytes", _bytes(gpu["memory_total_mib"]), gpu=card)
            found.add("llama_gpu_power_watts", gpu["power_w"], gpu=card)
            found.add("llama_gpu_temperature_celsius", gpu["temperature_c"], gpu=card)
            for reason in gpu["throttle_reasons"] or []:
                found.add("llama_gpu_throttled", 1, gpu=card, reason=reason)
            found.add("llama_gpu_ecc_uncorrected_total", gpu["ecc"]["volatile_uncorrected"], gpu=card)
            of_units: dict[str, int] = {}
            foreign: set[int] = set()
            foreign_bytes = 0
            for process in gpu["processes"]:
                group = self._groups(process["pid"] or 0)
                if not group:
                    continue  # it has ended
                unit = unit_of(group)
                size = _bytes(process["memory_used_mib"]) or 0
                if unit:
                    of_units[unit] = of_units.get(unit, 0) + size
                elif process["type"] != "G":  # the display's are nobody's business
                    foreign.add(process["pid"])
                    foreign_bytes += size
            found.add("llama_gpu_foreign_processes", len(foreign), gpu=card)
            found.add("llama_gpu_foreign_memory_bytes", foreign_bytes, gpu=card)
            for unit, size in sorted(of_units.items()):
                found.add("llama_gpu_unit_memory_bytes", size, gpu=card, unit=unit)
        for xid in facts["xids"] or []:
            found.add(
                "llama_gpu_xid_total",
                xid["count"],
                gpu=xid["pci_slot"] if xid["gpu"] is None else xid["gpu"],
                xid=xid["xid"],
            )
        return found.all()


def _part(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0


def _bytes(mib: float | None) -> int | None:
    return None if mib is None else int(mib * MIB)
