# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept and printed of how much the links between heads and workers carry. Private to the collection."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._bench.link import STREAMS

Map = Mapping[str, Any]
FORMAT = 1
INFINIBAND = "InfiniBand"
# For InfiniBand, in Gbit/s: above the first the target is met, above the second acceptable, below the last critical.
TARGET, ACCEPTABLE, CRITICAL = 50, 30, 20
# Which share of its port's rate TCP reaches over a link that is sound: 94 % over Ethernet with packets of 1,500 bytes.
SOUND = 0.9
ROW = "%-20s %-20s %8s %12s %12s  %s"


def link_report(hostvars: Mapping[str, Map], nodes: Sequence[str], seconds: Any, measured_at: str) -> dict[str, Any]:
    """-> {result: what is kept as JSON, lines: what an operator reads, name: the file's without an ending, refused: a
    sentence for each pair that was not measured}.

    hostvars: of each node the facts acceptance_link, [{from, to, gbit_per_second, retransmits, limited}],
    acceptance_link_failures, sentences, and llama_fabric; seconds: of each measurement; measured_at: ISO 8601, UTC.
    """
    pairs: list[dict[str, Any]] = []
    refused: list[str] = []
    fabric: dict[str, Map] = {}
    for node in nodes:
        facts = hostvars[node]
        fabric[node] = (facts.get("ansible_facts") or {}).get("llama_fabric") or {}
        pairs += [dict(one) for one in facts.get("acceptance_link") or []]
        refused += [str(one) for one in facts.get("acceptance_link_failures") or []]
    for pair in pairs:
        pair.update(_port(fabric.get(pair["from"], {}), fabric.get(pair["to"], {})))
        # Older Ansible hands out numbers of templates as text.
        pair["gbit_per_second"] = float(pair["gbit_per_second"])
    result = {
        "format": FORMAT,
        "kind": "link",
        "measured_at": measured_at,
        "streams": STREAMS,
        "seconds": int(seconds),
        "pairs": pairs,
    }
    return {
        "result": result,
        "lines": lines(result, fabric),
        "name": measured_at.replace("-", "").replace(":", ""),
        "refused": refused,
    }


def _port(sender: Map, receiver: Map) -> dict[str, Any]:
    """The slower one of both ends, and InfiniBand where both are; None for what is not known."""
    rates: list[Any] = [end.get("rate_gbps") for end in (sender, receiver)]
    layers = {end.get("link_layer") for end in (sender, receiver)}
    return {
        "rate_gbps": min(rates) if all(rates) else None,
        "link_layer": layers.pop() if len(layers) == 1 else None,
    }


def lines(result: Map, fabric: Mapping[str, Map]) -> list[str]:
    """A table with both readings, the target of InfiniBand and the share of the port's rate."""
    if not result["pairs"]:
        return ["link: nothing measured"]
    found = [
        "idle link, %d streams of TCP for %d s each way" % (result["streams"], result["seconds"]),
        ROW % ("from", "to", "Gbit/s", "of its port", "retransmits", "target of InfiniBand"),
    ]
    remarks = []
    for pair in result["pairs"]:
        rate, gbit = pair["rate_gbps"], pair["gbit_per_second"]
        share = "-" if rate is None else f"{100 * gbit / rate:.0f} %"
        again = "-" if pair["retransmits"] is None else str(pair["retransmits"])
        verdict = target(gbit) if pair["link_layer"] == INFINIBAND else "-"
        found.append(ROW % (pair["from"], pair["to"], f"{gbit:.2f}", share, again, verdict))
        remarks += _remarks(pair, fabric.get(pair["from"], {}))
    return found + remarks


def target(gbit: float) -> str:
    """The verdict by the targets for InfiniBand."""
    if gbit > TARGET:
        return "met (> %d)" % TARGET
    if gbit > ACCEPTABLE:
        return "acceptable (> %d)" % ACCEPTABLE
    return "critical (< %d)" % CRITICAL if gbit < CRITICAL else "missed (> %d is acceptable)" % ACCEPTABLE


def _remarks(pair: Map, sender: Map) -> list[str]:
    found = []
    way = f"{pair['from']} to {pair['to']}"
    if pair["limited"] is not None:
        found.append(
            "%s: one processor was busy at %s %% with all streams, so the link may carry more: iperf3 3.16 and newer "
            "has a thread for each" % (way, pair["limited"])
        )
    elif pair["rate_gbps"] is not None and pair["gbit_per_second"] < SOUND * pair["rate_gbps"]:
        mode = f", mode {sender['ipoib_mode']}" if sender.get("ipoib_mode") else ""
        found.append(
            "%s: %.2f Gbit/s seen, the port of %s has %g: look at its MTU (%s%s), its errors with llama_fabric_facts, "
            "and the processors of both nodes"
            % (way, pair["gbit_per_second"], sender.get("interface"), pair["rate_gbps"], sender.get("mtu"), mode)
        )
    return found
