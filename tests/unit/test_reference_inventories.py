# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of the reference inventories."""

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway import routing
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.answers import Answer
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.config import parse
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices as plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.cards import plan_cards
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._gateway.tailnet import wanted_handlers
from ansible_collections.thefermisea.llama_cluster.tests.unit import inventory_runs
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import once

INVENTORIES = Path(__file__).resolve().parents[2] / "inventories"
STATES = ("beefcake2", "beefcake2-hybrid", "beefcake2-slurm", "beefcake2-april")
UNIFIED = ("two-sparks", "strix-halo")


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


def test_table_of_first_page_is_plan_of_example():
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


def test_layers_in_comments_match_plan():
    for name in ("beefcake2", "beefcake2-hybrid", "beefcake2-slurm"):
        (named,) = re.findall(r"it says: ({.*?})", (INVENTORIES / name / "group_vars/all/services.yml").read_text())
        assert reference(name)["services"]["reasoning"][0]["layers"] == yaml.safe_load(named)


def test_hybrid_inventory_fits_three_cards():
    planned = reference("beefcake2-hybrid")
    assert (planned["refused"], planned["sharing"]) == ([], [])
    totals = {row["node"]: row["total_mib"] for one in planned["services"].values() for row in one[0]["devices"]}
    assert totals == {"vllm-node1": 26132, "vllm-node2": 21499, "vllm-node3": 26729}
    services = yaml.safe_load((INVENTORIES / "beefcake2-hybrid/group_vars/all/services.yml").read_text())
    assert {one.get("launcher", "systemd") for one in services["llama_services"].values()} == {"systemd"}


def test_tiers_of_reference_cluster_share_no_card():
    planned = reference("beefcake2-slurm")
    assert planned["refused"] == []
    assert planned["sharing"] == []
    assert [device["node"] for device in planned["services"]["reasoning"][0]["devices"]] == ["vasp-03", "vasp-01"]
    assert [device["node"] for device in planned["services"]["fast"][0]["devices"]] == ["vasp-02"]


def test_tiers_of_reference_cluster_cannot_share_evenly():
    third = {"workers": "llama_rpc:llama_router", "tensor_split": {"vasp-01": 26, "vasp-02": 27, "vasp-03": 27}}
    planned = reference("beefcake2-slurm", **third)
    (sentence,) = planned["refused"]
    assert "on GPU0 of vasp-02" in sentence and "set tensor_split to auto (vasp-03 " in sentence
    third["tensor_split"] = "auto"
    assert reference("beefcake2-slurm", **third)["refused"] == []


def test_tables_of_page_are_what_make_plans_prints():
    printed = subprocess.check_output(
        [sys.executable, str(INVENTORIES.parent / "tests/benchmarks/plan_tables.py")], text=True
    ).splitlines()
    page = (INVENTORIES.parent / "docs/plan.md").read_text().splitlines()
    first = page.index(next(line for line in printed if line.startswith("| quant")))
    tables = [line for line in printed if line.startswith("|")]
    assert [line for line in page[first:] if line.startswith("|")] == tables and len(tables) == 2 * (2 + 12) + (
        2 + 3
    ) + (2 + 9)


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


def test_minimax_needs_quantized_cache():
    (sentence,) = april(minimax={"cache": "f16"})["refused"]
    assert sentence.startswith("llama_services.minimax.") and "set cache to q8_0" in sentence


def test_stopped_72b_is_one_of_jobs():
    planned = april(qwen36=None, minimax=None, reasoning={"state": "started"})
    (one,) = planned["services"]["reasoning"]
    assert (planned["refused"], one["layers"]) == ([], {"vasp-01": 39, "vasp-03": 41})
    assert (
        one["source"] == "assumed"
        and [part["source"] for name, parts in planned["services"].items() if name != "reasoning" for part in parts]
        == ["catalog"] * 6
    )


