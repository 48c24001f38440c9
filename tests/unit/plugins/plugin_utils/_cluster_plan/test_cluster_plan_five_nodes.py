# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two machines with two RTX 3090 each, two without a GPU, and a head with an A6000: no plan for them moves a model from
GPUs to main memory."""

import copy
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.devices import as_dicts, of_inventory
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.table import lines
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan

FOLDER = Path(__file__).resolve().parents[3] / "fixtures/five_nodes"
CHILDREN = yaml.safe_load((FOLDER / "hosts.yml").read_text())["llama_nodes"]["children"]
GROUPS = {name: list(group["hosts"]) for name, group in CHILDREN.items()}
GROUPS["all"] = GROUPS["llama_nodes"] = [host for hosts in GROUPS.values() for host in hosts]
MODELS = yaml.safe_load((FOLDER / "group_vars/all/models.yml").read_text())["llama_models"]
SERVICES = yaml.safe_load((FOLDER / "group_vars/all/services.yml").read_text())["llama_services"]


THIRD = dict(SERVICES["small"], head="rtx2", port=8002)


def plan(cards=None, services=("big", "small"), known=None, headers=(), only=None, **changes):
    """changes: of service big; cards: MiB of each card; only: nodes that are part of the run."""
    nodes = {}
    for group in CHILDREN.values():
        for host, own in group["hosts"].items():
            described = own.get("llama_devices") or copy.deepcopy(group["vars"]["llama_devices"])
            if cards and not host.startswith("mem"):
                described = [dict(card, memory_mib=cards) for card in described]
            nodes[host] = {"devices": as_dicts(of_inventory(host, described, 1024)), "cores": None}
    known = known or dict(SERVICES, third=THIRD)
    wanted = {name: dict(known[name], **(changes if name == "big" else {})) for name in services}
    nodes = {host: nodes[host] for host in only or nodes}
    return memory_plan(wanted, MODELS, GROUPS, nodes, headers, complete=True)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("services", [("big",), ("big", "small")])
def test_a_70b_stays_on_the_gpus(force, services):
    planned = plan(services=services, workers="llama_rpc:llama_cpu", force_split=force)
    # The one advice is to take out what is of no use.
    assert planned["refused"] == [
        "llama_services.big.workers: mem1 and mem2 would hold no layers, since the GPUs hold all of llama-3.3-70b "
        "Q6_K, and each worker needs one: leave them out of workers"
    ]
    assert planned["services"]["big"][0]["layers"] == dict(planned["services"]["big"][0]["layers"], mem1=0, mem2=0)
    assert plan(services=services, force_split=force)["refused"] == []
    assert "mem1" not in "\n".join(lines(plan(services=services, force_split=force)))


def test_unlike_cards_are_weighed_by_their_bandwidth():
    """An RTX 3090 reads 936 GB/s and an A6000 768."""
    (big,) = plan(services=("big",))["services"]["big"]
    shares = {row["node"]: row["weights_mib"] for row in big["devices"]}
    assert shares["rtx1"] / 936.0 == pytest.approx(shares["a6000"] / 768.0, rel=0.07)
    assert big["layers"]["rtx1"] == big["layers"]["rtx2"] == 34


def test_what_does_not_fit_says_what_would():
    (sentence,) = plan(cards=12288, services=("big",))["refused"]
    assert sentence.startswith(
        "llama_services.big.quant: llama-3.3-70b Q6_K with 8192 tokens a slot (2 slots) of f16 KV cache does not fit, "
    )
    assert sentence.endswith(", the worst of 4 devices that are too small: use 6 cards of 12288 MiB")
    assert "mem1" not in sentence


def test_main_memory_is_no_card():
    services = {name: dict(SERVICES["small"], head="mem1", port=port) for name, port in (("one", 8001), ("two", 8002))}
    assert "two shares main memory with one, all of them fit" in lines(plan(services=("one", "two"), known=services))


def test_misfit_takes_no_memory_from_others():
    planned = plan(cards=8192)
    assert {sentence.split(":")[0] for sentence in planned["refused"]} == {"llama_services.big.quant"}
    (small,) = planned["services"]["small"]
    assert {row["free_mib"] for row in small["devices"]} == {8192}
    assert not any(
        "--tensor-split" in line for line in lines({**planned, "services": {"big": planned["services"]["big"]}})
    )


def test_failing_hub_is_reported_once():
    text = "http://hub.lab:9/api/models/%s/revision/main: Connection refused, 4 times: check the network and run again"
    items = [{"model": service["model"], "quant": service["quant"]} for service in SERVICES.values()]
    headers = [{"item": item, "msg": text % item["model"]} for item in items]
    assert sum("Connection refused" in line for line in lines(plan(headers=headers))) == 1
    headers[0]["msg"] = "http://other.lab/x: Connection refused, 4 times: check the network and run again"
    assert sum("Connection refused" in line for line in lines(plan(headers=headers))) == 2


def test_only_service_that_is_asked_for_is_printed():
    planned = plan(services=("big", "small", "third"))
    shown = lines(planned, "third")
    assert [line.partition(":")[0] for line in shown if not line.startswith(" ")] == [
        "third",
        "third shares cards with big, all of them fit",
    ]
    assert lines(planned, "big") == [line for line in lines(planned, "big") if "small" not in line]
    assert len(lines(planned)) == sum(len(lines(planned, name)) for name in ("big", "small", "third"))


def test_split_moves_to_leave_room_for_replica():
    """The fastest split takes rtx1 as far as it goes, and another one leaves room for what can be nowhere else."""
    fastest = plan(services=("big",), workers="rtx1")["services"]["big"][0]["layers"]
    planned = plan(workers="rtx1")
    assert planned["refused"] == [] and planned["services"]["small"][0]["fits"]
    assert planned["services"]["big"][0]["layers"]["rtx1"] < fastest["rtx1"]
    assert "big leaves room for small, which would not fit beside the split that is fastest for big" in lines(planned)
    # If no split leaves room it stays as it was.
    large = dict(SERVICES, small=dict(SERVICES["small"], slot_ctx_size=32768, parallel=8))
    planned = plan(workers="rtx1", known=large)
    assert planned["services"]["big"][0]["layers"] == fastest and len(planned["refused"]) == 1


def test_service_that_limit_leaves_out_is_not_counted():
    planned = plan(only=["rtx1"])
    assert (
        lines(planned)[0]
        == "note: big not counted, some nodes are not part of this run: the memory of the others is shown as free"
    )
    assert planned["services"]["small"][0]["devices"][0]["free_mib"] == 24576
    assert not any("not counted" in line for line in lines(plan(only=["mem1"])))
