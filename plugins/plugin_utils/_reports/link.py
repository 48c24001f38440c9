# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The capacity of the links between heads and workers. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._bench.link import STREAMS
from .results import FORMAT, files_of
from .table import NOTHING, table
from .targets import LINK

Map = Mapping[str, Any]
INFINIBAND = "InfiniBand"
# The share of its port's rate that a sound link reaches by TCP: 94 % over Ethernet with packets of 1,500 bytes.
SOUND = 0.9
COLUMNS = ("from", "to", "Gbit/s", "of its port", "retransmits", "InfiniBand")


def link_report(hostvars: Mapping[str, Map], nodes: Sequence[str], seconds: Any, measured_at: str) -> dict[str, Any]:
    """-> {files: to keep, empty without a pair, lines: to print}.

    hostvars: of each node the facts acceptance_link, [{from, to, gbit_per_second, retransmits}], and llama_fabric;
    seconds: of each measurement; measured_at: ISO 8601, UTC.
    """
    fabric: dict[str, Map] = {
        node: (hostvars[node].get("ansible_facts") or {}).get("llama_fabric") or {} for node in nodes
    }
    pairs: list[Map] = [
        # ansible-core 2.18 returns numbers of templates as text.
        {
            **one,
            "gbit_per_second": float(one["gbit_per_second"]),
            **_port(fabric.get(one["from"]), fabric.get(one["to"])),
        }
        for node in nodes
        for one in hostvars[node].get("acceptance_link") or []
    ]
    if not pairs:
        return {"files": {}, "lines": ["link: nothing measured"]}
    result = {"format": FORMAT, "kind": "link", "measured_at": measured_at}
    result |= {"streams": STREAMS, "seconds": int(seconds), "pairs": pairs}
    lines = ["idle link, %d streams of TCP for %d s each way" % (STREAMS, int(seconds))]
    lines += table(COLUMNS, [_row(pair) for pair in pairs])
    lines += [
        "%s to %s: %.2f Gbit/s, the port of %s has %g: look at its MTU (%s, mode %s), its errors with "
        "llama_fabric_facts, and the processors of both nodes"
        % (
            *(pair["from"], pair["to"], pair["gbit_per_second"], sender.get("interface"), pair["rate_gbps"]),
            *(sender.get("mtu"), sender.get("ipoib_mode") or "none"),
        )
        for pair, sender in ((pair, fabric.get(pair["from"], {})) for pair in pairs)
        if pair["rate_gbps"] and pair["gbit_per_second"] < SOUND * pair["rate_gbps"]
    ]
    return {"files": files_of("link", result), "lines": lines}


def _port(sender: Map | None, receiver: Map | None) -> dict[str, Any]:
    """The rate of the slower end, and the link layer if both have the same; None for an unknown value."""
    ends = [end or {} for end in (sender, receiver)]
    rates: list[Any] = [end.get("rate_gbps") for end in ends]
    layers = {end.get("link_layer") for end in ends}
    return {
        "rate_gbps": min(rates) if all(rates) else None,
        "link_layer": layers.pop() if len(layers) == 1 else None,
    }


def _row(pair: Map) -> list[Any]:
    rate, gbit = pair["rate_gbps"], pair["gbit_per_second"]
    share = f"{100 * gbit / rate:.0f} %" if rate else None
    verdict = LINK.judge(gbit) if pair["link_layer"] == INFINIBAND else NOTHING
    return [pair["from"], pair["to"], f"{gbit:.2f}", share, pair["retransmits"], verdict]