def shared(name, **changes):
    """The plan of an inventory of two nodes whose cards work in main memory. changes: of service chat."""
    folder = INVENTORIES / name
    models = yaml.safe_load((folder / "group_vars/all/models.yml").read_text())["llama_models"]
    intent = yaml.safe_load((folder / "group_vars/all/services.yml").read_text())
    described = yaml.safe_load((folder / "group_vars/llama_nodes.yml").read_text())
    nodes = yaml.safe_load((folder / "hosts.yml").read_text())["all"]["children"]["llama_nodes"]["children"]
    groups = {group: list(members["hosts"]) for group, members in nodes.items()}
    groups["llama_nodes"] = groups["all"] = sorted(host for hosts in groups.values() for host in hosts)
    there = plan_cards("", groups, dict.fromkeys(groups["all"], described), margin_mib=1024)
    hosts = {
        host: {"devices": there["devices"][host], "main": there["main"][host], "cores": 16} for host in groups["all"]
    }
    service = {key: value for key, value in (intent["llama_services"]["chat"] | changes).items() if value is not None}
    return memory_plan({"chat": service}, models, groups, hosts, (), intent["llama_builds"])


@pytest.mark.parametrize("name", UNIFIED)
def test_two_unified_nodes_hold_what_one_cannot(name):
    planned = shared(name)
    (part,) = planned["services"]["chat"]
    assert planned["refused"] == [] and part["topology"] == "split" and list(part["layers"].values()) == [47, 47]
    assert [row["margin_mib"] for row in part["devices"]] == [1024, 1024, 0]
    single = {"workers": None, "rpc_port": None}
    assert shared(name, **single)["refused"]
    smaller = shared(name, model="gpt-oss-120b", quant="MXFP4", head="llama_nodes", **single)
    assert smaller["refused"] == [] and [one["topology"] for one in smaller["services"]["chat"]] == ["single"] * 2


def test_header_has_source_or_is_assumed():
    for name in (*STATES, *UNIFIED):
        text = (INVENTORIES / name / "group_vars/all/models.yml").read_text()
        for model, entry in yaml.safe_load(text)["llama_models"].items():
            # The comment above an entry of the list, or above its header.
            own = re.search(r"((?:^  #.*\n)*)^  %s:\n((?:^    .*\n)*)" % re.escape(model), text, re.MULTILINE)
            header = entry.get("header", {"assumed": True})
            cited = [line for line in "".join(own.groups()).splitlines() if re.search(r"# .*\w\.\w+/\w", line)]
            assert header.get("assumed") is True or cited, (name, model)


NAMES = ("OR1-Behemoth", "or1-behemoth", "Strand-Rust-Coder", "strand-rust-coder-14b-q8_0", "DeepSeek-Coder-V3")
TAILNET = "slurm-ctl.tailc46cd0.ts.net"
# The services by name at the common port, by the state of the cluster; other names get a reason.
SERVED = {
    "beefcake2": {"OR1-Behemoth": "reasoning", "or1-behemoth": "reasoning"},
    "beefcake2-hybrid": dict.fromkeys(NAMES[:2], "reasoning") | dict.fromkeys(NAMES[2:4], "fast"),
    "beefcake2-slurm": dict.fromkeys(NAMES[:2], "reasoning") | dict.fromkeys(NAMES[2:4], "fast"),
    "beefcake2-april": {"OR1-Behemoth": "reasoning", "or1-behemoth": "reasoning"},
}
# Addresses of the notes whose service answers whatever name it is asked for, and that service; None: not in this state.
FAST = ("http://10.0.0.5:8080", "http://%s:8080" % TAILNET, "https://%s/" % TAILNET)
REASONING = ("http://10.0.0.5:8081", "http://%s:8081" % TAILNET, "https://%s/reasoning/" % TAILNET)
TIERS = {
    "beefcake2": {
        "http://10.0.0.31:8000": "reasoning",
        "http://10.0.0.5:8081": "reasoning",
        **dict.fromkeys([*FAST, *REASONING[1:]]),
    },
    "beefcake2-hybrid": {
        "http://10.0.0.31:8000": "reasoning",
        **dict.fromkeys(FAST, "fast"),
        **dict.fromkeys(REASONING, "reasoning"),
    },
    "beefcake2-slurm": dict.fromkeys(FAST, "fast") | dict.fromkeys(REASONING, "reasoning"),
    "beefcake2-april": dict.fromkeys(FAST, "qwen36") | dict.fromkeys(REASONING, "minimax"),
}
TASKS = ("analyze", "refactor", "documentation", "borrowing", "ownership", "complex")
RUST = ("idiomatic", "fix", "complete", "typestate")


