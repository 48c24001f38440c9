# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices of a node whose llama.cpp computes through Vulkan. Private to the collection."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from .._text import Refusal, printable
from .bandwidths import bandwidth
from .devices import SYSTEM_MIB, SYSTEM_PART, Device, Facts, in_main_memory, is_integrated, named, unknown_memory

# Bytes of a buffer that every driver of Vulkan can make.
GUARANTEED = 1 << 30


def of_vulkan(
    node: str,
    facts: Facts,
    memory_mib: int,
    margin_mib: int,
    pids: Collection[int] = (),
    visible: str | None = None,
    described: Sequence[Facts] = (),
) -> list[Device]:
    """The devices of a node, in the order in which llama.cpp counts them.

    facts: the subset vulkan of node_facts; memory_mib: of main memory; pids: of managed processes; visible:
    GGML_VK_VISIBLE_DEVICES of the units, None if it is not set; described: llama_devices of the node, the used devices
    in order, for bandwidths and memory that are not known otherwise. Errors: Refusal.
    """
    gpus: list[Facts] = facts["gpus"]
    if not gpus:
        raise Refusal(
            f"{node}: no device seen, one is needed for a build with accelerator vulkan, but "
            f"{printable(facts['reason'] or 'Vulkan has no device', 400)}: correct that, or write accelerator: cpu"
        )
    shared = [gpu for gpu in gpus if gpu["unified"]]
    own = [gpu for gpu in gpus if not gpu["unified"]]
    # A head leaves integrated graphics out if there is a card, a worker does not: its units name the cards.
    left = shared if own else []
    if left and visible is not None:
        raise Refusal(
            "%s: %s in GGML_VK_VISIBLE_DEVICES seen, cards or integrated graphics are needed, since a head does not "
            "use both: drop %s"
            % (node, printable(visible, 40), ", ".join(f"{gpu['index']} ({gpu['name']})" for gpu in left))
        )
    cards = [one for one in described if not one.get("main")]
    return [
        _of_gpu(node, gpu, cards[number] if number < len(cards) else {}, memory_mib, margin_mib, pids)._replace(
            pinned=bool(left)
        )
        for number, gpu in enumerate(own or shared)
    ]


def _of_gpu(node: str, gpu: Facts, card: Facts, memory_mib: int, margin_mib: int, pids: Collection[int]) -> Device:
    """card: its entry of llama_devices, {} for none."""
    total, own = gpu["memory_total_mib"], gpu["own_mib"]
    if total is None:
        if not card.get("memory_mib"):
            raise unknown_memory(node, gpu, "nothing")
        total, own = int(card["memory_mib"]), None
    processes: list[dict[str, Any]] = gpu["processes"]
    held = sum(process["memory_used_mib"] or 0 for process in processes if process["pid"] in pids)
    used = max(0, (gpu["memory_used_mib"] or 0) - held)
    found = Device(
        node=node,
        device=f"GPU{gpu['index']}",
        name=gpu["name"],
        kind="GPU",
        total_mib=total,
        others_mib=used,
        others=named([process for process in processes if process["pid"] not in pids]),
        margin_mib=margin_mib,
        bandwidth=card.get("bandwidth") or bandwidth(gpu["name"]) or bandwidth(card.get("name")),
        tensor_mib=(gpu["largest_tensor"] or GUARANTEED) >> 20,
    )
    if not (is_integrated(gpu["name"]) if gpu["unified"] is None else gpu["unified"]):
        return found
    # The used memory includes the system's. It is first what the card cannot use, as for the system's part.
    shared = in_main_memory(found._replace(others_mib=0), memory_mib, own)
    beyond = max(0, used - max(memory_mib // SYSTEM_PART, SYSTEM_MIB))
    spare = max(0, shared.spare_mib - beyond)
    return shared._replace(others_mib=shared.others_mib + beyond - (shared.spare_mib - spare), spare_mib=spare)
