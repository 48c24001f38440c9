# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices that layers can lie on: a node's GPUs, or the main memory of a node that has none. Private to the
collection.

An inventory describes a card as {name, memory_mib, bandwidth} and main memory as {main: true, memory_mib, bandwidth};
names and bandwidths may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from .._text import Refusal, printable
from .bandwidths import bandwidth

# As inventories, nvidia_smi_facts and filters give it.
Facts = dict[str, Any]

# A sentence names this many processes of others.
NAMED = 3
# CUDA_DEVICE_ORDER of the units: CUDA then counts cards as nvidia-smi does, by slot. Its own order is by speed.
BY_SLOT = "PCI_BUS_ID"
# Cards without memory of their own: DGX Spark and Jetson, by the name that nvidia-smi prints, and graphics of AMD's and
# Intel's processors, by the name that Vulkan prints.
INTEGRATED = re.compile(
    r"\b(GB10|Thor|Orin|Xavier|Tegra|BC-?250|Radeon [678][0-9]0M|80[456]0S|Ryzen|Arc 1[34]0[TV])\b"
    r"|\((LNL|MTL|ARL)\)\Z"
)
# The memory of such a card in nvidia-smi, and of a card that CUDA does not find.
NO_OWN_MEMORY = re.compile(r"\[?(N/A|Not Supported)")
LOST = re.compile(r"\[?(GPU is lost|GPU requires reset|Unknown|ERR!)")
INDEX = re.compile(r"-?[0-9]+\Z")
# The system and everything beside the collection keep this part of a memory that a card works in, and not less MiB. An
# idle DGX Spark uses 3.1 of 122 GiB.
SYSTEM_PART, SYSTEM_MIB = 32, 1024


class Device(NamedTuple):
    """A card or main memory. The memory of managed units counts as free: a running service does not change its plan."""

    node: str
    device: str  # GPU0, ..., or main
    name: str
    kind: str  # GPU or main
    total_mib: int
    others_mib: int  # what processes of others use
    margin_mib: int
    bandwidth: float | None = None  # GB/s
    others: dict[str, int | None] = {}  # MiB of the processes of others, in words; nothing if not known
    claimed_mib: int = 0  # what other services of the plan have of it
    uuid: str = ""  # empty if not known
    unified: bool = False  # a card that works in the node's main memory
    own_mib: int = 0  # what such a card has that is not main memory, such as what the firmware set aside
    spare_mib: int = 0  # main memory that neither such a card nor the system uses
    tensor_mib: int | None = None  # the largest tensor that the card can hold, None without a limit
    pinned: bool = False  # units name the card, because its program would use others too

    def as_dict(self) -> Facts:
        """The device as a filter returns it, without claims."""
        return {key: value for key, value in self._asdict().items() if key != "claimed_mib"}

    def word(self) -> str:
        """The card's name in the variable that chooses among the cards of a node."""
        return self.uuid or self.device[3:]

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
    visible: str | None = None,
    described: Sequence[Facts] = (),
) -> list[Device]:
    """The devices of a node, in the order in which CUDA counts them.

    gpus: as nvidia_smi_facts returns them; memory_mib: of main memory; pids: of managed processes; visible:
    CUDA_VISIBLE_DEVICES of the units, None if it is not set; described: llama_devices of the node, the visible cards
    in order, for bandwidths and memory that nvidia-smi does not know. Errors: Refusal.
    """
    found = []
    mains, cards = [one for one in described if one.get("main")], [one for one in described if not one.get("main")]
    chosen = _computing(node, _visible(node, gpus, visible) if visible is not None else _found(gpus))
    untold = [gpu for gpu, part in chosen if not part["memory_total_mib"] and part["memory_free_mib"] is None]
    for number, (gpu, part) in enumerate(chosen):
        card = cards[number] if number < len(cards) else {}
        processes = gpu["processes"] or []
        used, free = part["memory_used_mib"], part["memory_free_mib"]
        if used is None:
            used = sum(process["memory_used_mib"] or 0 for process in processes) if part is gpu else 0
        managed = sum(process["memory_used_mib"] or 0 for process in processes if process["pid"] in pids)
        # The memory of the driver is neither used nor free.
        total = part["memory_total_mib"] if free is None else used + free
        unified = bool(gpu.get("unified")) or is_integrated(gpu["name"])
        if gpu in untold:
            total, unified = _untold(node, gpu, card, memory_mib if len(untold) == 1 else 0)
        one = Device(
            node=node,
            device=f"GPU{gpu['index']}",
            name=gpu["name"],
            kind="GPU",
            total_mib=total,
            others_mib=max(0, used - managed),
            # Which process is in which MIG instance is not known.
            others=named([process for process in processes if process["pid"] not in pids]) if part is gpu else {},
            margin_mib=margin_mib,
            bandwidth=card.get("bandwidth") or bandwidth(gpu["name"]) or bandwidth(card.get("name")),
            uuid=part.get("uuid") or "",
        )
        found.append(in_main_memory(one, 0 if gpu in untold else memory_mib, gpu.get("own_mib")) if unified else one)
    return found or [main_memory(node, dict(next(iter(mains), {}), memory_mib=memory_mib), margin_mib)]


