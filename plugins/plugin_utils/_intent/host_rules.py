# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on the settings of a service with its nodes, as rows. Private to the collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._settings import value
from .builds import VISIBLE
from .records import HostVars, Settings
from .rules import Row
from .values import did_you_mean, is_a, plain, shown


def host_rules(one: Settings, heads: Sequence[str], workers: Sequence[str], accelerator: Any) -> list[Row]:
    """Rules on a service and its nodes. accelerator: of its build."""
    cards, several = one.get("cards"), ", ".join(heads) if len(heads) > 1 else ""
    indices = cards if isinstance(cards, list) else []
    sound = all(is_a(index, int) and index >= 0 for index in indices)
    tool = "vulkaninfo" if accelerator == "vulkan" else "nvidia-smi"
    return [
        (
            "head",
            several and "workers" in one,
            f"{one['head']} matches {several}, exactly one host is needed beside workers: name one of them, or drop "
            "workers for a replica on each",
        ),
        (
            "tensor_split",
            several and "workers" not in one and isinstance(one.get("tensor_split"), dict),
            f"a map seen with replicas on {several}, auto is needed, since each holds all layers: drop the key",
        ),
        (
            "rpc_port",
            not several and workers and "rpc_port" not in one,
            "missing, a port for its RPC workers is needed: add it, such as 50052",
        ),
        ("cards", not sound, f"{cards} seen, indices that {tool} prints are needed: write such as [0, 1]"),
        (
            "cards",
            sound and len(set(indices)) < len(indices),
            f"{cards} seen, each index once is needed: remove the others",
        ),
        (
            "cards",
            cards == [] and "workers" in one,
            "[] seen with workers, a card on each node is needed: drop workers, or name cards",
        ),
        (
            "cards",
            cards and accelerator == "cpu",
            f"{cards} seen with llama_builds.{value(one, 'build')}.accelerator cpu, cuda, vulkan or auto is "
            "needed to use cards: change it, or drop the key",
        ),
    ]


def node_rules(one: Settings, heads: Sequence[str], workers: Sequence[str], hostvars: HostVars) -> list[Row]:
    """Rules on a service and the variables of its nodes."""
    wish = one.get("numa")
    node: Any = wish.get("node") if isinstance(wish, dict) else 0
    variables = [("head_server_environment", host) for host in heads]
    variables += [("rpc_worker_environment", host) for host in workers]
    return [
        *(
            (
                "workers",
                not hostvars[host].get("llama_fabric_address"),
                f"{host} has no llama_fabric_address, the IPv4 address of its fabric interface is needed: add it in "
                "hosts.yml",
            )
            for host in workers
            if len(heads) < 2
        ),
        *(
            (
                "workers",
                [host] == list(heads),
                f"{host} is its head too, a head uses its own card without RPC: take it out of the group, or exclude "
                f"it as in {one['workers']}:!{host}",
            )
            for host in workers
        ),
        (
            "numa",
            isinstance(wish, dict) and (set(wish) != {"node"} or not is_a(node, int) or node < 0),
            f"{shown(wish)} seen, a map such as {{node: 0}} is needed: write the number of one NUMA node",
        ),
        *(
            (
                "numa",
                wish == "bind" and str(hostvars[head].get("head_server_numa_node", "")) == "",
                f"bind seen, head_server_numa_node of {head} is empty, the number of a NUMA node is needed: set it, or "
                "write {node: N} here",
            )
            for head in heads
        ),
        *(
            (
                "cards",
                "cards" in one and name in (hostvars[host].get(variable) or {}),
                f"seen beside {name} in {variable} of {host}, one of them is needed: drop the other",
            )
            for variable, host in variables
            for name in VISIBLE.values()
        ),
    ]


def split_rules(one: Settings, nodes: Sequence[str], workers: Sequence[str], model: Any) -> list[Row]:
    """Layers per node."""
    split = value(one, "tensor_split")
    if split == "auto":
        return []
    header = model.get("header") if isinstance(model, Mapping) else None
    blocks: Any = header.get("block_count") if isinstance(header, Mapping) else None
    numbers = [count for count in split.values() if is_a(count, int) and count >= 0]
    sound = set(workers) <= set(split) <= set(nodes) and len(numbers) == len(split)
    return [
        *(
            (
                "tensor_split",
                node not in nodes,
                f"{plain(node)} is no node of this service, one of "
                f"{', '.join(nodes)} is needed{did_you_mean(node, nodes, ': correct the name')}",
            )
            for node in split
        ),
        *(
            (
                f"tensor_split.{node}",
                not is_a(count, int) or count < 0,
                f"{count!r} seen, a whole number of layers is needed: correct it",
            )
            for node, count in split.items()
        ),
        *(
            (
                "tensor_split",
                node not in split,
                f"worker {node} is missing, its number of layers is needed: add it",
            )
            for node in workers
        ),
        (
            "tensor_split",
            sound and not sum(numbers),
            f"0 layers in all seen, the layers of {one['model']} are needed: give the counts or choose auto",
        ),
        (
            "tensor_split",
            sound and sum(numbers) and is_a(blocks, int) and sum(numbers) != blocks,
            f"{sum(numbers)} layers in all seen, the {blocks} of {one['model']} are needed, without the output layer: "
            "correct the counts or choose auto",
        ),
    ]
