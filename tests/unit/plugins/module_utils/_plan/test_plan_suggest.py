# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes with which a model would fit."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import context, suggest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import devices as plan_devices
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.place import Case
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan import estimate
from ansible_collections.thefermisea.llama_cluster.tests.unit.plugins.module_utils._plan.test_plan_place import (
    BIG,
    GB,
    SHORT,
    cards,
    small,
)
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import FACTS, chat, nodes, plan

LONG = SHORT._replace(ctx_size=65536)
WITHOUT_FLASH = SHORT._replace(flash_attn=False)


def nearest(shape, settings, devices, own=None, sizes=None, counts=None):
    return suggest.nearest(Case(shape, settings, devices, 1, counts=counts), own, sizes)


def test_largest_context():
    assert suggest.largest(lambda tokens: tokens <= 5000, 65536) == 4096
    assert suggest.largest(lambda tokens: False, 65536) == 0
    assert suggest.largest(lambda tokens: True, 65536) == 64512  # less than what did not fit


@pytest.mark.parametrize(("slots", "size"), [(None, 20480), (2, 20480), (1, 20480)])
def test_context_that_is_advised_is_largest_of_slot(slots, size):
    case = Case(BIG, LONG._replace(ctx_size=65536 * (slots or 1), parallel=slots), cards(size, size, size), 1)
    words = suggest.nearest(case, 47 * GB, {"Q2_K": 27 * GB, "Q3_K": 35 * GB, "Q8_0": 77 * GB})
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
    """The next type that works over RPC; a pair counts by both."""
    monkeypatch.setattr(Case, "fits", lambda case, **changes: len({changes["cache_type_k"], changes["cache_type_v"]}))
    keys, _slash, values = cache_type.partition("/")
    case = Case(BIG, SHORT._replace(cache_type_k=keys, cache_type_v=values or keys), [], 1)
    assert suggest._smaller_cache(case) == ([f"set cache to {smaller}"] if smaller else [])


@pytest.mark.parametrize(
    ("own", "sizes", "words"),
    [
        (9 * GB, {"Q4_0": 4 * GB, "Q2_K": 2 * GB}, "choose quant Q4_0 (4.0 GB)"),
        (9 * GB, {"Q4_1": 4 * GB, "Q4_0": 4 * GB}, "choose quant Q4_0 (4.0 GB)"),
        # A size that is not known, the same size, and one that does not help.
        (9 * GB, {"Q4_0": None, "Q8_0": 9 * GB, "Q6_K": 8 * GB}, None),
        (None, {"Q4_0": 4 * GB}, None),
    ],
)
def test_largest_quant_that_fits_is_chosen(own, sizes, words):
    found = nearest(small(), WITHOUT_FLASH, cards(7700), own, sizes)
    assert [one for one in found if "quant" in one] == ([words] if words else [])


def test_more_cards_are_like_the_smallest():
    shape = small(9, 40 * GB)
    assert nearest(shape, SHORT, cards(16384, 16384)) == ["use 3 cards of 16384 MiB"]
    assert nearest(shape, SHORT, cards(12288, 20000)) == ["use 5 cards of 12288 MiB such as node2's"]
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


def test_nothing_that_does_not_fit_is_advised():
    assert nearest(BIG, SHORT, cards(3072, 3072), 47 * GB, {"Q2_K": 27 * GB}) == []


