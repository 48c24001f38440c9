# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices that layers can lie on: a node's GPUs, or the main memory of a node that has none. Private to the
collection.

An inventory describes a card as {name, memory_mib, bandwidth} and main memory as {main: true, memory_mib, bandwidth};
names and bandwidths may be missing.
"""

from typing import Any, Collection, Dict, Iterable, List, NamedTuple, Optional, Sequence

from .._text import printable
from .bandwidths import bandwidth

# As inventories, nvidia_smi_facts and filters give it.
Facts = Dict[str, Any]

# A sentence names this many processes of others.
NAMED = 3


class Device(NamedTuple):
    """What our own units use counts as free, so that a plan does not change because the service it is for runs."""

    node: str
    device: str  # GPU0, ..., or main
    name: str
    kind: str  # GPU or main
    total_mib: int
    others_mib: int  # what processes of others use
    margin_mib: int
    bandwidth: Optional[float] = None  # GB/s
    others: Dict[str, Optional[int]] = {}  # MiB of the processes of others, in words; nothing where nobody looked
    claimed_mib: int = 0  # what other services of the plan have of it
    uuid: str = ""  # of a card that somebody looked at

    def as_dict(self) -> Facts:
        """What a filter returns: claims are of one plan."""
        return {key: value for key, value in self._asdict().items() if key != "claimed_mib"}

    def free_mib(self) -> int:
        """Without what others use and other services have."""
        return self.total_mib - self.others_mib - self.claimed_mib

    def room(self) -> int:
        """Bytes that a model may use: the margin is not its own either."""
        return (self.free_mib() - self.margin_mib) << 20


def of_node(
    node: str,
    gpus: Sequence[Facts],
    memory_mib: int,
    margin_mib: int,
    pids: Collection[int] = (),
    visible: Optional[str] = None,
    described: Sequence[Facts] = (),
) -> List[Device]:
    """The devices of a node.

    gpus: those of nvidia_smi_facts; memory_mib: of main memory; pids: processes of our own units; visible:
    CUDA_VISIBLE_DEVICES of the units, None where it is not set; described: llama_devices of the node, the visible cards
    in order, for bandwidths that nobody else knows.
    """
    found = []
    mains, cards = [one for one in described if one.get("main")], [one for one in described if not one.get("main")]
    for number, gpu in enumerate(_visible(gpus, visible)):
        # A process sees one MIG instance at most; the card as a whole is nobody's.
        part = gpu["mig_devices"][0] if gpu.get("mig") and gpu.get("mig_devices") else gpu
        used, free = part["memory_used_mib"] or 0, part["memory_free_mib"]
        processes = gpu["processes"] or []
        ours = sum(process["memory_used_mib"] or 0 for process in processes if process["pid"] in pids)
        found.append(
            Device(
                node=node,
                device="GPU%s" % gpu["index"],
                name=gpu["name"],
                kind="GPU",
                # What the driver keeps for itself is neither used nor free.
                total_mib=part["memory_total_mib"] if free is None else used + free,
                others_mib=max(0, used - ours),
                # Which process is in which MIG instance is not known.
                others=_named([process for process in processes if process["pid"] not in pids]) if part is gpu else {},
                margin_mib=margin_mib,
                bandwidth=next((card.get("bandwidth") for card in cards[number : number + 1]), None)
                or bandwidth(gpu["name"]),
                uuid=part.get("uuid") or "",
            )
        )
    return found or [main_memory(node, dict(next(iter(mains), {}), memory_mib=memory_mib), margin_mib)]


def as_dicts(devices: Iterable[Device]) -> List[Facts]:
    """What a filter returns."""
    return [device.as_dict() for device in devices]


def _named(processes: Sequence[Facts]) -> Dict[str, Optional[int]]:
    """{words for one of a card's processes: its MiB, None where the driver does not tell}, the largest ones."""
    ordered = sorted(processes, key=lambda process: -(process["memory_used_mib"] or 0))
    found = {
        "%s[%s]" % (printable((one["name"] or "?").rpartition("/")[2], 40), one["pid"]): one["memory_used_mib"]
        for one in ordered[:NAMED]
    }
    if ordered[NAMED:]:
        found["%d more processes" % len(ordered[NAMED:])] = sum(one["memory_used_mib"] or 0 for one in ordered[NAMED:])
    return found


def _visible(gpus: Sequence[Facts], visible: Optional[str]) -> List[Facts]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, in its order; as CUDA does it, what comes after an unknown name is left
    out."""
    if visible is None:
        return [gpu for gpu in gpus if gpu["memory_total_mib"]]
    chosen = []
    for name in str(visible).split(","):
        match = [
            gpu
            for gpu in gpus
            if name.strip() == str(gpu["index"]) or name.strip() and str(gpu["uuid"]).startswith(name.strip())
        ]
        if not match:
            break
        chosen.append(match[0])
    return chosen


def of_inventory(node: str, described: Sequence[Facts], margin_mib: int) -> List[Device]:
    """The devices that an inventory's llama_devices says a node has: its cards, or its main memory where it has
    none."""
    cards = [one for one in described if not one.get("main")]
    return [of_card(node, index, card, margin_mib) for index, card in enumerate(cards)] or [
        main_memory(node, one, margin_mib) for one in described[:1]
    ]


def of_cards(described: Sequence[Facts], margin_mib: int) -> List[Device]:
    """The devices of [{node, name, memory_mib, ...}], each node's in a row."""
    nodes: List[str] = []
    for one in described:
        if one["node"] not in nodes:
            nodes.append(one["node"])
    return [
        device
        for node in nodes
        for device in of_inventory(node, [one for one in described if one["node"] == node], margin_mib)
    ]


def of_card(node: str, index: int, card: Facts, margin_mib: int) -> Device:
    """A GPU that nobody looked at."""
    return _device(node, "GPU%d" % index, card.get("name", "GPU"), "GPU", card, margin_mib)


def main_memory(node: str, described: Facts, margin_mib: int) -> Device:
    """A node's main memory. Its bandwidth is known where it is described only."""
    return _device(node, "main", "main memory", "main", described, margin_mib)


def _device(node: str, device: str, name: str, kind: str, described: Facts, margin_mib: int) -> Device:
    speed = described.get("bandwidth") or (bandwidth(name) if kind == "GPU" else None)
    return Device(node, device, name, kind, int(described["memory_mib"]), 0, int(margin_mib), speed)
