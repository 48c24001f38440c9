# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One model on devices: which layers go where, and what is said where they fit nowhere."""

import itertools
import json
import random

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model.memory import place, settings_of
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model.shape import Mla, Shape
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices as plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import place as plan_place
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import split
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan import estimate

GB = 10**9
# The 72B of the reference cluster and its quant of 47,369,119,648 bytes.
FACTS = {
    "architecture": "qwen3",
    "block_count": 80,
    "embedding_length": 8192,
    "feed_forward_length": 29568,
    "head_count": 64,
    "head_count_kv": 8,
    "key_length": 128,
    "vocab_size": 151936,
}
BIG = estimate.estimate(FACTS, 47369119648)
TIERS = settings_of(build=7772, ctx_size=131072, parallel=1, cache_type_k="q4_0", cache_type_v="q4_0")
SHORT = settings_of(build=11434, ctx_size=4096, parallel=1)


def cards(*sizes, **more):
    """A card of each size (MiB) in a node of its own, node1 last, as a head's card is."""
    names = ["node%d" % number for number in range(2, len(sizes) + 1)] + ["node1"]
    return [
        plan_devices.of_card(name, 0, {"memory_mib": size}, 1024)._replace(**more) for name, size in zip(names, sizes)
    ]


def layers(planned):
    return [device.layers for device in planned.devices]


def small(blocks=9, size=9 * GB):
    return estimate.estimate(
        dict(FACTS, block_count=blocks, vocab_size=1000, embedding_length=1024, key_length=64, head_count=16), size
    )


def test_equal_cards_share_layers_and_output_layer_counts():
    planned = plan_place.plan(BIG, SHORT, cards(32510, 32510, 32510), 1)
    assert (planned.fits, planned.topology) == (True, "split")
    assert layers(planned) == [27, 27, 26]
    assert planned.tensor_split == [27, 27, 27]
    assert [(device.first_layer, device.last_layer) for device in planned.devices] == [(0, 26), (27, 53), (54, 79)]
    for device in planned.devices:
        parts = device.weights_mib + device.kv_mib + device.compute_mib + device.margin_mib
        assert device.total_mib <= parts <= device.total_mib + 2  # each part is rounded up
        assert device.total_mib <= device.free_mib


