# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that use some of the cards of their nodes, or none."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.services import head_instances
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import (
    CHAT,
    GROUPS,
    MODELS,
    cards,
    chat,
    kept,
    nodes,
    plan,
)

ALONE = {"model": "small", "quant": "Q8_0", "head": "node1", "ctx_size": 4096, "parallel": 1}


def looked_at(node, *sizes):
    """A node of which nvidia-smi was asked: its cards with UUIDs, and its main memory."""
    found = [dict(card, uuid="GPU-%s-%d" % (node, number)) for number, card in enumerate(cards(node, *sizes))]
    (main,) = devices.as_dicts(devices.of_node(node, [], 64000, 1024))
    return {"devices": found, "main": main, "cores": 40}


def places(planned, name):
    return [(row["node"], row["device"]) for row in planned["services"][name][0]["devices"]]


def planned(node1=(24000, 24000), **services):
    known = nodes(**{"node1": looked_at("node1", *node1)})
    return plan({name: dict(ALONE, cards=wanted) for name, wanted in services.items()}, known)


def test_indices_follow_nvidia_smi_and_become_uuids():
    found = planned(node1=(48000, 48000), a=[1], b=[1, 0], c=[0])
    assert (places(found, "a"), found["refused"]) == ([("node1", "GPU1")], [])
    assert [found["cards"][name]["node1"] for name in "abc"] == [
        ["GPU-node1-1"],
        ["GPU-node1-0", "GPU-node1-1"],
        ["GPU-node1-0"],
    ]
    assert planned()["cards"] == {}


def test_count_takes_cards_of_no_other_service():
    found = planned(a=1, b=1)
    assert (places(found, "a"), places(found, "b")) == ([("node1", "GPU0")], [("node1", "GPU1")])
    assert places(planned(a=[0], b=1), "b") == [("node1", "GPU1")]
    # The larger one where neither is taken.
    assert places(planned(node1=(24000, 48000), a=1), "a") == [("node1", "GPU1")]
    busy = nodes(node1=looked_at("node1", 24000, 24000))
    busy["node1"]["devices"][0]["others_mib"] = 5000
    assert plan({"a": dict(ALONE, cards=1)}, busy)["cards"] == planned(a=1)["cards"]


def two_of_a_node():
    """A split that has a card of node2, and a service that counts one there."""
    known = {name: looked_at(name, 24000, 24000) for name in ("node1", "node2", "node3")}
    return dict(chat(cards=[0]), solo=dict(ALONE, head="node2", cards=1)), known


def test_count_keeps_cards_in_limited_run():
    """Another card would be a restart, and one more in the next run of all nodes."""
    services, known = two_of_a_node()
    first = plan(services, known)
    assert first["cards"]["solo"] == {"node2": ["GPU-node2-1"]}
    part = {"node2": known["node2"]}
    again = plan(services, part, previous=kept(first, "solo"))
    assert (again["cards"]["solo"], again["refused"]) == (first["cards"]["solo"], [])
    # Without an earlier plan the claims of the split are unknown.
    (sentence,) = plan(services, part)["refused"]
    assert sentence == (
        "llama_services.solo.cards: 1 seen beside chat on node2, whose plan is not known without all of its nodes, a "
        "plan of it is needed to count cards: run without --limit, or write indices"
    )
    services["solo"]["cards"] = [1]
    assert plan(services, part)["refused"] == []
    # A split of other nodes takes nothing there.
    apart = dict(chat(cards=[0], workers="node3"), solo=dict(services["solo"], cards=1))
    assert plan(apart, part)["refused"] == []


def test_split_that_keeps_its_plan_keeps_its_cards():
    """Its header is unreadable, or a node is not part of the run: what it was given is not free."""
    services, known = two_of_a_node()
    first = plan(services, known)
    part = {name: known[name] for name in ("node1", "node2")}
    found = plan(services, part, previous=kept(first))
    assert found["refused"] == [] and found["cards"]["solo"] == first["cards"]["solo"]
    assert found["uncounted"] == [] and found["services"]["chat"][0]["counts"] == first["services"]["chat"][0]["counts"]


def test_count_that_no_longer_fits_takes_other_cards():
    services = {"a": dict(ALONE, cards=1), "b": dict(ALONE, cards=1)}
    known = {"node1": looked_at("node1", 24000, 24000)}
    first = plan(services, known)
    earlier = kept(first, "a") + kept(first, "b")
    moved = dict(services, a=dict(services["a"], cards=[1]))
    found = plan(moved, known, previous=earlier)
    assert found["refused"] == [] and found["cards"]["b"] == {"node1": ["GPU-node1-0"]}
    # Both stay if they fit one card.
    known = {"node1": looked_at("node1", 48000, 48000)}
    found = plan(moved, known, previous=earlier)
    assert found["refused"] == [] and found["cards"]["b"] == {"node1": ["GPU-node1-1"]}
    # Another count is another choice, and what fits nowhere is refused once.
    assert len(plan(dict(services, b=dict(ALONE, cards=2)), known, previous=earlier)["cards"]["b"]["node1"]) == 2
    small = {"node1": looked_at("node1", 8000, 8000)}
    assert len(plan({"b": services["b"]}, small, previous=earlier)["refused"]) == 1


