# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples of a node during a measurement, and the facts that figures depend on. Private to the collection."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from typing import Any, Callable

from .._node import drm, fabric, nvidia_smi
from .._node.build import build_info
from .._node.running import processor

EVERY = 1.0  # seconds
# Seconds for one query of the cards; later samples have no cards until it ends.
CARDS = 10.0
# The most samples: an hour and a half.
MOST = 5400
Sample = dict[str, Any]


def watch(seconds: float, over: Callable[[], bool], address: str = "") -> list[Sample]:
    """Samples of the node until `over` returns True or the seconds are up. address: its interface is counted.

    A sample is {at: seconds since 1970, cpu: busy part of all processors since the previous sample, or None, rx_bytes
    and tx_bytes of the interface since boot, or None, cards: [{index, utilization: percent, memory_mib, power_w}]};
    index: nvidia-smi's, of other vendors' cards the PCI slot.
    """
    interface = fabric.interface_of(address) if address else None
    cards = _Cards()
    cards.start()
    samples: list[Sample] = []
    started, before = time.monotonic(), _processors()
    while len(samples) < MOST:
        time.sleep(EVERY)
        now = _processors()
        received, sent = _bytes(interface)
        samples.append(
            {
                "at": round(time.time(), 3),
                "cpu": _busy(before, now),
                "rx_bytes": received,
                "tx_bytes": sent,
                "cards": cards.seen(),
            }
        )
        before = now
        if over() or time.monotonic() - started >= seconds:
            break
    cards.over.set()
    return samples


class _Cards(threading.Thread):
    """Polls the drivers of cards in a thread of its own, since they may hang."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self._seen: tuple[float, list[Sample]] = (0.0, [])

    def seen(self) -> list[Sample]:
        """The cards of the last query; none if it is older than CARDS."""
        at, cards = self._seen
        return cards if time.monotonic() - at <= CARDS else []

    def run(self) -> None:
        nvidia = others = True
        before: list[drm.Card] = []
        while (nvidia or others) and not self.over.is_set():
            cards: list[Sample] = []
            if nvidia:
                facts = nvidia_smi.collect(deadline=CARDS)
                cards += facts["gpus"]
                nvidia = bool(facts["gpus"]) or facts["available"] or "hangs" in (facts["reason"] or "")
            if others:
                seen = drm.collect()
                found = drm.gpus(seen, before)
                cards += found
                before, others = seen["cards"], bool(found or seen["reason"])
            self._seen = (time.monotonic(), [_figures(card) for card in cards])
            self.over.wait(EVERY)


def _figures(card: Sample) -> Sample:
    return {
        "index": card["index"],
        "utilization": card["utilization"],
        "memory_mib": card["memory_used_mib"],
        "power_w": card["power_w"],
    }


def _processors(path: str = "/proc/stat") -> tuple[int, int]:
    """(idle, all) ticks of all processors since boot."""
    with open(path, encoding="ascii") as stream:
        ticks = [int(one) for one in stream.readline().split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _busy(before: tuple[int, int], now: tuple[int, int]) -> float | None:
    passed = now[1] - before[1]
    return round(1 - (now[0] - before[0]) / float(passed), 4) if passed > 0 else None


def _bytes(interface: str | None, root: str = "/sys/class/net") -> tuple[int | None, int | None]:
    found: list[int | None] = []
    for name in ("rx_bytes", "tx_bytes"):
        count = None
        with (
            contextlib.suppress(OSError, ValueError),
            open(os.path.join(root, interface or "none", "statistics", name), encoding="ascii") as stream,
        ):
            count = int(stream.read())
        found.append(count)
    return found[0], found[1]


def fingerprint(address: str, prefix: str, release: str | None) -> Sample:
    """{kernel, driver, cards: [names], cpu, cores, build: {release, commit, sha256}, link: {interface, link_layer,
    rate_gbps}}, None for an unknown value. Errors: Refusal."""
    cards = nvidia_smi.collect(deadline=CARDS)
    others = drm.gpus(drm.collect())
    build = build_info(prefix, release)
    interface = fabric.interface_of(address) if address else None
    link = fabric.describe(interface)
    return {
        "kernel": platform.release(),
        "driver": cards["driver"] or (others[0]["driver"] if others else None),
        "cards": [gpu["name"] for gpu in cards["gpus"] + others],
        "cpu": processor(),
        "cores": os.cpu_count(),
        "build": {
            "release": build["current_build"],
            "commit": build["build_identity"],
            "sha256": build["build_sha256"],
        },
        "link": {"interface": interface, "link_layer": link["link_layer"], "rate_gbps": link["rate_gbps"]},
    }
