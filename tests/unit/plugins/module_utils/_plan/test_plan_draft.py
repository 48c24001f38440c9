# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A draft model beside the one that it drafts for."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model.memory import (
    draft_counts,
    kv_bytes,
    leaving,
    place,
    settings_of,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices as plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.place import plan
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture, model_files

SETTINGS = settings_of(build=11434, ctx_size=8192, parallel=2, cache_type_k="q8_0", cache_type_v="q8_0")
F16 = SETTINGS._replace(cache_type_k="f16", cache_type_v="f16")
BIG, SMALL = mixture.shape_of(model_files.qwen3_32b), mixture.shape_of(model_files.qwen3_30b)
BOTH = BIG._replace(draft=SMALL)


def cards(*sizes):
    return [plan_devices.of_card("node1", index, {"memory_mib": size}, 1024) for index, size in enumerate(sizes)]


def test_draft_and_its_f16_cache_share_a_card():
    single, both = (place(shape, SETTINGS, [BIG.block_count], 1) for shape in (BIG, BOTH))
    own = place(SMALL, F16, [SMALL.block_count], 1)
    (one,), (card,), (draft,) = single.devices, both.devices, own.devices
    assert card.weights == one.weights + sum(SMALL.block_bytes) + SMALL.output_bytes
    assert card.kv == one.kv + sum(kv_bytes(SMALL, F16)) and card.compute == one.compute + draft.compute
    assert both.host.weights == single.host.weights + SMALL.input_bytes
    assert (card.layers, card.first_layer, card.last_layer) == (64, 0, 63)


def test_main_memory_holds_model_and_draft():
    single, both = (place(shape, SETTINGS, [BIG.block_count], 1, main=True) for shape in (BIG, BOTH))
    own = place(SMALL, F16, [SMALL.block_count], 1, main=True)
    (one,), (whole,), (draft,) = single.devices, both.devices, own.devices
    assert whole.weights == one.weights + draft.weights and whole.compute == one.compute + draft.compute
    assert draft.weights == sum(SMALL.block_bytes) + SMALL.output_bytes + SMALL.input_bytes
    assert both.host.total() == 0


@pytest.mark.parametrize(
    ("blocks", "counts", "found"),
    [
        # SmolLM2 and itself, --tensor-split 12,7,12: what b11434 logged.
        (30, [12, 7, 11], [12, 7, 11]),
        (30, [30], [30]),
        (24, [0, 64], [0, 24]),
        (1, [20, 20], [1, 0]),
        # llama.cpp's own words: the first device whose part of all is more than the layer's.
        (7, [40, 40], [4, 3]),
        (9, [1, 39], [1, 8]),
    ],
)
def test_several_cards_share_it_as_they_share_model(blocks, counts, found):
    assert draft_counts(blocks, counts) == found


def test_model_may_not_fit_with_draft():
    needed = plan(BIG, SETTINGS, cards(80000), 1).devices[0].total_mib
    with_draft = plan(BOTH, SETTINGS, cards(80000), 1).devices[0].total_mib
    assert with_draft > needed + 15000
    assert plan(BIG, SETTINGS, cards(needed), 1).fits and not plan(BOTH, SETTINGS, cards(needed), 1).fits
    assert plan(BOTH, SETTINGS, cards(with_draft), 1).fits and not plan(BOTH, SETTINGS, cards(with_draft - 1), 1).fits


def test_a_split_leaves_room_for_it():
    two = plan(BOTH, SETTINGS, cards(21000, 24000), 2)
    assert two.fits and two.topology == "split" and sum(two.counts) == 64
    assert plan(BIG, SETTINGS, cards(13000, 13000), 2).fits and not plan(BOTH, SETTINGS, cards(13000, 13000), 2).fits


def test_draft_stays_on_card_beside_main_memory():
    left = place(leaving(BOTH, 40), SETTINGS, [24], 1)
    card = place(leaving(BIG, 40), SETTINGS, [24], 1).devices[0]
    assert left.devices[0].weights == card.weights + sum(SMALL.block_bytes) + SMALL.output_bytes