@pytest.mark.parametrize(
    "keys, build, tokens",
    [
        ({}, "b11434", 40960),
        ({"rope_scaling": "yarn", "rope_scale": 4, "yarn_orig_ctx": 32768}, "b11434", 131072),
        ({"rope_scaling": "yarn", "rope_scale": 4}, "b11434", 163840),
        # Scaling as in the header, or not by YaRN, changes no cap.
        ({"rope_scaling": "yarn", "yarn_orig_ctx": 32768}, "b11434", 40960),
        ({"rope_scaling": "linear", "rope_scale": 4}, "b11434", 40960),
        # Before b10754 (llama.cpp #28030) no scaling does.
        ({"rope_scaling": "yarn", "rope_scale": 4, "yarn_orig_ctx": 32768}, "b7772", 40960),
        ({"rope_scaling": "yarn", "override_kv": ["qwen3.context_length=int:131072"]}, "b7772", 131072),
        ({"override_kv": ["qwen3.context_length=int:131072"]}, "b11434", 131072),
        ({"override_kv": ["llama.context_length=int:131072", "qwen3.rope.freq_base=float:1e6"]}, "b11434", 40960),
    ],
)
def test_the_context_that_llama_server_caps_slots_at(keys, build, tokens):
    def refused(count):
        small_cache = {"cache_type_k": "q4_0", "cache_type_v": "q4_0", "ctx_size": None, "force_split": True}
        return plan(chat(slot_ctx_size=count, **dict(small_cache, **keys)), nodes(80000), build=build)["refused"]

    assert refused(tokens) == []
    (sentence,) = refused(tokens + 1)
    assert sentence.startswith(
        "llama_services.chat.slot_ctx_size: %d tokens a slot seen, at most %d are allowed by the header of big, "
        % (tokens + 1, tokens)
    )
    assert "override_kv: ['qwen3.context_length=int:%d']" % (tokens + 1) in sentence


def test_way_out_of_headers_context_is_one():
    """The settings in the refusal are accepted."""
    (sentence,) = plan(chat(slot_ctx_size=131072, ctx_size=None), nodes(80000))["refused"]
    assert (
        ": lower it, or set rope_scaling: yarn, rope_scale: 4, yarn_orig_ctx: 40960, or for a model that needs no "
        "scaling override_kv: " in sentence
    )
    named = {"rope_scaling": "yarn", "rope_scale": 4, "yarn_orig_ctx": 40960}
    assert plan(chat(slot_ctx_size=131072, ctx_size=None, **named), nodes(80000))["refused"] == []
    (older,) = plan(chat(slot_ctx_size=131072, ctx_size=None), nodes(80000), build="b7772")["refused"]
    assert "yarn_orig_ctx: 40960 and override_kv: ['qwen3.context_length=int:131072']" in older


def test_a_header_that_scales_positions_caps_too():
    shape = estimate.estimate(FACTS, 47 * 10**9)._replace(rope_scaling=True)
    header = {"item": {"model": "big", "quant": "Q4_K_M"}, "shape": shape.as_dict()}
    (sentence,) = plan(chat(ctx_size=65536), nodes(48000), [header])["refused"]
    assert sentence.endswith("set override_kv: ['qwen3.context_length=int:65536'], its header scales already")


def test_header_without_context_needs_override():
    without = estimate.estimate(FACTS, 10**9)._replace(context_length=0)
    assert context.way_out(without, 8192, None) == "set override_kv: ['qwen3.context_length=int:8192']"


ORDINARY = estimate.estimate(dict(FACTS, context_length=40960), 10**9)
YARN = {"rope_scaling": "yarn", "rope_scale": 2}


@pytest.mark.parametrize(("build", "tokens"), [(10753, 40960), (10754, 81920), (10755, 81920), (None, 81920)])
def test_scaling_raises_the_context_from_a_build_on(build, tokens):
    assert context.allowed_context(YARN, ORDINARY, build) == tokens
    assert ("and override_kv" in context.way_out(ORDINARY, 81920, build)) is (tokens == 40960)


@pytest.mark.parametrize(
    ("service", "tokens"),
    [
        (dict(YARN, rope_scale=1.5), 61440),
        (dict(YARN, rope_scale=0.5), 20480),
        (dict(YARN, rope_scale=1), 40960),
        (dict(YARN, yarn_orig_ctx=1000), 2000),
        ({"override_kv": ["qwen3.context_length=int:1", "qwen3.context_length=int:7"]}, 7),
        ({"override_kv": ["qwen3.context_length=int:-1"]}, 40960),
        ({"override_kv": None}, 40960),
        (dict(YARN, override_kv=["qwen3.context_length=int:1000"]), 2000),
    ],
)
def test_what_a_slot_may_have(service, tokens):
    assert context.allowed_context(service, ORDINARY, None) == tokens


@pytest.mark.parametrize(("tokens", "scale"), [(40961, 2), (81920, 2), (81921, 3)])
def test_scale_that_is_named_is_smallest_whole_one(tokens, scale):
    assert "rope_scale: %d," % scale in context.way_out(ORDINARY, tokens, None)