def as_dicts(devices: Iterable[Device]) -> list[Facts]:
    """Devices as a filter returns them."""
    return [device.as_dict() for device in devices]


def named(processes: Sequence[Facts]) -> dict[str, int | None]:
    """{words for one of a card's processes: its MiB, None where the driver does not tell}, the largest ones."""
    ordered = sorted(processes, key=lambda process: -(process["memory_used_mib"] or 0))
    found = {
        f"{printable((one['name'] or '?').rpartition('/')[2], 40)}[{one['pid']}]": one["memory_used_mib"]
        for one in ordered[:NAMED]
    }
    if ordered[NAMED:]:
        found[f"{len(ordered[NAMED:])} more processes"] = sum(one["memory_used_mib"] or 0 for one in ordered[NAMED:])
    return found


def _absent(gpu: Facts) -> str:
    """Why CUDA does not find a card, "" if it does."""
    words = gpu.get("memory_reason") or ""
    if LOST.match(words):
        return str(words)
    return "MIG without an instance" if gpu.get("mig") and not gpu.get("mig_devices") else ""


def _found(gpus: Sequence[Facts]) -> list[tuple[Facts, Facts]]:
    """[(GPU, the part of it that a process sees)] that CUDA finds; if it finds none, the absent ones."""
    there = [gpu for gpu in gpus if not _absent(gpu) and (gpu["memory_total_mib"] or gpu.get("memory_reason"))]
    return [(gpu, _part(gpu)) for gpu in there or [gpu for gpu in gpus if _absent(gpu)]]


def _computing(node: str, chosen: list[tuple[Facts, Facts]]) -> list[tuple[Facts, Facts]]:
    """The visible cards that CUDA uses: beside a MIG instance it uses no other card. Errors: Refusal."""
    for gpu, _of in chosen:
        words, remedy = _absent(gpu), "restart the node and look for Xid in dmesg"
        if words and gpu.get("mig"):
            remedy = "run `nvidia-smi mig -cgi PROFILE -C`, or turn MIG off"
        elif gpu.get("compute_mode") == "Prohibited":
            words, remedy = "compute mode Prohibited", f"run `nvidia-smi -i {gpu['index']} -c DEFAULT`"
        if words:
            raise Refusal(
                "%s: %s seen on GPU%s, a card that computes is needed: %s, or leave the card out with "
                "CUDA_VISIBLE_DEVICES" % (node, printable(words, 40), gpu["index"], remedy)
            )
    return [one for one in chosen if one[1] is not one[0]][:1] or chosen


def _part(gpu: Facts) -> Facts:
    """A process sees one MIG instance at most; the card as a whole is not visible."""
    part: Facts = gpu["mig_devices"][0] if gpu.get("mig") and gpu.get("mig_devices") else gpu
    return part


def _untold(node: str, gpu: Facts, card: Facts, memory_mib: int) -> tuple[int, bool]:
    """-> (MiB, whether they are main memory's) of a card whose memory nvidia-smi does not tell. card: its entry of
    llama_devices, {} for none; memory_mib: main memory, 0 if other cards share it. Errors: Refusal."""
    if card.get("memory_mib"):
        return int(card["memory_mib"]), is_integrated(gpu["name"]) or is_integrated(card.get("name"))
    words = gpu.get("memory_reason") or "nothing"
    # A virtual GPU and a MIG card may report N/A too, and have memory of their own.
    if not memory_mib or not NO_OWN_MEMORY.match(words) or not is_integrated(gpu["name"]):
        raise unknown_memory(node, gpu, words)
    return memory_mib, True


def unknown_memory(node: str, gpu: Facts, words: str) -> Refusal:
    """words: what the driver reports instead of a size."""
    return Refusal(
        "%s: %s seen as the memory of GPU%s, its size is needed: write llama_devices for the node, an entry for "
        "each card that is used, such as [{name: %s, memory_mib: 24124}]"
        % (node, printable(words, 40), gpu["index"], printable(gpu["name"] or "GPU", 60))
    )


