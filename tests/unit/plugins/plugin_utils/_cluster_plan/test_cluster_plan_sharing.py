# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.place import Case
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.suggest import sharing
from ansible_collections.thefermisea.llama_cluster.tests.unit.plugins.module_utils._plan.test_plan_place import (
    SHORT,
    cards,
    small,
)


def told(claims, local=1, size=24576, nodes=("node2", "node3", "node1")):
    """What is said of a model of 9 GB whose devices have claims of service fast; the head is the last node."""
    devices = [
        device._replace(node=node, claimed_mib=claimed)
        for node, device, claimed in zip(nodes, cards(*[size] * len(claims)), claims)
    ]
    case = Case(small(), SHORT, devices, local)
    return sharing("chat", ["fast"], case, case.plan(True))


def test_a_worker_that_is_shared_may_be_left_out():
    title, beside, apart, alternating, decision = told((0, 5000, 0))
    assert title == "chat shares cards with fast:"
    assert beside.startswith("  beside fast, as in the table: fits (node2 ") and " of 19576 MiB" in beside
    assert apart.startswith("  apart, with node3 left out of workers: fits (node2 ") and "node3 " not in apart[40:]
    assert alternating.startswith("  alternating, with fast stopped: fits (") and "19576" not in alternating
    assert decision == "  decision: beside fast, as in the table; to keep them apart leave node3 out of workers"


@pytest.mark.parametrize(
    ("claims", "local", "nodes", "left_out"),
    [
        ((0, 0, 5000), 1, ("node2", "node3", "node1"), None),  # the head's own
        ((5000, 5000, 5000), 1, ("node2", "node3", "node1"), None),
        ((5000, 5000, 0), 1, ("node2", "node3", "node1"), "node2 and node3"),
        ((5000, 0, 0), 1, ("node2", "node2", "node1"), None),  # the other card of the node is free
        ((5000, 5000, 0), 2, ("node2", "node1", "node1"), "node2"),
        ((5000, 0, 5000), 2, ("node2", "node1", "node1"), "node2"),
        ((5000, 0), 0, ("node2", "node3"), "node2"),  # a head without a card
    ],
)
def test_who_may_be_left_out(claims, local, nodes, left_out):
    apart = [line for line in told(claims, local, nodes=nodes) if line.startswith("  apart")]
    assert len(apart) == (1 if left_out else 0)
    if left_out:
        assert apart[0].startswith("  apart, with %s left out of workers: " % left_out)


def test_where_it_fits_alone_and_not_beside_the_decision_says_so():
    """Of cards of 6 GB two hold the model, and one of them does not."""
    *_lines, decision = told((5000, 0, 0), size=7168)
    assert decision == ("  decision: none, it does not fit beside fast; to keep them apart leave node2 out of workers")
    *_lines, decision = told((5000, 5000, 0), size=7168)
    assert decision == "  decision: none, it does not fit beside fast"