def test_moved_replica_leaves_other_replicas():
    known = {name: looked_at(name, 24000, 24000) for name in ("node1", "node2")}
    both = {"z": dict(ALONE, head="node1,node2", cards=1)}
    pushed = {name: dict(ALONE, head=name, cards=[0]) for name in ("node1", "node2")}
    first = plan({**both, **pushed}, known)
    assert first["cards"]["z"] == {"node1": ["GPU-node1-1"], "node2": ["GPU-node2-1"]}
    taken = {**both, "a": dict(ALONE, head="node2", cards=[1])}
    found = plan(taken, known, previous=kept(first, "z"))
    assert found["refused"] == []
    assert found["cards"]["z"] == {"node1": ["GPU-node1-1"], "node2": ["GPU-node2-0"]}


def test_cardless_services_share_main_memory():
    found = planned(a=[], b=[], c=1)
    assert (places(found, "a"), places(found, "c")) == ([("node1", "main")], [("node1", "GPU0")])
    assert found["cards"]["a"] == {"node1": []} and found["refused"] == []
    assert found["services"]["b"][0]["devices"][0]["free_mib"] < found["services"]["a"][0]["devices"][0]["free_mib"]
    # A node without a card has only main memory.
    single = plan({"a": dict(ALONE, cards=[])}, nodes(node1=dict(looked_at("node1"), devices=[found_main()])))
    assert (places(single, "a"), single["cards"]["a"]) == ([("node1", "main")], {"node1": []})


def found_main():
    return looked_at("node1")["main"]


def test_large_weights_fit_main_memory():
    assert planned(node1=(8000,), a=[])["hopeless"] == []
    assert len(planned(node1=(8000,), a=1)["hopeless"]) == 1


def of_cpu(known, **services):
    """A plan of services whose build is for the CPU, but for those that name another."""
    services = {name: dict({"build": "plain"}, **one) for name, one in services.items()}
    return plan(services, known, plain={"accelerator": "cpu"})


def test_a_build_for_the_cpu_sees_no_card():
    """Its units are the same as on a node without a card."""
    known = nodes(node1=looked_at("node1", 24000, 24000))
    found = of_cpu(known, a=ALONE, b=dict(ALONE, cards=[]), c=dict(ALONE, build="default", cards=2))
    assert (places(found, "a"), found["refused"]) == ([("node1", "main")], [])
    assert places(found, "c") == [("node1", "GPU0"), ("node1", "GPU1")]
    assert found["services"]["b"][0]["devices"][0]["free_mib"] < found["services"]["a"][0]["devices"][0]["free_mib"]
    hostvars = {"node1": {"llama_builds": {"plain": {"accelerator": "cpu"}}}}
    (head,) = head_instances({"a": dict(ALONE, build="plain")}, MODELS, "node1", GROUPS, hostvars, "/m", found)
    assert (head.cards, head.accelerator, head.layers) == (None, "cpu", {"node1": 12})
    assert "--device" not in head.args and head.tensor_split == []


def test_what_build_for_cpu_lacks_is_main_memory():
    known = nodes(node1=looked_at("node1", 48000), node2=looked_at("node2", 48000))
    known["node1"]["main"]["total_mib"] = known["node2"]["main"]["total_mib"] = 9000
    (sentence,) = of_cpu(known, a=ALONE)["refused"]
    assert "9000 MiB are there: " in sentence
    assert len(of_cpu(known, a=ALONE)["hopeless"]) == 1
    # Cards that are too small are no reason.
    assert of_cpu(nodes(node1=looked_at("node1", 8000)), a=ALONE)["hopeless"] == []
    (sentence,) = of_cpu(nodes(), a=ALONE)["refused"]
    assert sentence.startswith("llama_services.a.build: accelerator cpu seen, the main memory of node1 is needed")


def test_auto_build_without_card_is_cpu():
    known = nodes(node1=dict(looked_at("node1"), devices=[found_main()]), node2=looked_at("node2", 24000))
    found = plan({"a": dict(ALONE, head="node1,node2")}, known, default={"accelerator": "auto"})
    assert [one["devices"][0]["device"] for one in found["services"]["a"]] == ["main", "GPU0"]


@pytest.mark.parametrize(
    ("wanted", "sizes", "sentence"),
    [
        ([2], (1, 1), "2 seen, node1 has 0, 1, one that nvidia-smi or vulkaninfo prints there is needed: correct it"),
        ([0], (), "0 seen, node1 has no card, one that nvidia-smi or vulkaninfo prints there is needed: correct it"),
        (3, (1, 1), "3 seen, at most the 2 of node1 are allowed: lower it"),
    ],
)
def test_cards_that_are_not_there(wanted, sizes, sentence):
    known = nodes(node1=dict(looked_at("node1", *sizes), devices=cards("node1", *sizes) or [found_main()]))
    assert plan({"a": dict(ALONE, cards=wanted)}, known)["refused"] == ["llama_services.a.cards: " + sentence]


def test_unknown_main_memory_is_refused():
    (sentence,) = plan({"a": dict(ALONE, cards=[])})["refused"]
    assert sentence.startswith(
        "llama_services.a.cards: [] seen, the main memory of node1 is needed to plan it: add {main"
    )


def test_two_names_that_claim_one_card_are_said():
    other_name = looked_at("node1", 24000)
    known = nodes(
        node1=looked_at("node1", 24000), node2=dict(other_name, devices=[dict(other_name["devices"][0], node="node2")])
    )
    note = "note: node1 and node2 have the same card, GPU-node1-0, which is counted for each of them"
    assert note in plan({"chat": dict(CHAT)}, known)["lines"]
    assert not any(line.startswith("note: ") for line in plan({"chat": dict(CHAT)})["lines"])
