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
        labels = {"interface": self._interface or "none"}
        up = Family("llama_fabric_up", "gauge", "Whether the interface of the fabric address is up.")
        speed = Family("llama_fabric_speed_bits", "gauge", "Its rate, bits per second.")
        received = Family("llama_fabric_received_bytes_total", "counter", "Bytes received.")
        sent = Family("llama_fabric_sent_bytes_total", "counter", "Bytes sent.")
        errors = Family("llama_fabric_errors_total", "counter", "Errors and drops of interface and port.")
        facts = fabric.describe(self._interface, self._sysfs) if self._interface else {}
        # A bridge of containers says "unknown" of itself while it works.
        up.add(int(facts.get("state") in ("up", "unknown")), **labels)
        if self._interface:
            rate = facts["rate_gbps"]
            speed.add(None if rate is None else rate * 1e9, **labels)
            for family, name in ((received, "rx_bytes"), (sent, "tx_bytes")):
                text = config.read(os.path.join(self._sysfs, "class/net", self._interface, "statistics", name))
                family.add(int(text) if text.strip().isdigit() else None, **labels)
            port = facts["port"] or {"errors": {}}
            counts = [one for one in list(facts["errors"].values()) + list(port["errors"].values()) if one is not None]
            errors.add(sum(counts), **labels)
        return [up, speed, received, sent, errors]

    def slow(self) -> list[Family]:
        """What changes slowly."""
        clock = Family("llama_clock_synchronized", "gauge", "Whether something keeps the clock.")
        fence = Family("llama_rpc_fenced", "gauge", "Whether the kernel's rules refuse everybody but the head.")
        ends = Family("llama_gateway_certificate_expires_seconds", "gauge", "When the certificate ends, since 1970.")
        clock.add(clock_synchronized())
        workers = [one for one in config.watched() if one.kind == "rpc"]
        if workers:
            status, text = run(LIST)
            for one in workers:
                port = one.told.get("port")
                if isinstance(port, int):
                    fence.add(fenced("" if status else text, port), service=one.service)
        ends.add(certificate_ends(self._told.certificate) if self._told.certificate else None)
        return [clock, fence, ends]


def disk(path: str) -> list[Family]:
    """The file system of a path, which may be a share that hangs. Errors: OSError."""
    free = Family("llama_disk_free_bytes", "gauge", "Bytes that anybody but root may still write.")
    size = Family("llama_disk_size_bytes", "gauge", "Size of the file system.")
    seen = os.statvfs(path)
    free.add(seen.f_bavail * seen.f_frsize, path=path)
    size.add(seen.f_blocks * seen.f_frsize, path=path)
    return [free, size]


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
        info = Family("llama_sampler_info", "gauge", "The collection that installed it.")
        info.add(1, version=self._version)
        at = Family("llama_sampler_timestamp_seconds", "gauge", "When this was written, since 1970.")
        at.add(round(time.time(), 1))
        cpu = Family("llama_sampler_cpu_seconds_total", "counter", "Processor time, with what it has started.")
        times = os.times()
        cpu.add(round(sum(times[:4]), 2))
        memory = Family("llama_sampler_memory_bytes", "gauge", "Memory that is its own.")
        found = re.search(r"^VmRSS:\s+(\d+) kB", config.read("/proc/self/status"), re.MULTILINE)
        memory.add(int(found.group(1)) * 1024 if found else None)
        return [info, at, cpu, memory]
