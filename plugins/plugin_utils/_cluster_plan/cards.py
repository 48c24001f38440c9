# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cards that are written down, in llama_devices or as -e devices=, for a plan that asks no node. Private to the
collection."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...module_utils._plan.devices import main_memory, of_inventory
from ...module_utils._text import Refusal
from .._intent.check_nodes import node_errors
from .._intent.hosts import expand
from .._intent.records import Groups, HostVars

Card = dict[str, Any]
# A card's memory as makers print it on the box: their GB is 1024 MiB.
SIZE = re.compile(r"^([1-9]\d*)(MiB|MB|GiB|GB|G)?\Z", re.IGNORECASE)


def plan_cards(
    text: str, groups: Groups, hostvars: HostVars, nodes: str = "", margin_mib: int | None = None
) -> dict[str, Any]:
    """-> {refused: sentences, cards, devices: {node: [Device as a dict]}, main: {node: its main memory as one, {} where
    it is not known}} of what was typed, or of llama_devices.

    nodes: a pattern of hosts, the usual ones where it is empty; margin_mib: where every one of them needs devices.
    """
    found: dict[str, Any] = {"refused": [], "cards": [], "devices": {}, "main": {}}
    pattern = nodes or "llama_nodes"
    found["refused"] = card_errors(text, pattern, groups, hostvars, margin_mib is not None)
    if found["refused"]:
        return found
    found["cards"] = cards(text) if text else inventory_cards(expand(nodes, groups) if nodes else [], hostvars, groups)
    for number, host in enumerate(expand(pattern, groups) if margin_mib is not None else (), 1):
        # Typed cards are for one node after the other.
        name = "node%d" % number if text else host
        own = [card for card in found["cards"] if card["node"] == name]
        devices = of_inventory(host, own, margin_mib or 0)
        # A card that works in main memory says how much there is.
        mains = [card for card in own if card.get("main")]
        mains += [{"memory_mib": device.total_mib} for device in devices if device.unified]
        found["devices"][host] = [device.as_dict() for device in devices]
        found["main"][host] = main_memory(host, mains[0], margin_mib or 0).as_dict() if mains else {}
    return found


def cards(text: object) -> list[Card]:
    """'2x24GB+24GB,24GB+main:256GB' -> [{node: node1, name, memory_mib}, ..., {node: node3, name, memory_mib, main:
    true}]. Errors: Refusal."""
    found: list[Card] = []
    nodes = 0
    for part in re.split(r"[\s,]+", str(text).strip()):
        ((times, own),) = re.findall(r"^(?:([1-9]\d?)x)?(.*)\Z", part)
        *words, last = own.split("+")
        main = last.startswith("main:")
        sizes = [size for size in map(SIZE.match, [*words, last.removeprefix("main:")]) if size]
        if len(sizes) <= len(words):
            raise Refusal(
                "devices: %s seen, COUNTxSIZE such as 3x24GB is needed: give a size for each node, with + between the "
                "cards of one node, as in 2x24GB+24GB,48GB for two nodes of two cards and one node of "
                "one" % (part or "nothing")
            )
        for _number in range(int(times or 1)):
            nodes += 1
            own_cards: list[Card] = [
                {"node": "node%d" % nodes, "name": "GPU", "memory_mib": _mib(one)} for one in sizes
            ]
            if main:
                own_cards[-1].update(name="main memory", main=True)
            found.extend(own_cards)
    return found


def _mib(size: re.Match[str]) -> int:
    return int(size.group(1)) * (1024 if (size.group(2) or "M")[0] in "Gg" else 1)


def inventory_cards(nodes: Sequence[str], hostvars: HostVars, groups: Groups) -> list[Card]:
    """llama_devices of nodes -> [{node, name, memory_mib, ...}]; nothing for a node without. The default are the nodes
    with cards, or all if none has one."""
    if not nodes:
        described = {node: hostvars[node].get("llama_devices") or [] for node in groups["llama_nodes"]}
        nodes = [node for node, own in described.items() if any(not card.get("main") for card in own)] or [*described]
    return [
        dict({"name": "GPU"}, node=node, **card) for node in nodes for card in hostvars[node].get("llama_devices") or []
    ]


def card_errors(devices: str, nodes: str, groups: Groups, hostvars: HostVars, each: bool = False) -> list[str]:
    """The mistakes in the cards of a plan that contacts no node, one sentence each.

    devices: as for cards(), "" for llama_devices of nodes; nodes: a pattern of hosts; each: whether every one of them
    needs cards.
    """
    if not devices and nodes == "llama_nodes" and not groups.get(nodes):
        return [
            "devices: none given, and no inventory with nodes in group llama_nodes, one of them is needed: "
            "run with -e devices=48GB,24GB+24GB, or with -i inventories/NAME"
        ]
    try:
        hosts = expand(nodes, groups) if each or not devices else []
    except Refusal as problem:
        return [f"nodes: {problem}"]
    try:
        given = sorted({card["node"] for card in cards(devices)}) if devices else []
    except Refusal as problem:
        return [str(problem)]
    if given:
        return (
            [
                "devices: %d nodes seen, %d are needed, one for each of %s: give such as %dx24GB"
                % (len(given), len(hosts), ", ".join(hosts), len(hosts))
            ]
            if each and len(given) != len(hosts)
            else []
        )
    without = [host for host in hosts if not hostvars[host].get("llama_devices")]
    if without or not hosts:
        return [
            "llama_devices: missing for %s, the memory of each card is needed to plan without asking nodes: add it to "
            "the inventory, such as [{name: RTX 3090, memory_mib: 24576}], for a node without a GPU [{main: true, "
            "memory_mib: 256000}], or run with -e devices=%dx24GB" % (", ".join(without) or nodes, len(hosts) or 1)
        ]
    return node_errors(hosts, {host: {"llama_devices": hostvars[host]["llama_devices"]} for host in hosts})
