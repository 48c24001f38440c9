# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine under the services: fabric, disks, clock, the fence of the RPC ports. Private to the
collection."""

from __future__ import annotations

import ctypes
import os
import re
import ssl
import time
from typing import Any

from .._node import fabric
from .._watchdog.firewall import LIST, run
from . import config
from .exposition import Family
from .metrics import Families

# Of adjtimex(2): the kernel's word for a clock that nobody sets, and the room of struct timex.
TIME_ERROR, TIMEX = 5, 256
CONTAINERS = ("/run/systemd/container", "/.dockerenv")
INPUT = re.compile(r"\bchain input \{(.*?)\n\s*\}", re.DOTALL)
# Seconds until the interface of the fabric address is looked up again.
AGAIN = 15.0


def clock_synchronized() -> int | None:
    """Whether something keeps the kernel's clock; None where nobody here may: a container has that of its machine."""
    if any(map(os.path.exists, CONTAINERS)):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(TIMEX)  # modes = 0: only reads
    state = libc.adjtimex(buffer)
    return None if state < 0 else int(state != TIME_ERROR)


def fenced(text: str, port: int) -> int:
    """Whether the rules let nobody in but the head. text: of `nft list table`, empty where there is none."""
    chain = INPUT.search(text)
    # Nobody but those of the lines before it, for which role node_setup stands.
    return int(bool(chain and re.search(r"^\s*tcp dport %d reject\b" % port, chain.group(1), re.MULTILINE)))


class Machine:
    def __init__(self, told: config.Config, sysfs: str = "/sys") -> None:
        self._told, self._sysfs = told, sysfs
        self._interface: str | None = None
        self._found: float | None = None  # when it was looked up

    def fabric(self) -> list[Family]:
        """Its counters: cheap, so often."""
        if not self._told.fabric_address:
            return []
        now = time.monotonic()
        if self._found is None or now - self._found >= AGAIN:
            self._interface, self._found = fabric.interface_of(self._told.fabric_address), now
        found = Families()
        labels = {"interface": self._interface or "none"}
        facts = fabric.describe(self._interface, self._sysfs) if self._interface else {}
        # A bridge of containers says "unknown" of itself while it works.
        found.add("llama_fabric_up", int(facts.get("state") in ("up", "unknown")), **labels)
        if self._interface:
            rate = facts["rate_gbps"]
            found.add("llama_fabric_speed_bits", None if rate is None else rate * 1e9, **labels)
            for metric, name in (
                ("llama_fabric_received_bytes_total", "rx_bytes"),
                ("llama_fabric_sent_bytes_total", "tx_bytes"),
            ):
                text = config.read(os.path.join(self._sysfs, "class/net", self._interface, "statistics", name))
                found.add(metric, int(text) if text.strip().isdigit() else None, **labels)
            port = facts["port"] or {"errors": {}}
            counts = [one for one in list(facts["errors"].values()) + list(port["errors"].values()) if one is not None]
            found.add("llama_fabric_errors_total", sum(counts), **labels)
        return found.all()

    def slow(self) -> list[Family]:
        """What changes slowly."""
        found = Families()
        found.add("llama_clock_synchronized", clock_synchronized())
        workers = [one for one in config.watched() if one.kind == "rpc"]
        if workers:
            status, text = run(LIST)
            for one in workers:
                port = one.told.get("port")
                if isinstance(port, int):
                    found.add("llama_rpc_fenced", fenced("" if status else text, port), service=one.service)
        found.add(
            "llama_gateway_certificate_expires_seconds",
            certificate_ends(self._told.certificate) if self._told.certificate else None,
        )
        return found.all()


def disk(path: str) -> list[Family]:
    """The file system of a path, which may be a share that hangs. Errors: OSError."""
    found, seen = Families(), os.statvfs(path)
    found.add("llama_disk_free_bytes", seen.f_bavail * seen.f_frsize, path=path)
    found.add("llama_disk_size_bytes", seen.f_blocks * seen.f_frsize, path=path)
    return found.all()


def certificate_ends(path: str) -> float | None:
    """notAfter of the first certificate of a file, seconds since 1970; None where it cannot be read."""
    try:
        decoded: dict[str, Any] = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]
        return float(ssl.cert_time_to_seconds(decoded["notAfter"]))
    except (OSError, ValueError, KeyError, AttributeError):
        return None


class Self:
    """What the sampler says of itself."""

    def __init__(self, version: str) -> None:
        self._version = version

    def look(self) -> list[Family]:
        found = Families()
        found.add("llama_sampler_info", 1, version=self._version)
        found.add("llama_sampler_timestamp_seconds", round(time.time(), 1))
        times = os.times()
        found.add("llama_sampler_cpu_seconds_total", round(sum(times[:4]), 2))
        memory = re.search(r"^VmRSS:\s+(\d+) kB", config.read("/proc/self/status"), re.MULTILINE)
        found.add("llama_sampler_memory_bytes", int(memory.group(1)) * 1024 if memory else None)
        return found.all()
