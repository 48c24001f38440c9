# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services whose devices have a part of every layer."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.services import head_instances
from ansible_collections.thefermisea.llama_cluster.tests.unit import three_nodes
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import GROUPS, MODELS, chat, kept, plan

HOSTVARS = {name: {"llama_fabric_address": "10.1.0.%d" % index} for index, name in enumerate(GROUPS["all"], 1)}
ALONE = {"workers": None, "rpc_port": None}


def tensor(**changes):
    return chat(split_mode="tensor", **changes)


def part(planned):
    assert planned["refused"] == []
    return planned["services"]["chat"][0]


def head(planned, services):
    (found,) = head_instances(services, MODELS, "node1", GROUPS, HOSTVARS, "/opt/models", planned)
    return found


def test_equal_cards_have_equal_parts():
    layer, found = part(plan(chat())), part(plan(tensor()))
    assert found["tensor_split"] == [1, 1, 1] and found["layers"] == {"node1": 80, "node2": 80, "node3": 80}
    rows = found["devices"]
    # 80 layers are no multiple of three.
    assert max(row["weights_mib"] for row in rows) < 1.01 * min(row["weights_mib"] for row in rows)
    weights, whole = (sum(row["weights_mib"] for row in one["devices"]) for one in (found, layer))
    assert whole <= weights < 1.01 * whole
    assert "split, a part of every layer on each device" in " ".join(plan(tensor())["lines"])


def test_head_has_the_mode():
    for services, words in ((tensor(), "tensor"), (chat(), "layer")):
        args = head(plan(services), services).args
        assert args[args.index("--split-mode") + 1] == words
    services = tensor(**ALONE)
    memory = three_nodes.nodes(node1={"devices": three_nodes.cards("node1", 40000, 40000), "cores": 40})
    args = " ".join(head(plan(services, memory), services).args)
    assert "--split-mode tensor" in args and "--tensor-split 1,1" in args and "--rpc" not in args


def test_smaller_card_has_a_smaller_part():
    memory = three_nodes.nodes(node3={"devices": three_nodes.cards("node3", 14000), "cores": 40})
    small, others = part(plan(tensor(), memory))["devices"][1], part(plan(tensor(), memory))["devices"][::2]
    assert small["node"] == "node3" and small["total_mib"] <= 14000
    assert all(row["weights_mib"] > 1.5 * small["weights_mib"] for row in others)


def test_cache_is_divided_by_heads():
    found, layer = (part(plan(services))["devices"] for services in (tensor(), chat()))
    total, whole = (sum(row["kv_mib"] for row in rows) for rows in (found, layer))
    # 8 heads on three cards: never fewer than all of them together.
    assert whole <= total < 1.1 * whole


def test_other_mode_replans():
    first = plan(tensor())
    assert plan(tensor(), previous=kept(first))["unchanged"] == ["chat"]
    assert plan(chat(), previous=kept(first))["unchanged"] == []


@pytest.mark.parametrize(
    ("architecture", "sentence"),
    [
        ("olmo2", "llama_services.chat.split_mode: tensor seen, layer is needed for architecture olmo2 of big, which"),
        ("deepseek4", "llama_services.chat.split_mode: tensor seen, layer is needed for architecture deepseek4 of big"),
    ],
)
def test_family_without_it_is_refused(monkeypatch, architecture, sentence):
    facts = dict(three_nodes.FACTS, architecture=architecture)
    monkeypatch.setitem(three_nodes.MODELS, "big", dict(MODELS["big"], header=facts))
    (found,) = plan(tensor())["refused"]
    assert found.startswith(sentence)


def test_one_device_is_refused():
    (found,) = plan(tensor(**ALONE))["refused"]
    assert found.startswith("llama_services.chat.split_mode: tensor seen with one device, at least 2 are needed")
