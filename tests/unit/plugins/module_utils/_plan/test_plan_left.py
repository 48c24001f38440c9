# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layers in the head's main memory beside its cards: what lies where, as --n-gpu-layers has it."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model.memory import (
    kv_bytes,
    leaving,
    place,
    settings_of,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices as plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.place import Case, plan
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.suggest import nearest, scaled
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture, model_files

MIB = 1 << 20
SETTINGS = settings_of(build=11434, ctx_size=32768, parallel=1)
DENSE = mixture.shape_of(model_files.qwen2_72b)
MAIN = plan_devices.main_memory("node1", {"memory_mib": 257000}, 1024)


def cards(*sizes):
    return [plan_devices.of_card("node1", index, {"memory_mib": size}, 1024) for index, size in enumerate(sizes)]


def layer_of(item, layers, on_cards):
    """llama.cpp's own words: where an item lies, the output being the last one."""
    first = max(layers + 1 - on_cards, 0)
    return "main" if item < first else "card"


@pytest.mark.parametrize("number", [2, 3, 41, 80, 81])
def test_last_layers_lie_on_card_with_output(number):
    shape = leaving(DENSE, DENSE.block_count + 1 - number)
    placed, caches = place(shape, SETTINGS, [shape.block_count], 1), kv_bytes(DENSE, SETTINGS)
    on_card = [item for item in range(80) if layer_of(item, 80, number) == "card"]
    in_main = [item for item in range(80) if item not in on_card]
    assert layer_of(80, 80, number) == "card"
    card, host = placed.devices[0], placed.host
    assert (card.layers, card.first_layer, card.last_layer) == (number - 1, on_card[0], 79)
    assert card.weights == sum(DENSE.block_bytes[item] for item in on_card) + DENSE.output_bytes
    assert card.kv == sum(caches[item] for item in on_card)
    assert host.layers == len(in_main) and host.kv == sum(caches[item] for item in in_main)
    assert host.weights == DENSE.input_bytes + sum(DENSE.block_bytes[item] for item in in_main)


@pytest.mark.parametrize(
    ("model", "number", "devices", "main"),
    [
        (model_files.qwen2_72b, 40, [(35949, 2652)], (37728, 2788)),
        (model_files.gemma3_27b, 31, [(13981, 839)], (14818, 852)),
        (model_files.gemma3_27b, 62, [(12971, 845), (13981, 839)], (1846, 6)),
    ],
)
def test_it_is_what_llama_fit_params_said(model, number, devices, main):
    """Printed by b11434 over RPC servers, MiB of weights and KV cache; it cuts off what is less than one."""
    whole, known = mixture.shape_of(model), SETTINGS._replace(cache_type_k="q8_0", cache_type_v="q8_0")
    shape = leaving(whole, whole.block_count + 1 - number)
    counts = [shape.block_count // len(devices)] * len(devices)
    counts[0] += shape.block_count - sum(counts)
    placed = place(shape, known, counts, 0)
    assert [(share.weights // MIB, share.kv // MIB) for share in placed.devices] == devices
    assert (placed.host.weights // MIB, placed.host.kv // MIB) == main


def test_windows_go_with_their_layers():
    """Gemma 3 attends to everything in every sixth layer."""
    gemma = mixture.shape_of(model_files.gemma3_27b)
    caches = kv_bytes(gemma, SETTINGS)
    shape = leaving(gemma, 7)
    assert kv_bytes(shape, SETTINGS) == caches[7:] and kv_bytes(shape.left, SETTINGS) == caches[:7]
    assert len(set(caches[:7])) == 2


def test_card_copies_product_of_layer_in_main_memory():
    """And the cache of a layer; the head has a buffer for the layers that it keeps. There is no pipeline."""
    whole, some = place(DENSE, SETTINGS, [80], 1), place(leaving(DENSE, 40), SETTINGS, [40], 1)
    copied = max(DENSE.block_bytes[:40]) + kv_bytes(DENSE, SETTINGS)[0]
    assert some.devices[0].compute == whole.devices[0].compute + copied
    assert some.host.compute > whole.host.compute
    two, pipeline = place(leaving(DENSE, 40), SETTINGS, [20, 20], 2), place(DENSE, SETTINGS, [40, 40], 2)
    assert two.devices[1].compute < pipeline.devices[1].compute
    moe = mixture.SHAPE
    product = max(moe.expert_copy, moe.block_bytes[0] - moe.expert_bytes[0]) + kv_bytes(moe, SETTINGS)[0]
    single = place(moe, SETTINGS, [94], 1).devices[0].compute
    assert place(leaving(moe, 90), SETTINGS, [4], 1).devices[0].compute == single + product


def test_main_memory_row_must_hold_layers():
    one = plan(leaving(DENSE, 60), SETTINGS, cards(32510), 1, main=MAIN)
    card, main = one.devices
    assert one.fits and (card.first_layer, card.last_layer) == (60, 79)
    assert (main.device, main.layers, main.first_layer, main.last_layer) == ("main", 60, 0, 59)
    assert main.kv_mib == -(-sum(kv_bytes(DENSE, SETTINGS)[:60]) // MIB) and main.margin_mib == 1024
    assert one.reason == "it fits node1 GPU0, with the first 60 layers in main memory"
    small = MAIN._replace(total_mib=main.total_mib)
    assert plan(leaving(DENSE, 60), SETTINGS, cards(32510), 1, main=small).fits
    small = MAIN._replace(total_mib=main.total_mib - 1)
    assert not plan(leaving(DENSE, 60), SETTINGS, cards(32510), 1, main=small).fits


def test_several_cards_split_the_others():
    """--tensor-split counts what lies on cards: as many items as --n-gpu-layers."""
    one = plan(leaving(DENSE, 30), SETTINGS, cards(32510, 32510), 2, main=MAIN)
    assert one.topology == "split" and sum(one.counts) == 50 and sum(one.tensor_split) == 51
    assert [(row.first_layer, row.last_layer) for row in one.devices][2] == (0, 29)
    assert one.devices[0].first_layer == 30 and one.devices[1].last_layer == 79
    few = plan(leaving(DENSE, 75), SETTINGS, cards(32510, 32510), 2, main=MAIN)
    assert few.counts == [5, 0], "the first card works on main memory, so it has the layers too"


def test_advice_counts_main_memory_and_no_other_cards():
    shape = leaving(DENSE, 48)
    words = nearest(Case(shape, SETTINGS, cards(32510), 1, MAIN))
    assert words and "cards" not in " ".join(words) and "cpu_moe" not in " ".join(words)
    half = scaled(shape, 0.5)
    assert sum(half.left.block_bytes) == pytest.approx(sum(shape.left.block_bytes) / 2, rel=1e-6)
