# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of the reference inventories."""

import copy
import re
import subprocess
import sys
from pathlib import Path

import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices as plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.cards import plan_cards
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan

INVENTORIES = Path(__file__).resolve().parents[2] / "inventories"


def reference(name, **changes):
    """A plan of a reference inventory from its catalog. changes: of service reasoning."""
    folder = INVENTORIES / name / "group_vars"
    models = yaml.safe_load((folder / "all/models.yml").read_text())["llama_models"]
    intent = yaml.safe_load((folder / "all/services.yml").read_text())
    devices = yaml.safe_load((folder / "llama_nodes.yml").read_text())["llama_devices"]
    services = copy.deepcopy(intent["llama_services"])
    services["reasoning"].update(
        dict({"quant": intent["llama_quant"], "tensor_split": intent["llama_tensor_split"]}, **changes)
    )
    groups = yaml.safe_load((INVENTORIES / name / "hosts.yml").read_text())["all"]["children"]["llama_nodes"][
        "children"
    ]
    groups = {group: list(members["hosts"]) for group, members in groups.items()}
    groups["llama_nodes"] = groups["all"] = sorted(host for hosts in groups.values() for host in hosts)
    hosts = {
        host: {"devices": plan_devices.as_dicts(plan_devices.of_inventory(host, devices, 1024)), "cores": 40}
        for host in groups["all"]
    }
    return memory_plan(services, models, groups, hosts, (), intent["llama_builds"])


def test_the_table_of_the_first_page_is_the_plan_of_the_example():
    folder = INVENTORIES / "example"
    intent = yaml.safe_load((folder / "group_vars/all/services.yml").read_text())
    models = yaml.safe_load((folder / "group_vars/all/models.yml").read_text())["llama_models"]
    nodes = yaml.safe_load((folder / "hosts.yml").read_text())["all"]["children"]["llama_nodes"]
    groups = {group: list(members["hosts"]) for group, members in nodes["children"].items()}
    groups["llama_nodes"] = groups["all"] = sorted(host for hosts in groups.values() for host in hosts)
    described = nodes["vars"]["llama_devices"]
    hosts = {
        host: {"devices": plan_devices.as_dicts(plan_devices.of_inventory(host, described, 1024)), "cores": None}
        for host in groups["all"]
    }
    lines = memory_plan(intent["llama_services"], models, groups, hosts, (), intent["llama_builds"])["lines"]
    readme = (INVENTORIES.parent / "README.md").read_text()
    (shown,) = re.findall(r"^```text\n(chat: .*?)^```", readme, re.DOTALL | re.MULTILINE)
    title, *rows = shown.splitlines()
    assert lines[0].startswith(title + ", ESTIMATED from llama_models")
    assert rows == lines[1 : len(rows) + 1]


def test_the_reference_cluster_fits_its_quant():
    planned = reference("beefcake2")
    assert planned["refused"] == []
    assert planned["services"]["reasoning"][0]["tensor_split"] == [27, 27, 27]


def test_the_maps_that_the_reference_inventories_name_are_those_of_the_plan():
    for name in ("beefcake2", "beefcake2-slurm"):
        (named,) = re.findall(r"it says: ({.*?})", (INVENTORIES / name / "group_vars/all/services.yml").read_text())
        assert reference(name)["services"]["reasoning"][0]["layers"] == yaml.safe_load(named)


def test_the_tiers_of_the_reference_cluster_share_no_card():
    planned = reference("beefcake2-slurm")
    assert planned["refused"] == []
    assert planned["sharing"] == []
    assert [device["node"] for device in planned["services"]["reasoning"][0]["devices"]] == ["vasp-03", "vasp-01"]
    assert [device["node"] for device in planned["services"]["fast"][0]["devices"]] == ["vasp-02"]


def test_the_tiers_of_the_reference_cluster_cannot_share_evenly():
    third = {"workers": "llama_rpc:llama_router", "tensor_split": {"vasp-01": 26, "vasp-02": 27, "vasp-03": 27}}
    planned = reference("beefcake2-slurm", **third)
    (sentence,) = planned["refused"]
    assert "on GPU0 of vasp-02" in sentence and "set tensor_split to auto (vasp-03 " in sentence
    assert (
        "  decision: none, it does not fit beside fast; to keep them apart leave vasp-02 out of workers"
        in planned["sharing"]
    )
    third["tensor_split"] = "auto"
    assert reference("beefcake2-slurm", **third)["refused"] == []


def test_the_tables_of_the_page_are_what_make_plans_prints():
    printed = subprocess.check_output(
        [sys.executable, str(INVENTORIES.parent / "tests/benchmarks/plan_tables.py")], text=True
    ).splitlines()
    page = (INVENTORIES.parent / "docs/plan.md").read_text().splitlines()
    first = page.index(next(line for line in printed if line.startswith("| quant")))
    tables = [line for line in printed if line.startswith("|")]
    assert [line for line in page[first:] if line.startswith("|")] == tables and len(tables) == 2 * (2 + 18) + 2 + 9


