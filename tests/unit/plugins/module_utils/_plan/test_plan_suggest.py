# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would fit in place of what does not."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices as plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import suggest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.place import Case
from ansible_collections.thefermisea.llama_cluster.tests.unit.plugins.module_utils._plan.test_plan_place import (
    BIG,
    GB,
    SHORT,
    cards,
    small,
)

LONG = SHORT._replace(ctx_size=65536)
WITHOUT_FLASH = SHORT._replace(flash_attn=False)


def nearest(shape, settings, devices, quant="", sizes=None, more=True, counts=None):
    return suggest.nearest(Case(shape, settings, devices, 1, counts=counts), quant, sizes, more)


def test_largest_context():
    assert suggest.largest(lambda tokens: tokens <= 5000, 65536) == 4096
    assert suggest.largest(lambda tokens: False, 65536) == 0
    assert suggest.largest(lambda tokens: True, 65536) == 64512  # less than what did not fit


def test_scaled_model_has_other_weights_and_same_caches():
    shape, bare = small(), {"block_bytes": [], "input_bytes": 0, "output_bytes": 0}
    half = suggest.scaled(shape, 0.5)
    assert suggest.weight(half) == pytest.approx(suggest.weight(shape) / 2, rel=1e-4)
    assert half.block_bytes == [size // 2 for size in shape.block_bytes]
    assert half._replace(**bare) == shape._replace(**bare)


@pytest.mark.parametrize(("slots", "size"), [(None, 20480), (2, 20480), (1, 20480)])
def test_context_that_is_advised_is_the_largest_of_a_slot(slots, size):
    case = Case(BIG, LONG._replace(ctx_size=65536 * (slots or 1), parallel=slots), cards(size, size, size), 1)
    words = suggest.nearest(case, "Q4_K_M", {"": 47 * GB, "Q2_K": 27 * GB, "Q3_K": 35 * GB, "Q8_0": 77 * GB})
    tokens = int(words[0].split()[-1])
    assert words[0] == "lower slot_ctx_size to %d" % tokens and tokens % 1024 == 0
    assert case.fits(tokens) and not case.fits(tokens + 1024)
    if slots != 2:
        assert words[1:] == ["set cache to q8_0", "choose quant Q3_K (35.0 GB)", "use 4 cards of 20480 MiB"]


@pytest.mark.parametrize(
    ("cache_type", "smaller"),
    [
        ("f32", "f16"), ("f16", "q8_0"), ("bf16", "q8_0"), ("q8_0", "q4_0"), ("q4_0", None), ("q5_1", "q4_0"),
        ("iq4_nl", None), ("q8_0/q4_0", "q4_0"), ("f16/q4_0", "q8_0"), ("q4_0/q4_1", "q4_0"),
    ],
)  # fmt: skip
def test_cache_is_smaller_by_its_bytes(monkeypatch, cache_type, smaller):
    """Of those that work over RPC; a pair counts by both."""
    monkeypatch.setattr(Case, "fits", lambda case, **changes: len({changes["cache_type_k"], changes["cache_type_v"]}))
    keys, _slash, values = cache_type.partition("/")
    case = Case(BIG, SHORT._replace(cache_type_k=keys, cache_type_v=values or keys), [], 1)
    assert suggest._smaller_cache(case) == ([f"set cache to {smaller}"] if smaller else [])


@pytest.mark.parametrize(
    ("quant", "sizes", "words"),
    [
        ("mine", {"": 9 * GB, "Q4_0": 4 * GB, "Q2_K": 2 * GB}, "choose quant Q4_0 (4.0 GB)"),
        ("mine", {"": 9 * GB, "Q4_1": 4 * GB, "Q4_0": 4 * GB}, "choose quant Q4_0 (4.0 GB)"),
        # A size that is not known, the same size, and one that does not help.
        ("mine", {"": 9 * GB, "Q4_0": None, "Q8_0": 9 * GB, "Q6_K": 8 * GB}, None),
        ("mine", {"": None, "Q4_0": 4 * GB}, None),
        ("Q8_0", {"": 9 * GB}, "add a quant such as Q5_K_M (about 6.0 GB)"),
        ("q3_k_m", {"": 9 * GB}, None),
        ("", None, None),
    ],
)
def test_largest_quant_that_fits_is_chosen(quant, sizes, words):
    found = nearest(small(), WITHOUT_FLASH, cards(7700), quant, sizes, False)
    assert [one for one in found if "quant" in one] == ([words] if words else [])


def test_more_cards_are_like_the_smallest():
    shape = small(9, 40 * GB)
    assert nearest(shape, SHORT, cards(16384, 16384)) == ["use 3 cards of 16384 MiB"]
    assert nearest(shape, SHORT, cards(12288, 20000)) == ["use 5 cards of 12288 MiB such as node2's"]
    assert nearest(shape, SHORT, cards(16384, 16384), more=False) == []
    assert nearest(shape, SHORT, cards(16384, 16384), counts=[5, 4]) == []
    assert nearest(shape, SHORT, [plan_devices.main_memory("mem", {"memory_mib": 16384}, 1024)]) == []
    used = [card._replace(others_mib=15000, claimed_mib=100) for card in cards(16384)] + cards(16384)
    assert nearest(shape, SHORT, used) == ["use 3 cards of 16384 MiB"]


@pytest.mark.parametrize(
    ("blocks", "size", "words"),
    [
        (75, 24576, ["use 15 cards of 24576 MiB"]),
        (76, 24576, []),
        (2, 5000, []),
        (2, 6144, ["use 2 cards of 6144 MiB"]),
    ],
)
def test_cards_are_no_more_than_layers_or_backends(blocks, size, words):
    """llama.cpp schedules 16 backends, one of them the CPU. Five of these blocks fit a card of 24 GB."""
    assert nearest(small(blocks, blocks * 9 * GB // 2), SHORT, cards(*[size] * (2 if blocks > 2 else 1))) == words


def test_margin_that_leaves_nothing_of_a_card_is_said():
    words = nearest(BIG, SHORT, cards(32510, 24576, margin_mib=40000), "Q4_K_M", {"": 47 * GB})
    assert words == ["lower preflight_margin_mib, its 40000 MiB leave nothing of the 24576 MiB of GPU0 of node1"]
    first, *others = cards(20480, 20480, 20480)
    assert "margin" not in " ".join(nearest(BIG, SHORT, [first._replace(margin_mib=20479), *others]))


def test_nothing_that_does_not_fit_is_advised():
    assert nearest(BIG, SHORT, cards(3072, 3072), "Q4_K_M", {"": 47 * GB, "Q2_K": 27 * GB}) == []


@pytest.mark.parametrize(
    ("quant", "bits"),
    [
        # Llama 2 7B, of the README of llama-quantize.
        *(("Q6_K", 6.56), ("Q5_K_M", 5.68), ("Q5_K_S", 5.52), ("Q4_K_M", 4.84), ("Q4_K_S", 4.58), ("Q3_K_M", 3.91)),
        # Bytes of a block of 32 weights.
        *(("F16", 64 * 8 / 32), ("BF16", 64 * 8 / 32), ("Q8_0", 34 * 8 / 32), ("Q4_0", 18 * 8 / 32)),
    ],
)
def test_bits_of_a_weight_are_those_of_published_models(quant, bits):
    assert suggest.BITS[quant] == pytest.approx(bits, rel=0.02)
