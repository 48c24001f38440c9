# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens/s that the bandwidth of the devices allows."""

import re

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan import lines
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.estimate import estimate
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan.plan import memory_plan
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture
from ansible_collections.thefermisea.llama_cluster.tests.unit.mixture import HEADERS
from ansible_collections.thefermisea.llama_cluster.tests.unit.plugins.plugin_utils._cluster_plan import (
    test_cluster_plan_five_nodes as five_nodes,
)

FACTS = {"architecture": "llama", "block_count": 10, "embedding_length": 1024, "feed_forward_length": 4096}
FACTS.update({"head_count": 8, "head_count_kv": 8, "vocab_size": 32000})
SHAPE = estimate(FACTS, 10**9)
NODES = {
    "a": {"devices": [{"node": "a", "device": "GPU0", "bandwidth": 1000}], "main": None},
    "b": {
        "devices": [{"node": "b", "device": "GPU0", "bandwidth": 500}],
        "main": {"node": "b", "device": "main", "bandwidth": 50},
    },
}


def rows(*places):
    found, first = [], 0
    for node, device, layers in places:
        found.append(
            {"node": node, "device": device, "layers": layers, "first_layer": first, "last_layer": first + layers - 1}
        )
        first += layers
    return found


def ceiling(*places, shape=SHAPE, cpu_moe=0):
    return lines.ceiling({"node": "b", "devices": rows(*places), "cpu_moe": cpu_moe}, shape, NODES)


def test_devices_are_read_one_after_the_other():
    read = sum(SHAPE.block_bytes) + SHAPE.output_bytes
    assert ceiling(("a", "GPU0", 10)) == pytest.approx(1e12 / read, rel=1e-3)
    half = sum(SHAPE.block_bytes[:5]) / 1e12 + (sum(SHAPE.block_bytes[5:]) + SHAPE.output_bytes) / 5e11
    assert ceiling(("a", "GPU0", 5), ("b", "GPU0", 5)) == pytest.approx(1 / half, rel=1e-3)


def test_what_is_not_known_has_no_ceiling():
    assert ceiling(("c", "GPU0", 10)) is None
    assert ceiling(("a", "GPU0", 9)) is None, "layers elsewhere"
    assert ceiling(("a", "GPU0", 10), shape=SHAPE._replace(draft=SHAPE)) is None


def test_ceiling_counts_used_experts_by_place():
    mixture = SHAPE._replace(
        expert_bytes=[int(size * 0.9) for size in SHAPE.block_bytes], n_expert=10, n_expert_used=1, output_bytes=0
    )
    whole = sum(SHAPE.block_bytes)
    assert ceiling(("b", "GPU0", 10), shape=mixture) == pytest.approx(5e11 / (whole * 0.19), rel=1e-2)
    slow = whole * 0.1 / 5e11 + whole * 0.09 / 5e10
    assert ceiling(("b", "GPU0", 10), shape=mixture, cpu_moe=10) == pytest.approx(1 / slow, rel=1e-2)


def test_experts_in_main_memory_are_read_there():
    """With experts in main memory the plan counts another shape, which has none in the blocks of the card."""
    one = mixture.node()
    one["devices"][0]["bandwidth"] = 1134
    services = {"chat": dict(mixture.SERVICE, cpu_moe="auto")}

    def said():
        found = memory_plan(services, mixture.MODELS, mixture.GROUPS, {"node1": one}, HEADERS, {}, (), True)
        return [line for line in found["lines"] if "tokens/s" in line]

    assert said() == []
    one["main"]["bandwidth"] = 140
    (line,) = said()
    assert float(re.search(r"at most ([\d.]+) tokens/s", line).group(1)) < 30, line
    services["chat"]["draft"] = {"type": "ngram-mod"}
    assert said() == [], "what is drafted takes no reading of the weights of its own"


def test_plan_shows_ceiling_of_each_service():
    said = [line for line in five_nodes.plan(services=("big", "small", "third"))["lines"] if "tokens/s" in line]
    assert re.match(r"big: at most 1\d tokens/s, one request at a time\Z", said[0])
