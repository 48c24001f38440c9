# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of the reference inventories, only from the catalog, and of the 72B for its quants, contexts and cache
types: the tables of docs/plan.md."""

import copy
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from plugins.module_utils._plan.devices import as_dicts, of_inventory  # noqa: E402
from plugins.plugin_utils._cluster_plan.cards import plan_cards  # noqa: E402
from plugins.plugin_utils._cluster_plan.plan import memory_plan  # noqa: E402

MARGIN = 1024
# The header of the 72B says 40960.
YARN = {"rope_scaling": "yarn", "rope_scale": 4, "yarn_orig_ctx": 32768}


def groups_of(inventory):
    """{group: [nodes]} of hosts.yml: llama_nodes and the groups in it."""
    hosts = yaml.safe_load((ROOT / "inventories" / inventory / "hosts.yml").read_text())
    every = hosts["all"]["children"]["llama_nodes"]
    found = {name: list(group["hosts"]) for name, group in every.get("children", {}).items()}
    found["llama_nodes"] = sorted([node for nodes in found.values() for node in nodes] + list(every.get("hosts", {})))
    return dict(found, all=found["llama_nodes"])


def rows(inventory):
    """(quant, tokens, cache type, plan) of the service that is split."""
    folder = ROOT / "inventories" / inventory / "group_vars"
    models = yaml.safe_load((folder / "all/models.yml").read_text())["llama_models"]
    intent = yaml.safe_load((folder / "all/services.yml").read_text())
    cards = yaml.safe_load((folder / "llama_nodes.yml").read_text())["llama_devices"]
    groups = groups_of(inventory)
    nodes = {
        node: {"devices": as_dicts(of_inventory(node, cards, MARGIN)), "cores": None} for node in groups["llama_nodes"]
    }
    for quant in ("Q4_K_M", "Q6_K", "Q8_0"):
        for tokens in (32768, 131072):
            for cache in ("f16", "q4_0"):
                services = copy.deepcopy(intent["llama_services"])
                services["reasoning"].update(
                    quant=quant,
                    slot_ctx_size=tokens,
                    cache=cache,
                    tensor_split="auto",
                    **YARN,
                )
                yield (
                    quant,
                    tokens,
                    cache,
                    memory_plan(services, models, groups, nodes, (), intent["llama_builds"]),
                )


def split(planned):
    """The layers of the split service on each device."""
    return tuple(device["layers"] for device in planned["services"]["reasoning"][0]["devices"])


def table(inventory):
    planned_rows = list(rows(inventory))
    devices = planned_rows[0][3]["services"]["reasoning"][0]["devices"]
    (free,) = {device["free_mib"] for device in devices}
    (layers,) = {split(planned) for _quant, _tokens, _cache, planned in planned_rows}
    places = ", ".join(
        "%s (%d layers)" % (device["node"], count) for device, count in zip(devices, layers, strict=True)
    )
    lines = ["| quant | context | KV | of %d MiB on %s | verdict |" % (free, places), "|---|---|---|---|---|"]
    for quant, tokens, cache, planned in planned_rows:
        (one,) = planned["services"]["reasoning"]
        sizes = ", ".join(str(device["total_mib"]) for device in one["devices"])
        verdict = (
            "fits"
            if one["fits"]
            else "refused: " + planned["refused"][0].partition(" MiB are there")[2].partition(": ")[2]
        )
        sharing = [line.strip() for line in planned["sharing"] if "decision" in line]
        lines.append("| %s | %d | %s | %s | %s |" % (quant, tokens, cache, sizes, "; ".join([verdict] + sharing)))
    return lines


def services(inventory):
    """A row for each device of each service that runs."""
    folder = ROOT / "inventories" / inventory / "group_vars"
    intent = yaml.safe_load((folder / "all/services.yml").read_text())
    models = yaml.safe_load((folder / "all/models.yml").read_text())["llama_models"]
    described = yaml.safe_load((folder / "llama_nodes.yml").read_text())["llama_devices"]
    groups = groups_of(inventory)
    hosts = groups["llama_nodes"]
    there = plan_cards("", groups, {host: {"llama_devices": described} for host in hosts}, margin_mib=MARGIN)
    nodes = {host: {"devices": there["devices"][host], "main": there["main"][host], "cores": None} for host in hosts}
    wanted = {name: dict(one) for name, one in intent["llama_services"].items()}
    for one in wanted.values():
        if one.get("quant") == "{{ llama_quant }}":
            one.update(quant=intent["llama_quant"], tensor_split=intent["llama_tensor_split"])
    planned = memory_plan(wanted, models, groups, nodes, (), intent["llama_builds"])
    lines = ["| service | on | layers | weights | KV | compute | MiB, with margin |", "|---|---|---|---|---|---|---|"]
    for name, parts in sorted(planned["services"].items()):
        if intent["llama_services"][name].get("state") == "stopped":
            continue
        for row in (row for part in parts for row in part["devices"]):
            place = "%s %s" % (row["node"], row["device"])
            layers = str(row["layers"]) if row["layers"] else "experts"
            sizes = [row["weights_mib"], row["kv_mib"], row["compute_mib"], row["total_mib"]]
            lines.append("| %s |" % " | ".join([name, place, layers, *map(str, sizes)]))
    return lines


if __name__ == "__main__":
    for name in ("beefcake2", "beefcake2-slurm"):
        print("\n".join(["", name, ""] + table(name)))
    for name in ("beefcake2-hybrid", "beefcake2-april"):
        print("\n".join(["", name, ""] + services(name)))
