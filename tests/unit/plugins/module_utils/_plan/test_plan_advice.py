# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The searches and the words of advice, where what fits is known."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model.memory import settings_of
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import advice
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices as plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import place as plan_place
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan import estimate

GB = 10**9


@pytest.mark.parametrize("first", range(2, 10))
def test_the_fewest_cards_that_fit(first):
    asked = []

    def fits(count):
        asked.append(count)
        return count >= first

    assert advice._fewest(fits, range(3, 9)) == (max(3, first) if first < 9 else 0)
    assert set(asked) <= set(range(3, 9))
    assert advice._fewest(fits, range(3, 3)) == 0


@pytest.mark.parametrize("wanted", [1, 1024, 1025, 2048, 2049, 10000])
@pytest.mark.parametrize("steps", range(11))
def test_the_largest_context_that_fits_is_less_than_the_one_that_does_not(wanted, steps):
    below = (wanted - 1) // 1024
    assert advice.largest(lambda tokens: tokens <= steps * 1024, wanted) == min(steps, below) * 1024


@pytest.mark.parametrize(
    ("quant", "most", "words"),
    [
        ("F16", 1.0, "Q8_0 (about 8.5 GB)"),
        ("F16", 0.53, "Q6_K (about 6.6 GB)"),
        ("Q8_0", 1.0, "Q6_K (about 12.3 GB)"),
        ("Q4_K_M", 1.0, "Q3_K_M (about 12.9 GB)"),
        ("Q8_0", 0.45, None),
        ("Q3_K_M", 1.0, None),
        ("mine", 1.0, None),
        ("", 1.0, None),
    ],
)
def test_the_largest_quant_that_is_smaller_is_offered(quant, most, words):
    found = advice._new_quant(lambda factor: factor <= most, quant, 16 * GB)
    assert found == (["add a quant such as " + words] if words else [])


def smaller_cache(cache_type, fitting, most, tokens=0, wanted=65536):
    """_smaller_cache() where some types fit, and with the smallest one so many tokens do."""

    def fits(tokens=None, **types):
        assert len(set(types.values())) == 1
        (only,) = set(types.values())
        return only in fitting if tokens is None else only == "q4_0" and tokens <= most

    keys, _slash, values = cache_type.partition("/")
    settings = settings_of(cache_type_k=keys, cache_type_v=values or keys)
    return advice._smaller_cache(fits, settings, wanted, tokens)


def test_the_next_type_of_cache_that_fits_is_advised():
    assert smaller_cache("f16", ("q8_0", "q4_0"), 0) == ["set cache to q8_0"]
    assert smaller_cache("f16", ("q4_0",), 0) == ["set cache to q4_0"]
    assert smaller_cache("q8_0", ("q8_0", "q4_0"), 0) == ["set cache to q4_0"]
    assert smaller_cache("q4_0", ("q4_0",), 65536) == [], "there is no smaller one"


@pytest.mark.parametrize(
    ("cache_type", "smaller"),
    [
        ("f32", "f16"), ("bf16", "q8_0"), ("q5_1", "q4_0"), ("q4_1", "q4_0"), ("iq4_nl", None), ("q8_0/q4_0", "q4_0"),
        ("f16/q4_0", "q8_0"), ("q4_0/q4_1", "q4_0"),
    ],
)  # fmt: skip
def test_a_type_is_smaller_by_its_bytes(cache_type, smaller):
    """Of those that work over RPC; a pair counts by both."""
    words = ["set cache to %s" % smaller] if smaller else []
    assert smaller_cache(cache_type, ("f16", "q8_0", "q4_0"), 0) == words


@pytest.mark.parametrize(("most", "tokens", "told"), [(8192, 4096, True), (4096, 4096, False), (0, 0, False)])
def test_two_changes_are_advised_where_they_leave_more_context_than_one(most, tokens, told):
    words = "lower slot_ctx_size to %d and set cache to q4_0" % most
    assert smaller_cache("f16", (), most, tokens) == [words] * told


FACTS = {
    "architecture": "qwen3",
    "block_count": 8,
    "embedding_length": 1024,
    "feed_forward_length": 4096,
    "head_count": 16,
    "head_count_kv": 8,
    "key_length": 64,
    "vocab_size": 1000,
    "context_length": 1 << 20,
}
SHORT = settings_of(build=11434, ctx_size=4096, parallel=1)


def cards(*sizes):
    return [
        plan_devices.of_card("node%d" % number, 0, {"memory_mib": size}, 1024) for number, size in enumerate(sizes, 1)
    ]