def test_the_sizes_are_those_of_place():
    planned = plan_place.plan(BIG, SHORT, cards(32510, 32510, 32510), 1)
    placed = place(BIG, SHORT, [27, 27, 26], 1)
    assert [device.kv_mib << 20 for device in planned.devices] == [share.kv for share in placed.devices]
    assert planned.host["weights_mib"] == -(-placed.host.weights // (1 << 20))


@pytest.mark.parametrize(
    "sizes, others",
    [((40960, 14336, 32510), (0, 0, 0)), ((32510, 32510, 32510), (0, 20000, 0)), ((61440, 12288, 24576), (0, 0, 0))],
)
def test_unequal_and_shared_cards_get_what_fits(sizes, others):
    devices = [device._replace(others_mib=used) for device, used in zip(cards(*sizes), others)]
    planned = plan_place.plan(BIG, SHORT, devices, 1, force_split=True)
    assert planned.fits
    assert sum(layers(planned)) == 80 and min(layers(planned)) > 0
    assert layers(planned)[1] == min(layers(planned))
    for device, card, used in zip(planned.devices, sizes, others):
        assert device.free_mib == card - used
        assert device.total_mib <= device.free_mib


def test_split_is_the_best():
    """Against every way to place nine blocks on three cards."""
    source = random.Random(7)
    judged = 0
    for _round in range(60):
        shape = small()._replace(
            block_bytes=[source.randint(1, 9) << 28 for _block in range(9)], output_bytes=source.randint(1, 4) << 28
        )
        rooms = [source.randint(8, 40) << 28 for _card in range(3)]
        speeds = [source.choice([1, 1, 2]) for _card in range(3)]
        ways = [counts for counts in itertools.product(range(1, 8), repeat=3) if sum(counts) == 9]
        times = []
        for counts in ways:
            placed = place(shape, SHORT, list(counts), 1).devices
            if all(share.total() <= room for share, room in zip(placed, rooms)):
                times.append(max(share.weights / speed for share, speed in zip(placed, speeds)))
        found = split.split(shape, SHORT, rooms, speeds, 1)
        if not times:
            assert found is None
            continue
        judged += 1
        assert max(share.weights / speed for share, speed in zip(place(shape, SHORT, found, 1).devices, speeds)) == min(
            times
        )
    assert 10 < judged < 60


def test_what_fits_one_card_is_not_split():
    one = plan_place.plan(small(), SHORT, cards(4096, 32510, 4096), 1)
    assert (one.topology, layers(one), one.tensor_split) == ("single", [0, 9, 0], [0, 10])
    each = plan_place.plan(small(), SHORT, cards(32510, 32510), 1)
    assert (each.topology, layers(each)) == ("replicas", [9, 0])
    reported = plan_place.plan(small(), SHORT, cards(32510, 32510), 1, force_split=True)
    assert (reported.topology, sum(layers(reported))) == ("split", 9) and min(layers(reported)) > 0
    assert reported.reason == "forced, it fits node2 GPU0"


def test_counts_that_somebody_chose_are_kept_and_judged():
    planned = plan_place.plan(BIG, SHORT, cards(32510, 32510, 32510), 1, counts=[40, 40, 0])
    assert (planned.fits, planned.tensor_split) == (True, [40, 41])
    assert not plan_place.plan(BIG, SHORT, cards(32510, 32510, 32510), 1, counts=[70, 5, 5]).fits


def test_head_without_card_keeps_share_in_memory():
    main = [cards(32510)[0]._replace(kind="main", device="main")]
    planned = plan_place.plan(small(), SHORT, main, 1)
    row, own = planned.devices[0], place(small(), SHORT, [9], 1, main=True).devices[0]
    assert (row.weights_mib, row.kv_mib, row.compute_mib) == tuple(map(plan_place.mib, own[3:]))
    assert own.compute != place(small(), SHORT, [9], 1).devices[0].compute
    assert set(planned.host.values()) == {0}


def test_a_card_without_layers_is_not_counted():
    unused = plan_place.plan(BIG, SHORT, cards(32510, 32510, 32510), 1, counts=[40, 40, 0]).devices[2]
    assert (unused.layers, unused.first_layer, unused.last_layer) == (0, None, None)
    assert (unused.margin_mib, unused.total_mib) == (0, 0)


@pytest.mark.parametrize(
    ("speeds", "rooms", "used"),
    [
        ((None, None), (100000, 257000), "mem2"),
        ((None, None), (257000, 100000), "mem1"),
        ((90, 40), (100000, 257000), "mem1"),
        ((40, 90), (257000, 100000), "mem2"),
    ],
)
def test_rest_goes_to_fastest_then_largest_memory(speeds, rooms, used):
    devices = mixed((16384, 16384), rooms)
    devices[:2] = [device._replace(bandwidth=speed) for device, speed in zip(devices, speeds)]
    planned = plan_place.plan(BIG, SHORT, devices, 1)
    assert {row.node for row in planned.devices if row.layers} == {used, "node1", "node2"}


def test_where_nothing_fits_table_shows_by_how_much():
    planned = plan_place.plan(BIG, SHORT, cards(8192, 8192), 1)
    assert not planned.fits
    assert sum(layers(planned)) == 80
    assert any(device.total_mib > device.free_mib for device in planned.devices)


def mixed(gpus, mains, **more):
    """GPUs and, before the head's last one, nodes of main memory."""
    devices = [
        plan_devices.main_memory("mem%d" % number, dict(more, memory_mib=size), 1024)
        for number, size in enumerate(mains, 1)
    ]
    return devices + cards(*gpus)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("bandwidth", [None, 5000])
def test_main_memory_is_no_gpu(force, bandwidth):
    """However large it is and however fast it is said to be."""
    devices = mixed((24576, 24576, 24576), (257000, 257000), bandwidth=bandwidth)
    planned = plan_place.plan(BIG, SHORT, devices, 1, force)
    assert planned.fits and layers(planned)[:2] == [0, 0]
    assert layers(planned)[2:] == layers(plan_place.plan(BIG, SHORT, cards(24576, 24576, 24576), 1))
    assert "mem1" not in planned.reason
    one = plan_place.plan(small(), SHORT, mixed((32510, 32510), (257000,)), 1, force)
    assert layers(one)[0] == 0


def test_main_memory_takes_what_is_left_over():
    planned = plan_place.plan(BIG, SHORT, mixed((16384, 16384), (257000, 257000)), 1)
    assert planned.fits and planned.topology == "split"
    first, second, *gpus = layers(planned)
    assert sorted((first, second))[0] == 0, "one is enough"
    # No GPU could hold one more layer.
    for index in (2, 3):
        more = list(planned.counts)
        more[index], more[0 if first else 1] = more[index] + 1, max(first, second) - 1
        assert not plan_place.plan(BIG, SHORT, mixed((16384, 16384), (257000, 257000)), 1, counts=more).fits
    assert "what the GPUs cannot hold is left over for mem1 main" in planned.reason
    # A smaller one needs the other.
    both = plan_place.plan(BIG, SHORT, mixed((16384, 16384), (10000, 10000)), 1)
    assert both.fits and min(layers(both)) > 0


def test_nodes_without_any_gpu_count_alike():
    devices = [plan_devices.main_memory("mem%d" % number, {"memory_mib": 64000}, 1024) for number in (1, 2)]
    assert layers(plan_place.plan(BIG, SHORT, devices, 1, True)) == [41, 39]  # the output layer is one of the last's
    assert "GPU" not in plan_place.plan(BIG, SHORT, devices, 1, True).reason


def test_unused_card_comes_first():
    devices = [device._replace(claimed_mib=claimed) for device, claimed in zip(cards(32510, 32510), (4000, 0))]
    assert layers(plan_place.plan(small(), SHORT, devices, 2)) == [0, 9]


def test_the_notes_of_the_reference_cluster():
    """A worker with 27 layers of the 72B, 128K of q4_0 cache: 22,574 MiB at rest and 28,708 MiB in prefill, as its
    operators saw it.

    The peak is more than weights, cache and buffers by what only a margin can stand for; with that margin three cards
    hold the model and two do not.
    """
    worker = plan_place.plan(BIG, TIERS, cards(32510, 32510, 32510), 1, counts=[27, 27, 26]).devices[0]
    planned = worker.total_mib - worker.margin_mib
    assert 18000 < planned < 22574
    margin = 28708 - planned
    seen = [device._replace(margin_mib=margin) for device in cards(32510, 32510, 32510)]
    assert plan_place.plan(BIG, TIERS, seen, 1).fits
    assert not plan_place.plan(BIG, TIERS, seen[1:], 1).fits
    assert plan_place.plan(BIG, TIERS, cards(32510, 32510), 1).fits  # with the default margin


def test_a_shape_survives_json():
    for shape in (BIG, BIG._replace(mla=Mla(512, 64, 192))):
        assert Shape.of(json.loads(json.dumps(shape.as_dict()))) == shape


@pytest.mark.parametrize(
    "build, number", [("b11434", 11434), ("b7772", 7772), ("master", None), ("", None), (None, None)]
)
def test_settings_of_a_service(build, number):
    settings = plan_place.settings_for(
        {"ctx_size": 8192, "parallel": 2, "cache_type_k": "q8_0", "cache_type_v": "q8_0", "flash_attn": "off"}, build
    )
    assert (settings.build, settings.flash_attn, settings.cache_type_k) == (number, False, "q8_0")
    assert plan_place.slot_context(BIG, settings) == 4096


def test_a_slot_without_context_is_a_sentence():
    assert plan_place.slot_context(BIG, SHORT._replace(ctx_size=3, parallel=2)) == 1
    for settings, length in (
        (SHORT._replace(ctx_size=0), 0),
        (SHORT._replace(ctx_size=0, parallel=2), 1),
        (SHORT._replace(ctx_size=1, parallel=2), 9),
    ):
        with pytest.raises(plan_place.Refusal) as refusal:
            plan_place.slot_context(BIG._replace(context_length=length), settings)
        assert str(refusal.value).endswith("for %d slots, 1 a slot is needed: set slot_ctx_size" % settings.parallel)


def test_a_plan_survives_json():
    planned = plan_place.plan(BIG, SHORT, cards(32510, 32510, 32510), 1)
    one = plan_place.ServicePlan(planned, "chat", "big", "Q8_0", "header", 4096, 4096, "f16", {"node1": 26}, ["inputs"])
    facts = json.loads(json.dumps(one.as_dict()))
    assert plan_place.ServicePlan.of(facts) == one
    assert (facts["fits"], facts["service"], facts["layers"], facts["devices"][2]["layers"]) == (
        True,
        "chat",
        {"node1": 26},
        26,
    )
    # A kept plan has no free memory.
    for row in facts["devices"]:
        del row["free_mib"]
    del facts["problem"]
    assert {row.free_mib for row in plan_place.ServicePlan.of(facts).plan.devices} == {None}
    for key in ("counts", "service"):
        with pytest.raises((KeyError, TypeError)):
            plan_place.ServicePlan.of({name: value for name, value in facts.items() if name != key})


@pytest.mark.parametrize(("size", "mib"), [(0, 0), (1, 1), (1 << 20, 1), ((1 << 20) + 1, 2), (3 << 20, 3)])
def test_sizes_of_a_plan_are_rounded_up(size, mib):
    assert plan_place.mib(size) == mib


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((32510,), "node1 GPU0"),
        ((32510, 32510), "it fits each of node2 GPU0, node1 GPU0"),
        ((4096, 32510), "it fits node1 GPU0"),
        ((6000, 6000), "it fits none of node2 GPU0, node1 GPU0"),
        ((4096,), "node1 GPU0 is the only device"),
    ],
)
def test_a_plan_says_why_it_is_so(sizes, reason):
    assert plan_place.plan(small(), SHORT, cards(*sizes), 1).reason.endswith(reason)


def test_several_cards_of_one_node_hold_one_copy():
    devices = [device._replace(node="node1") for device in cards(32510, 32510)]
    assert plan_place.plan(small(), SHORT, devices, 2).topology == "single"


def test_head_keeps_its_buffers_in_own_memory():
    """A head with a card shows it beside the devices."""
    devices = [device._replace(kind="main", device="main") for device in cards(40000, 40000)]
    reported = plan_place.plan(small(), SHORT, devices, 1, counts=[4, 5])
    assert set(reported.host.values()) == {0}
    for beside, local in ((cards(40000, 40000), 1), (devices, 0)):
        assert plan_place.plan(small(), SHORT, beside, local, counts=[4, 5]).host["weights_mib"] > 0


def test_a_margin_is_for_what_is_used():
    rows = plan_place.plan(small(), SHORT, cards(32510, 32510), 1, counts=[0, 9]).devices
    assert [(row.margin_mib, row.total_mib > 0) for row in rows] == [(0, False), (1024, True)]
    one = rows[1]
    assert 0 <= one.weights_mib + one.kv_mib + one.compute_mib + 1024 - one.total_mib <= 2
