# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes in an entry of llama_models."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.check_models import model_errors
from ansible_collections.thefermisea.llama_cluster.tests.unit.three_nodes import FACTS

HEADER = dict(FACTS, value_length=128)
FILES = ["m.gguf.part1of2", "m.gguf.part2of2"]
DIGEST = "0123456789abcdefABCDEF".ljust(64, "0")


def mistakes(quant=None, **model):
    return model_errors("m", dict({"repo": "o/r", "quants": {"Q8_0": dict({"files": FILES}, **quant or {})}}, **model))


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"parameters": 1, "header": HEADER},
        {"header": dict(HEADER, block_count=1, context_length=1)},
        {"quant": {"size": 1, "bits_per_weight": 0.01}},
        {"quant": {"sha256": [DIGEST, DIGEST]}},
        {"quant": {"files": None, "urls": ["/m.gguf"]}},
        {"quant": {"files": ["m.gguf"], "sha256": [DIGEST]}},
        {"aliases": ["M", "m:8b"]},
    ],
)
def test_what_is_right(model):
    assert mistakes(**model) == []


@pytest.mark.parametrize("key", sorted(HEADER))
def test_header_may_leave_out_what_follows_from_rest(key):
    optional = key in ("context_length", "key_length", "value_length")
    found = mistakes(header={name: value for name, value in HEADER.items() if name != key})
    assert len(found) == (0 if optional else 1)
    assert all(sentence.startswith("llama_models.m.header: %s missing, " % key) for sentence in found)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"parameters": 0}, "llama_models.m.parameters: 0 seen, more than 0 is needed"),
        ({"header": dict(HEADER, head_count=0)}, "llama_models.m.header.head_count: 0 seen, a whole number above 0 "),
        ({"header": dict(HEADER, head_count=8.5)}, "llama_models.m.header.head_count: 8.5 seen, a whole number above "),
        # LLAMA_MAX_LAYERS.
        ({"header": dict(HEADER, block_count=513)}, "llama_models.m.header.block_count: 513 seen, 1 to 512 is needed"),
        ({"quant": {"bits_per_weight": 0}}, "llama_models.m.quants.Q8_0.bits_per_weight: 0 seen, more than 0 is "),
        ({"quant": {"urls": ["/m.gguf"]}}, "llama_models.m.quants.Q8_0: both seen, either files (of repo) or urls is "),
        ({"quant": {"files": []}}, "llama_models.m.quants.Q8_0: neither seen, either files (of repo) or urls is "),
        ({"repo": None}, "llama_models.m.quants.Q8_0.files: m has no repo, the Hugging Face repository "),
        ({"quant": {"sha256": [DIGEST]}}, "llama_models.m.quants.Q8_0.sha256: 1 seen, one for each of its 2 files "),
        (
            {"quant": {"sha256": [DIGEST] * 3}},
            "llama_models.m.quants.Q8_0.sha256: 3 seen, one for each of its 2 files ",
        ),
        ({"quant": {"file": "a b.gguf"}}, "llama_models.m.quants.Q8_0.file: 'a b.gguf' is the name of the file, "),
        ({"aliases": ["M", "a b", "c d"]}, "llama_models.m.aliases: 'a b' seen, names of letters, digits and "),
        ({"repo": "just-a-name"}, "llama_models.m.repo: 'just-a-name' seen, OWNER/NAME of a Hugging Face repository "),
        ({"quants": {}}, "llama_models.m.quants: missing, a map of quant name to its files is needed: add it"),
        ({"quants": None}, "llama_models.m.quants: missing, "),
        ({"parameters": -1}, "llama_models.m.parameters: -1 seen, more than 0 is needed"),
        ({"parameters": True}, "llama_models.m.parameters: True seen, a whole number is needed"),
        ({"header": {"block_count": 1}}, "llama_models.m.header: architecture, embedding_length, "),
        ({"header": dict(HEADER, x=1)}, "llama_models.m.header.x: unknown key"),
        ({"quant": {"files": None, "urls": ["m.gguf"]}}, "llama_models.m.quants.Q8_0.urls: 'm.gguf' seen, an http, "),
        ({"quant": {"files": ["a b.gguf"]}}, "llama_models.m.quants.Q8_0.files: 'a b.gguf' is the name of the file, "),
        ({"quant": {"sha256": [DIGEST, "x"]}}, "llama_models.m.quants.Q8_0.sha256: 'x' seen, 64 hexadecimal digits "),
        ({"quant": {"size": 0}}, "llama_models.m.quants.Q8_0.size: 0 seen, more than 0 is needed"),
    ],
)
def test_each_mistake_is_one_sentence(model, sentence):
    (found,) = mistakes(**model)
    assert found.startswith(sentence)


def test_the_most_blocks_of_a_model():
    assert mistakes(header=dict(HEADER, block_count=512)) == []


def test_model_needs_map_and_name():
    assert model_errors("m", ["x"])[0].startswith("llama_models.m: a list of 1 seen, a map is needed")
    (sentence,) = model_errors("m" * 129, {})
    assert "is the name that clients use" in sentence
    assert "is the name that clients use" not in model_errors("m" * 128, {})[0]