def test_a_model_of_another_quant_has_other_weights_and_the_same_caches():
    shape = estimate.estimate(FACTS, 9 * GB)
    half = advice.scaled(shape, 0.5)
    assert advice.weight(shape) == pytest.approx(9 * GB, rel=1e-4)
    assert advice.weight(half) == pytest.approx(4.5 * GB, rel=1e-4)
    assert half.block_bytes == [size // 2 for size in shape.block_bytes]
    assert (half.input_bytes, half.output_bytes) == (shape.input_bytes // 2, shape.output_bytes // 2)
    assert half._replace(block_bytes=[], input_bytes=0, output_bytes=0) == shape._replace(
        block_bytes=[], input_bytes=0, output_bytes=0
    )


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"": 9 * GB, "Q4_0": 4 * GB, "Q2_K": 2 * GB}, "choose quant Q4_0 (4.0 GB)"),
        ({"": 9 * GB, "Q4_1": 4 * GB, "Q4_0": 4 * GB}, "choose quant Q4_0 (4.0 GB)"),
        # Of no size that is known, of the same, and of one that is as little of use.
        ({"": 9 * GB, "Q4_0": None, "Q8_0": 9 * GB, "Q6_K": 8 * GB}, None),
        ({"": None, "Q4_0": 4 * GB}, None),
    ],
)
def test_the_largest_of_the_quants_that_fit_is_chosen(sizes, words):
    shape = estimate.estimate(FACTS, 9 * GB)
    found = advice.nearest(shape, SHORT, cards(7000), 1, "mine", sizes)
    assert [one for one in found if "quant" in one] == ([words] if words else [])


def test_more_cards_are_like_the_smallest_of_those_that_there_are():
    shape = estimate.estimate(FACTS, 40 * GB)
    assert advice.nearest(shape, SHORT, cards(16384, 16384), 1) == ["use 3 cards of 16384 MiB"]
    assert advice.nearest(shape, SHORT, cards(12288, 20000), 1) == ["use 4 cards of 12288 MiB such as node1's"]
    assert advice.nearest(shape, SHORT, cards(16384, 16384), 1, more=False) == []
    assert advice.nearest(shape, SHORT, cards(16384, 16384), 1, counts=[4, 4]) == []
    mains = [plan_devices.main_memory("mem", {"memory_mib": 16384}, 1024)]
    assert advice.nearest(shape, SHORT, mains, 1) == []
    # What somebody else has of it now is not what such a card has not.
    used = [card._replace(others_mib=15000, claimed_mib=100) for card in cards(16384)] + cards(16384)
    assert advice.nearest(shape, SHORT, used, 1) == ["use 3 cards of 16384 MiB"]


def test_a_card_cannot_hold_less_than_a_layer():
    """Two blocks are on two cards at most, whatever is left of the memory."""
    shape = estimate.estimate(dict(FACTS, block_count=2), 40 * GB)
    assert advice.nearest(shape, SHORT, cards(16384, 16384), 1) == []
    assert advice.nearest(shape, SHORT, cards(30000), 1) == ["use 2 cards of 30000 MiB"]


@pytest.mark.parametrize("parallel", [None, 1, 3])
def test_the_context_that_is_advised_is_that_of_each_slot(parallel):
    shape, slots = estimate.estimate(FACTS, 9 * GB), parallel or 1
    wanted = SHORT._replace(ctx_size=(1 << 20) * slots, parallel=parallel)

    def fits(tokens):
        return plan_place.plan(shape, wanted._replace(ctx_size=tokens * slots), cards(16384), 1).fits

    words = advice.nearest(shape, wanted, cards(16384), 1)[0]
    tokens = int(words.split()[-1])
    assert words == "lower slot_ctx_size to %d" % tokens
    assert fits(tokens) and not fits(tokens + 1024)


@pytest.mark.parametrize("parallel", [None, 2])
def test_fewer_cards_are_advised_with_the_context_that_they_hold(parallel):
    """Where nothing else would do."""
    shape, slots = estimate.estimate(FACTS, 40 * GB), parallel or 1
    wanted = SHORT._replace(ctx_size=(1 << 20) * slots, parallel=parallel, flash_attn=False)

    def fits(count, tokens):
        return plan_place.plan(shape, wanted._replace(ctx_size=tokens * slots), cards(*[12288] * count), 1).fits

    found = advice.nearest(shape, wanted, cards(12288), 1)[-1]
    words = found.split()
    count, tokens = int(words[1]), int(words[-1])
    assert found.startswith("use %d " % count) and found.endswith(
        "cards of 12288 MiB and lower slot_ctx_size to %d" % tokens
    )
    assert fits(count, tokens) and not fits(count, tokens + 1024) and not fits(count - 1, 1024)
