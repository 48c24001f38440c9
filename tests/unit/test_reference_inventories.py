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
    assert (planned["refused"], planned["sharing"]) == ([], [])
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
    assert [line for line in page[first:] if line.startswith("|")] == tables and len(tables) == 2 * (2 + 18)
