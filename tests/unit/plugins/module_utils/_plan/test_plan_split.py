# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The best split of blocks of any sizes, and how long it is looked for."""

import itertools
import random

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices as plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import place, split, suggest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan import estimate

FACTS = {
    "architecture": "qwen3",
    "block_count": 8,
    "context_length": 1 << 20,
    "embedding_length": 4096,
    "feed_forward_length": 16384,
    "head_count": 32,
    "head_count_kv": 8,
    "key_length": 128,
    "vocab_size": 32000,
}
SETTINGS = place.settings_for({"ctx_size": 4096}, "b11434")


def shape_of(sizes, output=None):
    shape = estimate.estimate(dict(FACTS, block_count=len(sizes)), 40 * 10**9)
    return shape._replace(block_bytes=sizes, output_bytes=shape.output_bytes if output is None else output)


def every_partition(blocks, devices):
    for cuts in itertools.combinations(range(1, blocks), devices - 1):
        ends = cuts + (blocks,)
        yield [end - start for start, end in zip((0,) + cuts, ends)]


def times(shape, speeds, counts):
    found, start = [], 0
    for device, count in enumerate(counts):
        held = sum(shape.block_bytes[start : start + count]) + (shape.output_bytes if device == len(counts) - 1 else 0)
        found.append(held / float(speeds[device]))
        start += count
    return max(found), sum(time * time for time in found)


@pytest.mark.parametrize("seed", range(40))
def test_no_split_is_better(seed):
    """Held against every split there is: blocks and cards of any sizes, some of which hold little."""
    chance = random.Random(seed)
    blocks, devices = chance.randint(3, 10), chance.randint(1, 3)
    shape = shape_of([chance.choice([1, 1, 1, 2, 5]) << 30 for _block in range(blocks)], chance.choice([0, 1, 8]) << 30)
    speeds = [chance.choice([300, 936, 1008]) for _device in range(devices)]
    compute = [chance.randint(0, 2) << 28 for _device in range(devices)]
    room = [chance.choice([4, 9, 20, 60]) << 30 for _device in range(devices)]
    caches = split.kv_bytes(shape, SETTINGS)

    def fits(counts):
        ends = list(itertools.accumulate(counts))
        held = [
            sum(shape.block_bytes[end - count : end]) + sum(caches[end - count : end])
            for end, count in zip(ends, counts)
        ]
        held[-1] += shape.output_bytes
        return all(size + own <= most for size, own, most in zip(held, compute, room))

    possible = [times(shape, speeds, counts) for counts in every_partition(blocks, devices) if fits(counts)]
    counts = split._partition(shape, SETTINGS, room, speeds, compute)
    if counts is None:
        assert not possible
    else:
        assert fits(counts) and times(shape, speeds, counts) == pytest.approx(min(possible), rel=1e-6)


@pytest.fixture
def looked(monkeypatch):
    """Counts the stages that were looked at."""
    found = []
    time = split._Stages.time
    monkeypatch.setattr(split._Stages, "time", lambda *given: found.append(1) or time(*given))
    return found


@pytest.mark.parametrize("output", [0, 1 << 40])
@pytest.mark.parametrize("sizes", [[1 << 27] * 512, [(block * 7919 % 31 + 1) << 22 for block in range(512)]])
def test_the_most_blocks_that_a_header_may_have(looked, sizes, output):
    """512 blocks on 15 devices have two million stages; the output layer may give all others any slack."""
    counts = split._partition(shape_of(sizes, output), SETTINGS, [float("inf")] * 15, [936] * 15, [0] * 15)
    assert sum(counts) == 512
    assert len(looked) < 15 * 512 * 2 * 12


def test_the_advice_on_the_most_blocks(looked):
    """A header of 512 blocks that fits nowhere is answered within some stages a split of each thing that is tried."""
    shape = shape_of([90 << 20] * 512)
    devices = [plan_devices.of_card("node%d" % number, 0, {"memory_mib": 6000}, 1024) for number in range(14)]
    settings = place.settings_for({"ctx_size": 1 << 20}, "b11434")
    found = suggest.nearest(place.Case(shape, settings, devices, 1))
    assert found[0].startswith("lower slot_ctx_size to ")
    assert len(looked) < 40 * 15 * 512 * 2 * 12


@pytest.mark.parametrize(
    ("counts", "words"), [([5], [6]), ([5, 3], [5, 4]), ([5, 0], [6]), ([0, 5, 0, 0], [0, 6]), ([0, 0, 1], [0, 0, 2])]
)
def test_output_layer_counts_for_last_device(counts, words):
    assert split.with_output(counts) == words


@pytest.mark.parametrize(
    ("layers", "nodes", "counts"),
    [
        ({"a": 5, "b": 3}, ["a", "b"], [5, 3]),
        ({"a": 5, "b": 3}, ["a", "b", "a"], [3, 3, 2]),
        ({"a": 8}, ["a", "a", "a"], [3, 3, 2]),
        ({"a": 1}, ["a", "a", "b"], [1, 0, 0]),
        ({}, ["a"], [0]),
    ],
)
def test_layers_of_node_are_spread_over_its_cards(layers, nodes, counts):
    assert split.per_device(layers, nodes) == counts


def test_split_gives_each_device_a_layer():
    shape = shape_of([1 << 20] * 3, 0)
    assert split.split(shape, SETTINGS, None, [1, 1, 1], 1) == [1, 1, 1]
    assert split.split(shape, SETTINGS, None, [1, 1, 1, 1], 1) is None


def test_what_fits_to_the_byte_fits():
    shape = shape_of([1 << 30] * 4)
    held = [share.total() for share in place.place(shape, SETTINGS, [2, 2], 1).devices]
    assert split.split(shape, SETTINGS, held, [1, 1], 1) == [2, 2]
    for index in (0, 1):
        less = list(held)
        less[index] -= 1
        found = split.split(shape, SETTINGS, less, [1, 1], 1)
        assert found is None