def is_integrated(name: str | None) -> bool:
    """Whether a card of this name works in main memory."""
    return bool(INTEGRATED.search(name or ""))


def in_main_memory(card: Device, memory_mib: int, own_mib: int | None = None) -> Device:
    """A card that works in main memory of memory_mib, 0 if that is all the memory it has. own_mib: what it has beside
    that, None if not known."""
    memory = memory_mib or card.total_mib
    own = max(own_mib or 0, card.total_mib - memory)
    system, spare = max(memory // SYSTEM_PART, SYSTEM_MIB), own + memory - card.total_mib
    there = max(0, system - spare)
    return card._replace(
        unified=True,
        own_mib=own,
        spare_mib=max(0, spare - system),
        others_mib=card.others_mib + there,
        others={**card.others, **({"the system": there} if there else {})},
    )


def _visible(node: str, gpus: Sequence[Facts], visible: str) -> list[tuple[Facts, Facts]]:
    """[(GPU, the part of it that a process sees)] that CUDA_VISIBLE_DEVICES names, in its order. As CUDA does it, what
    comes after a number without a card is left out. Errors: Refusal for what leaves CUDA without the cards that it
    seems to name."""
    chosen: list[tuple[Facts, Facts]] = []
    words = [word.strip() for word in str(visible).split(",")]
    for word in words:
        if word in ("", "NoDevFiles") or INDEX.match(word) and int(word) not in [gpu["index"] for gpu in gpus]:
            break
        match = _named_by(word, gpus)
        needed = ""
        if len(match) != 1:
            needed = "an index, or a UUID of one card or MIG instance of the node, is"
        elif _kind(word) != _kind(words[0]):
            needed = "only indices or only UUIDs of one kind are"
        elif match[0] in chosen:
            needed = "each card once is"
        if needed:
            raise Refusal(
                "%s: %s in CUDA_VISIBLE_DEVICES seen, %s needed: correct rpc_worker_environment and "
                "head_server_environment" % (node, printable(word, 60), needed)
            )
        chosen += match
    return chosen


def _kind(word: str) -> str:
    return "" if INDEX.match(word) else word[:4]


def _named_by(word: str, gpus: Sequence[Facts]) -> list[tuple[Facts, Facts]]:
    if INDEX.match(word):
        return [(gpu, _part(gpu)) for gpu in gpus if gpu["index"] == int(word)]
    if word.startswith("MIG-"):
        # Drivers before 470 have no UUIDs of instances.
        old = "MIG-{0[uuid]}/{1[gpu_instance_id]}/{1[compute_instance_id]}"
        own = [(gpu, part) for gpu in gpus for part in gpu.get("mig_devices") or []]
        return [(gpu, part) for gpu, part in own if part.get("uuid") == word or old.format(gpu, part) == word]
    return [(gpu, _part(gpu)) for gpu in gpus if word.startswith("GPU-") and str(gpu["uuid"]).startswith(word)]


def of_inventory(node: str, described: Sequence[Facts], margin_mib: int) -> list[Device]:
    """The devices that an inventory's llama_devices says a node has: its cards, or its main memory where it has
    none."""
    cards = [one for one in described if not one.get("main")]
    memory = next((int(one["memory_mib"]) for one in described if one.get("main")), 0)
    return [of_card(node, index, card, margin_mib, memory) for index, card in enumerate(cards)] or [
        main_memory(node, one, margin_mib) for one in described[:1]
    ]


def of_cards(described: Sequence[Facts], margin_mib: int) -> list[Device]:
    """The devices of [{node, name, memory_mib, ...}], each node's in a row."""
    return [
        device
        for node in dict.fromkeys(one["node"] for one in described)
        for device in of_inventory(node, [one for one in described if one["node"] == node], margin_mib)
    ]


def of_card(node: str, index: int, card: Facts, margin_mib: int, memory_mib: int = 0) -> Device:
    """A GPU as the inventory describes it. memory_mib: the node's main memory, 0 if not known."""
    found = _device(node, "GPU%d" % index, card.get("name", "GPU"), "GPU", card, margin_mib)
    return in_main_memory(found, memory_mib) if is_integrated(found.name) else found


def main_memory(node: str, described: Facts, margin_mib: int) -> Device:
    """A node's main memory. Its bandwidth is known where it is described only."""
    return _device(node, "main", "main memory", "main", described, margin_mib)


def _device(node: str, device: str, name: str, kind: str, described: Facts, margin_mib: int) -> Device:
    speed = described.get("bandwidth") or (bandwidth(name) if kind == "GPU" else None)
    return Device(node, device, name, kind, int(described["memory_mib"]), 0, int(margin_mib), speed)
