# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric, disks, clock and firewall of the node, and the sampler itself. Private to the collection."""

from __future__ import annotations

import ctypes
import os
import re
import ssl
import time
from typing import Any

from .._node import fabric
from .._node.command import said
from .._watchdog.firewall import LIST
from . import config
from .exposition import Family
from .metrics import Families

# From adjtimex(2): TIME_ERROR, the clock is not synchronized, and the size of struct timex.
TIME_ERROR, TIMEX = 5, 256
CONTAINERS = ("/run/systemd/container", "/.dockerenv")
INPUT = re.compile(r"\bchain input \{(.*?)\n\s*\}", re.DOTALL)
# Seconds for which the interface of the fabric address is kept.
AGAIN = 15.0


def clock_synchronized() -> int | None:
    """1 if the kernel's clock is synchronized; None if unknown, and in a container, which has its machine's clock."""
    if any(map(os.path.exists, CONTAINERS)):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(TIMEX)  # modes = 0: only reads
    state = libc.adjtimex(buffer)
    return None if state < 0 else int(state != TIME_ERROR)


def fenced(text: str, port: int) -> int:
    """1 if the rules end with a reject for the worker's port. text: of `nft list table`, empty without one."""
    chain = INPUT.search(text)
    # The accept rules before the reject are written by role node_setup and are not checked.
    return int(bool(chain and re.search(r"^\s*tcp dport %d reject\b" % port, chain.group(1), re.MULTILINE)))


class Machine:
    def __init__(self, settings: config.Config, sysfs: str = "/sys") -> None:
        self._settings, self._sysfs = settings, sysfs
        self._interface: str | None = None
        self._found: float | None = None  # monotonic time of its lookup

    def fabric(self) -> list[Family]:
        """State and counters of the fabric's interface."""
        if not self._settings.fabric_address:
            return []
        now = time.monotonic()
        if self._found is None or now - self._found >= AGAIN:
            self._interface, self._found = fabric.interface_of(self._settings.fabric_address), now
        found = Families()
        labels = {"interface": self._interface or "none"}
        facts = fabric.describe(self._interface, self._sysfs) if self._interface else {}
        # A bridge of containers is "unknown" while it works.
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
        """Clock, firewall and certificate."""
        found = Families()
        found.add("llama_clock_synchronized", clock_synchronized())
        workers = [one for one in config.watched() if one.kind == "rpc"]
        if workers:
            status, text = said(LIST)
            for one in workers:
                port = one.settings.get("port")
                if isinstance(port, int):
                    found.add("llama_rpc_fenced", fenced("" if status else text, port), service=one.service)
        found.add(
            "llama_gateway_certificate_expires_seconds",
            certificate_ends(self._settings.certificate) if self._settings.certificate else None,
        )
        return found.all()


def disk(path: str) -> list[Family]:
    """Free bytes and size of a path's file system. Errors: OSError."""
    found, seen = Families(), os.statvfs(path)
    found.add("llama_disk_free_bytes", seen.f_bavail * seen.f_frsize, path=path)
    found.add("llama_disk_size_bytes", seen.f_blocks * seen.f_frsize, path=path)
    return found.all()


def certificate_ends(path: str) -> float | None:
    """notAfter of the first certificate of a file in seconds since 1970; None if it cannot be read."""
    try:
        decoded: dict[str, Any] = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]
        return float(ssl.cert_time_to_seconds(decoded["notAfter"]))
    except (OSError, ValueError, KeyError, AttributeError):
        return None


def sampler(version: str) -> list[Family]:
    """The sampler's own version, clock, processor time and memory."""
    found = Families()
    found.add("llama_sampler_info", 1, version=version)
    found.add("llama_sampler_timestamp_seconds", round(time.time(), 1))
    found.add("llama_sampler_cpu_seconds_total", round(sum(os.times()[:4]), 2))
    return found.all()
