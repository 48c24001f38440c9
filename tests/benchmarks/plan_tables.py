# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of both reference inventories for their quants, contexts and cache types, from the catalog alone: the tables of docs/plan.md."""

import copy
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "plugins"))
from module_utils._plan_devices import of_inventory  # noqa: E402
from module_utils._plan_inventory import memory_plan  # noqa: E402

NODES = ("vllm-node1", "vllm-node2", "vllm-node3")
GROUPS = {"all": NODES, "llama_nodes": NODES, "llama_head": NODES[:1], "llama_rpc": NODES[1:]}
MARGIN = 1024


def rows(inventory):
    """(quant, tokens, cache type, plan) of the service that is split."""
    folder = ROOT / "inventories" / inventory / "group_vars"
    models = yaml.safe_load((folder / "all/models.yml").read_text())["llama_models"]
    intent = yaml.safe_load((folder / "all/services.yml").read_text())
    cards = yaml.safe_load((folder / "llama_nodes.yml").read_text())["llama_devices"]
    nodes = {node: {"devices": of_inventory(node, cards, MARGIN), "cores": None} for node in NODES}
    for quant in ("Q4_K_M", "Q6_K", "Q8_0"):
        for tokens in (4096, 32768, 131072):
            for cache in ("f16", "q4_0"):
                services = copy.deepcopy(intent["llama_services"])
                services["reasoning"].update(quant=quant, ctx_size=tokens, cache_type_k=cache, cache_type_v=cache, tensor_split="auto")
                yield quant, tokens, cache, memory_plan(services, models, GROUPS, nodes, (), intent["llama_cpp_version"])


def table(inventory):
    lines = ["| quant | context | KV | layers on node2, node3, node1 | MiB on them | verdict |", "|---|---|---|---|---|---|"]
    for quant, tokens, cache, planned in rows(inventory):
        (one,) = planned["services"]["reasoning"]
        layers = ", ".join(str(device["layers"]) for device in one["devices"])
        sizes = ", ".join("%d of %d" % (device["total_mib"], device["free_mib"]) for device in one["devices"])
        verdict = "fits" if one["fits"] else "refused: " + planned["refused"][0].partition(": choose ")[2]
        sharing = [line.strip() for line in planned["sharing"] if "decision" in line]
        lines.append("| %s | %d | %s | %s | %s | %s |" % (quant, tokens, cache, layers, sizes, "; ".join([verdict] + sharing)))
    return lines


if __name__ == "__main__":
    for name in ("beefcake2", "beefcake2-slurm"):
        print("\n".join(["", name, ""] + table(name)))