def rendered(tmp_path_factory, inventory):
    """The gateway's configuration and the clients of heads of an inventory, as Ansible renders them."""
    namespace = "thefermisea.llama_cluster"
    config = "llama_services | %s.gateway_config(llama_models, groups, hostvars, inventory_hostname)" % namespace
    clients = "(llama_services | %s.node_serving(llama_models, item, groups, hostvars, '')).clients" % namespace
    words = {
        "config": "{{ %s }}" % config,
        "addresses": "{{ gateway_addresses }}",
        "tailscale": "{{ gateway_tailscale }}",
        "clients": {
            node: "{{ %s }}" % clients.replace("item", "'%s'" % node)
            for node in ("vllm-node1",)
            if inventory in ("beefcake2", "beefcake2-hybrid")
        },
    }

    def make(folder):
        answers = inventory_runs.shown(folder, inventory, "slurm-ctl", msg=words)
        (folder / "answers.json").write_text(json.dumps(answers["slurm-ctl"]["msg"]))

    return json.loads((once(tmp_path_factory, "rendered-" + inventory, make) / "answers.json").read_text())


def answer(reported, url, name, task=None):
    """The service that a request of the notes gets, an Answer with the reason, or None without a managed port."""
    config = parse(reported["config"])
    tiers = {tier: one["port"] for tier, one in reported["config"]["tiers"].items()}
    place = urlsplit(url)
    host, port, path = place.hostname, place.port or 443, place.path or "/"
    if host == TAILNET:
        served = wanted_handlers(tiers, 8000, False) if reported["tailscale"] else []
        at = ["--tcp=%d " % port, "--https=%d --set-path=/ " % port]
        at += ["--https=%d --set-path=/reasoning/ " % port] if path.startswith("/reasoning/") else []
        found = [one for one in served if one.startswith(tuple(at))]
        if not found:
            return None
        host, port = "10.0.0.5", int(found[-1].rpartition(":")[2])
    if host == "10.0.0.5" and host in reported["addresses"]:
        for tier, number in tiers.items():
            if port == number:
                return routing.of_tier(config, tier, name)
        return (
            routing.of_model(config, task, name)
            if "http://10.0.0.5:%d" % port in reported["config"]["base_urls"]
            else None
        )
    heads = [
        one
        for one in config.services.values()
        for at in one.endpoints
        if (at.address, at.port) == (host, port) and "10.0.0.0/24" in reported["clients"].get(at.node, [])
    ]
    return routing.Route(heads[0], heads[0].models[0].name) if heads else None


@pytest.mark.parametrize("inventory", STATES)
def test_every_url_and_name_of_notes_is_answered(tmp_path_factory, inventory):
    reported = rendered(tmp_path_factory, inventory)
    for url, service in TIERS[inventory].items():
        found = answer(reported, url, "OR1-Behemoth")
        assert (found and found.service.name) == service, url
    for name in NAMES:
        found = answer(reported, "http://10.0.0.5:8000", name)
        if name in SERVED[inventory]:
            assert found.service.name == SERVED[inventory][name]
            model = next(one for one in found.service.models if one.name == found.model)
            assert name in (model.name, *model.aliases)
        else:
            # 400: clients of the notes take 404 for a dead server.
            assert isinstance(found, Answer) and found.status == 400 and b"serves it" in found.body, name
    if inventory != "beefcake2-april":
        for task in (*TASKS, *RUST):
            other = SERVED[inventory].get("Strand-Rust-Coder", "reasoning")
            expected = other if task in RUST else "reasoning"
            assert answer(reported, "http://10.0.0.5:8000", None, task).service.name == expected


def test_clients_of_notes_may_use_head_itself(tmp_path_factory):
    for inventory in ("beefcake2", "beefcake2-hybrid"):
        reported = rendered(tmp_path_factory, inventory)
        assert {"10.0.0.0/24", "10.100.0.0/24"} <= set(reported["clients"]["vllm-node1"])


def test_reference_inventories_have_monitoring_and_tailnet():
    for inventory in STATES:
        hosts = yaml.safe_load((INVENTORIES / inventory / "hosts.yml").read_text())["all"]["children"]
        assert set(hosts["llama_monitoring"]["hosts"]) == {"slurm-ctl"}
        own = yaml.safe_load((INVENTORIES / inventory / "group_vars/llama_gateway.yml").read_text())
        assert own["gateway_tailscale"] is (inventory != "beefcake2")