def april(**changes):
    """The plan of the inventory of April. changes: {service: its keys, or None to leave it out}."""
    folder = INVENTORIES / "beefcake2-april"
    models = yaml.safe_load((folder / "group_vars/all/models.yml").read_text())["llama_models"]
    intent = yaml.safe_load((folder / "group_vars/all/services.yml").read_text())
    described = yaml.safe_load((folder / "group_vars/llama_nodes.yml").read_text())
    hosts = list(yaml.safe_load((folder / "hosts.yml").read_text())["all"]["children"]["llama_nodes"]["hosts"])
    groups = {"llama_nodes": hosts, "all": hosts}
    services = {
        name: dict(service, **changes.get(name) or {})
        for name, service in intent["llama_services"].items()
        if changes.get(name, {}) is not None
    }
    there = plan_cards("", groups, dict.fromkeys(hosts, described), margin_mib=1024)
    nodes = {host: {"devices": there["devices"][host], "main": there["main"][host], "cores": 36} for host in hosts}
    return memory_plan(services, models, groups, nodes, (), intent["llama_builds"])


def rows(planned, service):
    """{device: (weights, KV)} in MiB, of each device that holds something of a service."""
    return {
        "%s %s" % (row["node"], row["device"]): (row["weights_mib"], row["kv_mib"])
        for part in planned["services"][service]
        for row in part["devices"]
    }


def test_six_services_lie_where_the_operators_had_them():
    planned = april()
    assert planned["refused"] == [] and planned["unplanned"] == {}
    # Operators: 3.4 for the model and 16.9 for its cache on the card, 92.6 in main memory.
    assert rows(planned, "minimax") == {"vasp-03 GPU0": (3439, 16864), "vasp-03 main": (93069, 0)}
    assert rows(planned, "qwen36") == {"vasp-01 GPU0": (20561, 743)}
    assert rows(planned, "gemma") == {"vasp-02 GPU0": (17453, 1998)}
    assert rows(planned, "devstral") == {"vasp-02 main": (13638, 5120)}
    assert rows(planned, "glm") == {"vasp-03 main": (17453, 1692)}
    assert rows(planned, "embed") == {"vasp-0%d main" % number: (139, 0) for number in (1, 2, 3)}
    assert planned["services"]["minimax"][0]["cpu_moe"] == 62
    assert all(part["fits"] for parts in planned["services"].values() for part in parts)
    said = [line for line in planned["sharing"] if line.startswith("reasoning: ")]
    assert said == [
        "reasoning: stopped, not counted; it does not fit beside what runs, 30229 MiB are needed on GPU0 of vasp-03 "
        "and 10456 MiB are there beside minimax (22054 MiB), the worst of 2 devices that are too small"
    ]


def test_the_cache_of_minimax_is_quantized_because_it_would_not_fit():
    (sentence,) = april(minimax={"cache": "f16"})["refused"]
    assert sentence.startswith("llama_services.minimax.") and "set cache to q8_0" in sentence


def test_windows_and_compressed_caches_are_what_makes_them_fit():
    # With every layer of the whole context, as swa_full has it, and with heads of their own.
    assert rows(april(gemma={"swa_full": True}), "gemma")["vasp-02 GPU0"] == (17453, 14960)
    assert rows(april(glm={"cache": "q8_0"}), "glm")["vasp-03 main"] == (17453, 899)


def test_the_stopped_72b_is_the_one_of_the_jobs():
    planned = april(qwen36=None, minimax=None, reasoning={"state": "started"})
    (one,) = planned["services"]["reasoning"]
    assert (planned["refused"], one["layers"]) == ([], {"vasp-01": 39, "vasp-03": 41})
    assert (
        one["source"] == "assumed"
        and [part["source"] for name, parts in planned["services"].items() if name != "reasoning" for part in parts]
        == ["catalog"] * 6
    )


def test_each_header_has_its_source_or_says_that_it_has_none():
    for name in ("beefcake2", "beefcake2-slurm", "beefcake2-april"):
        text = (INVENTORIES / name / "group_vars/all/models.yml").read_text()
        for model, entry in yaml.safe_load(text)["llama_models"].items():
            # What stands above an entry of the list, or above its header.
            own = re.search(r"((?:^  #.*\n)*)^  %s:\n((?:^    .*\n)*)" % re.escape(model), text, re.MULTILINE)
            header = entry.get("header", {"assumed": True})
            cited = [line for line in "".join(own.groups()).splitlines() if re.search(r"# .*\w\.\w+/\w", line)]
            assert header.get("assumed") is True or cited, (name, model)
