# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much context a slot may have, and the way to more."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan import context
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._cluster_plan import estimate
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import FACTS, chat, nodes, plan


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
