# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices that layers can lie on: a node's GPUs, or the main memory of a node that has none. Private to the collection.

A device is {node, device, name, kind: GPU or main, total_mib, others_mib, margin_mib, bandwidth: GB/s or None}. What our own units use is
not others_mib, so a plan does not change because the service it is for runs.
"""

import re

# GB/s of a card's memory by its product name, longest name first: the figures of NVIDIA's data sheets. They weigh unlike cards against each other;
# where one of a service's cards is not listed, all count alike.
BANDWIDTHS = (
    ("A100-SXM4-80GB", 2039),
    ("A100-SXM4-40GB", 1555),
    ("A100 80GB PCIe", 1935),
    ("A100-PCIE-40GB", 1555),
    ("H100 80GB HBM3", 3350),
    ("Tesla V100S", 1134),
    ("Tesla V100", 900),
    ("H200", 4800),
)


def bandwidth(name):
    """GB/s of a card's memory, None where it is not known."""
    return next((value for part, value in BANDWIDTHS if part in (name or "")), None)


def of_node(node, gpus, memory_mib, margin_mib, pids=(), visible=None):
    """The devices of a node.

    gpus: those of nvidia_smi_facts; memory_mib: of main memory; pids: processes of our own units; visible: CUDA_VISIBLE_DEVICES of
    the units, None where it is not set.
    """
    found = []
    for gpu in _visible(gpus, visible):
        # A process sees one MIG instance at most; the card as a whole is nobody's.
        part = gpu["mig_devices"][0] if gpu.get("mig") and gpu.get("mig_devices") else gpu
        used, free = part["memory_used_mib"] or 0, part["memory_free_mib"]
        ours = sum(process["memory_used_mib"] or 0 for process in gpu["processes"] or [] if process["pid"] in pids)
        found.append({
            "node": node,
            "device": "GPU%s" % gpu["index"],
            "name": gpu["name"],
            "kind": "GPU",
            # What the driver keeps for itself is neither used nor free.
            "total_mib": part["memory_total_mib"] if free is None else used + free,
            "others_mib": max(0, used - ours),
            "margin_mib": margin_mib,
            "bandwidth": bandwidth(gpu["name"]),
        })  # fmt: skip
    if found:
        return found
    return [_device(node, "main", "main memory", "main", memory_mib, margin_mib)]


def _visible(gpus, visible):
    """The GPUs that CUDA_VISIBLE_DEVICES names, in its order; as CUDA does it, what comes after an unknown name is left out."""
    if visible is None:
        return [gpu for gpu in gpus if gpu["memory_total_mib"]]
    chosen = []
    for name in str(visible).split(","):
        match = [gpu for gpu in gpus if name.strip() == str(gpu["index"]) or name.strip() and str(gpu["uuid"]).startswith(name.strip())]
        if not match:
            break
        chosen.append(match[0])
    return chosen


def _device(node, device, name, kind, total_mib, margin_mib):
    return {
        "node": node,
        "device": device,
        "name": name,
        "kind": kind,
        "total_mib": int(total_mib),
        "others_mib": 0,
        "margin_mib": int(margin_mib),
        "bandwidth": bandwidth(name),
    }


def of_inventory(node, cards, margin_mib):
    """The devices that an inventory's llama_devices ([{name, memory_mib}]) says a node has."""
    return [of_card(node, index, card, margin_mib) for index, card in enumerate(cards)]


def inventory_cards(nodes, hostvars):
    """llama_devices of nodes -> [{node, name, memory_mib}]; nothing for a node without."""
    return [dict({"name": "GPU"}, node=node, **card) for node in nodes for card in hostvars[node].get("llama_devices") or []]


def of_card(node, index, card, margin_mib):
    """A GPU that nobody looked at. card: {name, memory_mib}"""
    return _device(node, "GPU%d" % index, card.get("name", "GPU"), "GPU", card["memory_mib"], margin_mib)


def cards(text):
    """'3x32510,24000' -> [{name, memory_mib}], a card for each of as many nodes; ValueError in one sentence."""
    found = []
    for part in re.split(r"[\s,]+", str(text).strip()):
        match = re.match(r"^(?:([1-9]\d?)x)?([1-9]\d*)\Z", part)
        if not match:
            raise ValueError("devices: %s seen, COUNTxMIB such as 3x32510 is needed: give the memory of each card in MiB" % (part or "nothing"))
        for _number in range(int(match.group(1) or 1)):
            found.append({"name": "node%d" % (len(found) + 1), "memory_mib": int(match.group(2))})
    return found
