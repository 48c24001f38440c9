# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes in the `header` of a model."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.check_models import header_errors
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import FACTS

EXPERTS = {"expert_count": 64, "expert_used_count": 4, "expert_feed_forward_length": 1536}
COMPRESSED = {"kv_lora_rank": 512, "key_length_mla": 256, "value_length_mla": 256, "rope_dimension_count": 64}
SLIDING = {
    "sliding_window": 1024,
    "sliding_window_pattern": [True, False],
    "key_length_swa": 256,
    "value_length_swa": 256,
}
STATES = {"ssm_conv_kernel": 4, "ssm_state_size": 128, "ssm_group_count": 16, "ssm_inner_size": 4096}


def mistakes(without=(), **more):
    header = dict(FACTS, **more)
    return header_errors("m.header", {key: value for key, value in header.items() if key not in without})


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"assumed": True},
        {"tie_word_embeddings": False},
        EXPERTS,
        dict(EXPERTS, expert_used_count=64, leading_dense_block_count=1, expert_shared_feed_forward_length=1),
        COMPRESSED,
        dict(COMPRESSED, q_lora_rank=768),
        SLIDING,
        {"sliding_window": 4096},
        {"head_count_kv": [8, 0, 4]},
        dict(STATES, architecture="qwen35"),
        # Described for no plan: what its states need cannot be said.
        {"architecture": "mamba2"},
    ],
)
def test_what_is_right(header):
    assert mistakes(**header) == []


def test_a_mixture_needs_no_dense_layer():
    assert mistakes(["feed_forward_length"], **EXPERTS) == []
    (sentence,) = mistakes(["feed_forward_length"], **EXPERTS, leading_dense_block_count=1)
    assert sentence.startswith("m.header: feed_forward_length missing, ")


@pytest.mark.parametrize(
    ("whole", "key"),
    [(EXPERTS, key) for key in EXPERTS]
    + [(COMPRESSED, key) for key in ("kv_lora_rank", *list(COMPRESSED)[1:])]
    + [(SLIDING, "sliding_window"), (SLIDING, "sliding_window_pattern"), (SLIDING, "value_length_swa")]
    + [(dict(STATES, architecture="qwen3next"), key) for key in STATES],
)
def test_what_belongs_together_is_there_together(whole, key):
    (sentence,) = mistakes([key], **whole)
    assert sentence == (
        "m.header: %s missing, what the header of the GGUF file says of them is needed to estimate a plan: add them"
        % key
    )


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ({"assumed": "yes"}, "m.header.assumed: 'yes' seen, true or false is needed: correct it"),
        ({"head_count": True}, "m.header.head_count: True seen, a whole number above 0 is needed: correct it"),
        ({"head_count": [8]}, "m.header.head_count: [8] seen, a whole number above 0 is needed: correct it"),
        (
            {"head_count_kv": [8, -1]},
            "m.header.head_count_kv: [8, -1] seen, a whole number above 0, or a list of them for the layers is needed: "
            "correct it",
        ),
        (
            {"head_count_kv": []},
            "m.header.head_count_kv: [] seen, a whole number above 0, or a list of them for the layers is needed: "
            "correct it",
        ),
        ({"architecture": 4}, "m.header.architecture: 4 seen, a string is needed: put it in quotes"),
        (
            dict(SLIDING, sliding_window_pattern=6),
            "m.header.sliding_window_pattern: 6 seen, a list of true and false for each of some layers is needed: "
            "correct it",
        ),
        (
            dict(SLIDING, sliding_window_pattern=[1, 0]),
            "m.header.sliding_window_pattern: [1, 0] seen, a list of true and false for each of some layers is needed: "
            "correct it",
        ),
        (
            dict(COMPRESSED, key_length_mla=64),
            "m.header.key_length_mla: 64 seen, more than the 64 of rope_dimension_count is needed: give both parts of "
            "a key together",
        ),
        (
            dict(EXPERTS, expert_used_count=65),
            "m.header.expert_used_count: 65 seen, at most the 64 of expert_count are allowed: correct one of them",
        ),
    ],
)
def test_each_mistake_is_one_sentence(header, sentence):
    (found,) = mistakes(**header)
    assert found.startswith(sentence)
