# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replicas: a service of one node on several, each planned on its own."""

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import (
    GROUPS,
    MODELS,
    SMALL,
    cards,
    nodes,
    plan,
)
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import kept as kept_of

EMBED = {"model": "small", "quant": "Q8_0", "head": "llama_rpc", "ctx_size": 4096, "parallel": 1}


def embed(**changes):
    return {"embed": dict(EMBED, **changes)}


def parts(planned, name="embed"):
    return {part["node"]: part for part in planned["services"][name]}


def kept(planned, node):
    """The kept plan of one node."""
    return kept_of({"services": {"embed": [parts(planned)[node]]}}, "embed")


def test_replica_holds_all_layers_on_own_cards():
    found = plan(embed())
    assert found["refused"] == [] and found["unplanned"] == {}
    assert {node: part["layers"] for node, part in parts(found).items()} == {
        "node2": {"node2": 12},
        "node3": {"node3": 12},
    }
    # One of them with two smaller cards is split over them; the other one is not.
    uneven = parts(plan(embed(), nodes(node3={"devices": cards("node3", 12000, 12000), "cores": 4})))
    assert [uneven[node]["topology"] for node in ("node2", "node3")] == ["single", "split"]


def test_the_table_has_a_row_for_each_replica():
    lines = plan(embed())["lines"]
    assert [line for line in lines if line.startswith("embed: ")] == [lines[0]]
    rows = [line.split()[:2] for line in lines if line.startswith(("  node2", "  node3"))]
    assert rows == [["node2", "GPU0"], ["node3", "GPU0"], ["node2:", "single,"], ["node3:", "single,"]]
    assert (
        "  MiB; 2 replicas" in lines
        and "    main memory of the head: 1059 MiB of weights and 20 MiB of buffers" in lines
    )


def test_neighbour_counts_only_for_its_replica():
    services = dict(embed(), code={**EMBED, "head": "node3"})
    found = plan(services, nodes(40000))
    free = {node: part["devices"][0]["free_mib"] for node, part in parts(found).items()}
    assert found["refused"] == [] and free["node2"] == 40000
    assert found["sharing"] == ["embed on node3 shares cards with code, all of them fit"]
    assert free["node3"] == 40000 - found["services"]["code"][0]["devices"][0]["total_mib"]


def test_misfit_replica_is_named():
    (sentence,) = plan(embed(), nodes(node3={"devices": cards("node3", 8000), "cores": 4}))["refused"]
    assert sentence.startswith("llama_services.embed.quant: small Q8_0 with ") and " on GPU0 of node3 and " in sentence
    assert ": leave node3 out of head, or " in sentence and "its head" not in sentence


def test_hopeless_weights_are_refused_per_replica():
    """The memory of two nodes is not one."""
    assert plan(embed())["hopeless"] == []
    found = plan(embed(), nodes(10000))["hopeless"]
    assert ["memory of node2:" in found[0], "memory of node3:" in found[1], len(found)] == [True, True, 2]


def test_present_replicas_are_planned_in_limited_run():
    here = {"node2": nodes()["node2"]}
    found = plan(embed(), here)
    assert list(parts(found)) == ["node2"] and found["refused"] == [] and found["uncounted"] == []
    assert "embed: not planned, node3 is not part of this run" in found["lines"]
    whole = memory_plan(embed(), MODELS, GROUPS, here, complete=True)
    assert whole["refused"] == [
        "llama_services.embed: not planned, node3 is not part of this run, a plan needs all nodes of a service: run "
        "without --limit"
    ]


def test_each_replica_keeps_its_own_plan():
    two = nodes(**{name: {"devices": cards(name, 24000, 24000), "cores": 4} for name in ("node2", "node3")})
    first = plan(embed(force_split=True), two)
    earlier = kept(first, "node2") + kept(first, "node3")
    again = plan(embed(force_split=True), two, previous=earlier)
    assert again["unchanged"] == ["embed"] and again["services"] == first["services"]
    assert [line for line in again["lines"] if line.startswith("embed: ")] == [again["lines"][0]]
    assert again["lines"][0].endswith(
        ", planned as before: node2 0-6 (7), node2 7-11 (5), node3 0-6 (7), node3 7-11 (5)"
    )
    # A new replica has no plan yet.
    assert plan(embed(force_split=True), two, previous=kept(first, "node2"))["unchanged"] == []
    # The plan of another node does not count.
    moved = plan(embed(force_split=True, head="node3"), two, previous=kept(first, "node2"))
    assert moved["unchanged"] == [] and list(parts(moved)) == ["node3"]


def test_replicas_without_header_keep_plans():
    """If the plan decides a command line, as that of experts."""
    known = dict(MODELS, small=dict(MODELS["small"], header=dict(SMALL, expert_count=4, expert_used_count=2)))
    del known["small"]["header"]
    first = plan(embed())
    earlier = kept(first, "node2") + kept(first, "node3")

    def again(previous):
        return memory_plan(embed(cpu_moe="auto"), known, GROUPS, nodes(), previous=previous)

    assert list(parts(again(earlier))) == ["node2", "node3"]
    (sentence,) = again(earlier[:1])["refused"]
    assert sentence.startswith("llama_services.embed.cpu_moe: auto seen without a plan of small Q8_0 ")
