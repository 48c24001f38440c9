# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept and printed of how much the links between heads and workers carry. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._bench.link import STREAMS
from .results import FORMAT, files_of
from .table import NOTHING, table
from .targets import LINK

Map = Mapping[str, Any]
INFINIBAND = "InfiniBand"
# Which share of its port's rate TCP reaches over a link that is sound: 94 % over Ethernet with packets of 1,500 bytes.
SOUND = 0.9
COLUMNS = ("from", "to", "Gbit/s", "of its port", "retransmits", "InfiniBand")


def link_report(hostvars: Mapping[str, Map], nodes: Sequence[str], seconds: Any, measured_at: str) -> dict[str, Any]:
    """-> {files: what is kept, empty without a pair, lines: what an operator reads}.

    hostvars: of each node the facts acceptance_link, [{from, to, gbit_per_second, retransmits, limited}], and
    llama_fabric; seconds: of each measurement; measured_at: ISO 8601, UTC.
    """
    fabric: dict[str, Map] = {
        node: (hostvars[node].get("ansible_facts") or {}).get("llama_fabric") or {} for node in nodes
    }
    pairs = [
        # Templates of ansible-core 2.18 return numbers as text.
        {
            **one,
            "gbit_per_second": float(one["gbit_per_second"]),
            **_port(fabric.get(one["from"], {}), fabric.get(one["to"], {})),
        }
        for node in nodes
        for one in hostvars[node].get("acceptance_link") or []
    ]
    result = {
        "format": FORMAT,
        "kind": "link",
        "measured_at": measured_at,
        "streams": STREAMS,
        "seconds": int(seconds),
        "pairs": pairs,
    }
    lines = ["link: nothing measured"]
    if pairs:
        lines = ["idle link, %d streams of TCP for %d s each way" % (STREAMS, int(seconds))]
        lines += table(COLUMNS, [_row(pair) for pair in pairs])
        lines += [remark for pair in pairs for remark in _remarks(pair, fabric.get(pair["from"], {}))]
    return {"files": files_of("link", result) if pairs else {}, "lines": lines}


def _port(sender: Map, receiver: Map) -> dict[str, Any]:
    """The slower one of both ends, and InfiniBand where both are; None for what is not known."""
    rates: list[Any] = [end.get("rate_gbps") for end in (sender, receiver)]
    layers = {end.get("link_layer") for end in (sender, receiver)}
    return {
        "rate_gbps": min(rates) if all(rates) else None,
        "link_layer": layers.pop() if len(layers) == 1 else None,
    }


def _row(pair: Map) -> list[Any]:
    rate, gbit = pair["rate_gbps"], pair["gbit_per_second"]
    share = f"{100 * gbit / rate:.0f} %" if rate else None
    verdict = LINK.judge(gbit) if pair["link_layer"] == INFINIBAND else NOTHING
    return [pair["from"], pair["to"], f"{gbit:.2f}", share, pair["retransmits"], verdict]


def _remarks(pair: Map, sender: Map) -> list[str]:
    way, gbit = f"{pair['from']} to {pair['to']}", pair["gbit_per_second"]
    if pair["limited"] is not None:
        return [
            "%s: one processor was busy at %s %% with all streams, so the link may carry more: iperf3 3.16 and newer "
            "has a thread for each" % (way, pair["limited"])
        ]
    if not pair["rate_gbps"] or gbit >= SOUND * pair["rate_gbps"]:
        return []
    mode = f", mode {sender['ipoib_mode']}" if sender.get("ipoib_mode") else ""
    return [
        "%s: %.2f Gbit/s, the port of %s has %g: look at its MTU (%s%s), its errors with llama_fabric_facts, and the "
        "processors of both nodes" % (way, gbit, sender.get("interface"), pair["rate_gbps"], sender.get("mtu"), mode)
    ]
