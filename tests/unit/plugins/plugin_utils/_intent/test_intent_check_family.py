# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes in the settings of a family of models, in the entry of a service or of its model."""

import datetime

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent.check_models import model_errors
from ansible_collections.thefermisea.llama_cluster.tests.unit.intents import HOSTVARS, MODELS, changed, mistakes


def reported(settings=None, model=None, version=None):
    """The mistakes of an inventory with these settings and this release."""
    hostvars = {
        host: dict(facts, llama_builds={"default": {"version": version or "b11434"}})
        for host, facts in HOSTVARS.items()
    }
    return mistakes(changed(**settings or {}), {"big": dict(MODELS["big"], **model or {})}, hostvars=hostvars)


def judge(found, sentence):
    """sentence: the start of the only mistake of the service, None for no mistake."""
    assert len(found) == (sentence is not None), found
    assert all(one.startswith("llama_services.reasoning." + sentence) for one in found)


def single(**settings):
    """A service of one node with these settings."""
    return reported(dict(settings, workers=None, rpc_port=None, tensor_split="auto"))


SOUND = [
    {"jinja": True},
    {"jinja": False, "chat_template": "llama3"},
    {"chat_template": "chatml"},
    {"chat_template": "templates/qwen.jinja", "jinja": True},
    {"chat_template_kwargs": {"enable_thinking": False, "depth": [1, {"a": None}]}},
    {"chat_template_kwargs": {}},
    {"reasoning": "off"},
    {"reasoning": "on", "reasoning_budget": 512, "reasoning_format": "none"},
    {"reasoning": "auto", "reasoning_budget": 0, "chat_template_kwargs": {"enable_thinking": True}},
    {"reasoning": "auto", "jinja": False},
    {"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0.05, "repeat_penalty": 1.1, "presence_penalty": -2},
    {"swa_full": True},
    {"swa_full": False},
    {"embeddings": False},
    {"embeddings": True, "pooling": "mean"},
    {"embeddings": True},
    {"override_kv": ["a=int:1"], "rope_scaling": "yarn", "rope_scale": 2, "yarn_orig_ctx": 32768},
]
WRONG = [
    ({"chat_template": "llama3"}, "chat_template: 'llama3' seen with Jinja, which takes the name of a built-in "),
    ({"chat_template": "llama33", "jinja": False}, "chat_template: 'llama33' seen, the path of a file (with a slash, "),
    ({"chat_template": "a.jinja", "jinja": False}, "chat_template: a file seen with jinja false, Jinja is needed "),
    ({"chat_template": " x"}, "chat_template: ' x' seen, the name of a built-in template, or the path of a file is "),
    ({"chat_template_kwargs": {"a": 1}, "jinja": False}, "chat_template_kwargs: seen with jinja false, Jinja is "),
    ({"reasoning": "off", "jinja": False}, "reasoning: seen with jinja false, Jinja is needed for it: drop one "),
    ({"chat_template_kwargs": [1]}, "chat_template_kwargs: a list of 1 seen, a map is needed: write its keys "),
    (
        {"chat_template_kwargs": {"a": [{"b": datetime.date(2026, 1, 1)}]}},
        "chat_template_kwargs: datetime.date(2026, 1, 1) seen in it, texts, numbers, true, false, lists and maps are ",
    ),
    ({"chat_template_kwargs": {"a": float("nan")}}, "chat_template_kwargs: nan seen in it, texts, numbers, true, "),
    ({"reasoning": "off", "reasoning_budget": 0}, "reasoning_budget: 0 seen with reasoning off, no budget is needed "),
    (
        {"reasoning": "on", "chat_template_kwargs": {"enable_thinking": True}},
        "chat_template_kwargs: enable_thinking seen with reasoning on, which sets it, one of both is needed: drop ",
    ),
    ({"reasoning": False}, 'reasoning: False seen, one of on, off, auto is needed: put it in quotes, as in "off", '),
    ({"reasoning_budget": -2}, "reasoning_budget: -2 seen, at least -1 is needed: raise it or remove the key"),
    ({"jinja": "no"}, "jinja: 'no' seen, true or false is needed: write it without quotes"),
    ({"top_p": 1.5}, "top_p: 1.5 seen, 0 to 1 is needed: choose another number"),
    ({"top_k": -1}, "top_k: -1 seen, at least 0 is needed: raise it or remove the key"),
    ({"temperature": -0.1}, "temperature: -0.1 seen, 0 to 5 is needed: choose another number"),
    ({"presence_penalty": 2.1}, "presence_penalty: 2.1 seen, -2 to 2 is needed: choose another number"),
    ({"pooling": "mean"}, "pooling: seen without embeddings, which it is for: add embeddings: true or drop the key"),
    ({"pooling": "mean", "embeddings": False}, "pooling: seen without embeddings, which it is for: add embeddings: "),
    ({"pooling": "max", "embeddings": True}, "pooling: 'max' seen, one of mean, cls, last is needed"),
    # llama-server has no answer to /v1/embeddings for it.
    ({"pooling": "none", "embeddings": True}, "pooling: 'none' seen, one of mean, cls, last is needed"),
    ({"yarn_orig_ctx": 32768}, "yarn_orig_ctx: seen without rope_scaling yarn, which it is for: add that or drop "),
]


@pytest.mark.parametrize("settings", SOUND)
def test_settings_that_go_together_in_either_place(settings):
    assert reported(settings) == reported(model=settings) == []


@pytest.mark.parametrize(("settings", "sentence"), WRONG)
def test_mistake_is_reported_for_its_entry(settings, sentence):
    for found, entry in (
        (reported(settings), "llama_services.reasoning."),
        (reported(model=settings), "llama_models.big."),
    ):
        assert len(found) == 1 and found[0].startswith(entry + sentence), found
        assert "\n" not in found[0]


YARN = {"rope_scaling": "yarn", "yarn_orig_ctx": 32768}


@pytest.mark.parametrize(
    ("service", "model", "sentence"),
    [
        ({"reasoning": "auto"}, {"reasoning": "off", "reasoning_budget": 9}, None),
        ({"reasoning": "off"}, {"reasoning": "on", "reasoning_budget": 4096}, None),
        ({"reasoning_budget": 512}, {"reasoning": "off"}, None),
        ({"reasoning": "off"}, {"chat_template_kwargs": {"enable_thinking": True}}, None),
        ({"chat_template_kwargs": {"enable_thinking": True}}, {"reasoning": "on"}, None),
        ({"rope_scaling": "none"}, YARN, None),
        ({"rope_scaling": "linear", "rope_scale": 2}, YARN, None),
        ({"jinja": False}, {"chat_template_kwargs": {"a": 1}, "reasoning": "off"}, None),
        ({"embeddings": False}, {"embeddings": True, "pooling": "mean"}, None),
        # A mistake of the service itself stays one.
        (
            {"reasoning": "off", "reasoning_budget": 9},
            {"reasoning": "on"},
            "reasoning_budget: 9 seen with reasoning off",
        ),
        ({"chat_template": "llama3"}, {"jinja": True}, "chat_template: 'llama3' seen with Jinja"),
    ],
)
def test_service_replaces_what_its_model_says(service, model, sentence):
    judge(reported(service, model), sentence)


def test_mistake_of_the_model_names_its_entry():
    (sentence,) = reported({"rope_scale": 2}, {"yarn_orig_ctx": 32768})
    assert sentence.startswith("llama_models.big.yarn_orig_ctx: seen without rope_scaling yarn")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ubatch_size": 2048}, None),
        ({"ubatch_size": 8192, "batch_size": 8192}, None),
        ({"ubatch_size": 2049}, None),
        (
            {"ubatch_size": 2049, "batch_size": 2048},
            "ubatch_size: micro-batches of 2049 tokens seen with embeddings and batches of 2048, at most that is "
            "allowed, since no text is longer than either: write batch_size: 2049",
        ),
        ({"batch_size": 256}, "batch_size: micro-batches of 512 tokens seen with embeddings and batches of 256, "),
        ({"batch_size": 256, "embeddings": False}, None),
    ],
)
def test_a_text_is_as_long_as_both_batches(settings, sentence):
    judge(single(**dict({"embeddings": True}, **settings)), sentence)


def test_mistake_of_model_is_reported_once():
    services = changed()
    services["other"] = dict(services["reasoning"], port=8001, rpc_port=50053, primary=False)
    models = {"big": dict(MODELS["big"], reasoning="off", reasoning_budget=9)}
    assert len(mistakes(services, models)) == 1


def test_service_key_in_model_is_refused():
    (sentence,) = model_errors("big", dict(MODELS["big"], cache="q8_0"))
    assert sentence.startswith("llama_models.big.cache: unknown key")
    assert model_errors("big", dict(MODELS["big"], top_k=None, reasoning=None)) == []


@pytest.mark.parametrize(
    ("version", "settings", "sentence"),
    [
        ("b7772", {"reasoning": "off"}, None),
        ("b7772", {"reasoning_budget": 0}, None),
        ("b7772", {"reasoning_budget": -1}, None),
        (
            "b7772",
            {"reasoning": "on"},
            "reasoning: on seen with build b7772, which knows auto, off: choose one of these or another ",
        ),
        ("b8691", {"reasoning_budget": 1}, "reasoning_budget: 1 seen with build b8691, which knows 0 and "),
        ("b8692", {"reasoning_budget": 1, "reasoning": "on"}, None),
        (
            "b11433",
            {"chat_template": "granite-4.0", "jinja": False},
            "chat_template: 'granite-4.0' seen, the path of a file (with a slash, or ending in .jinja) or a built-in "
            "template of b11433 is needed, did you mean granite?",
        ),
        ("b11434", {"chat_template": "granite-4.0", "jinja": False}, None),
        ("b10114", {"load_mode": "mlock"}, "load_mode: mlock seen with build b10114, which knows auto, "),
    ],
)
def test_what_a_release_does_not_know(version, settings, sentence):
    judge(reported(settings, version=version), sentence)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"cache": "q8_0"}, None),
        ({"cache": "q5_1"}, "cache: q5_1 seen with workers, one of f16, q8_0, q4_0 is needed, since an RPC worker "),
        ({"cache_type_k": "bf16", "cache_type_v": "bf16"}, "cache_type_k: bf16 seen with workers, one of f16, q8_0, "),
        ({"cache_type_v": "q4_0"}, "cache_type_v: q4_0 seen with cache_type_k f16, the same type for both is needed"),
        ({"cache": "q8_0", "cache_type_v": "q8_0"}, "cache: q8_0 seen with cache_type_v, one of both is needed: drop "),
        (
            {"cache": "q8_0", "cache_type_k": "q8_0", "cache_type_v": "q8_0"},
            "cache: q8_0 seen with cache_type_k and cache_type_v, one of both is needed: drop one",
        ),
        ({"cache": "q8_0", "flash_attn": "off"}, "flash_attn: off seen with cache_type_v q8_0, on or auto is needed"),
        ({"cache": "q6_0"}, "cache: 'q6_0' seen, one of f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl is "),
        ({"mmap": False}, None),
        ({"cache_ram": 0}, None),
        (
            {"cache_ram": 9},
            "cache_ram: 9 seen with workers, 0 is needed, since a head with RPC workers aborts when it ",
        ),
        ({"mmap": False, "load_mode": "mlock"}, "mmap: false seen with load_mode, one of both is needed: drop one"),
    ],
)
def test_keys_that_stand_for_others(settings, sentence):
    judge(reported(settings), sentence)


@pytest.mark.parametrize(
    ("settings", "right"),
    [
        ({"cache": "q5_1"}, True),
        ({"cache_ram": 8192}, True),
        ({"cache_type_k": "q8_0", "cache_type_v": "iq4_nl"}, True),
        ({"cache_type_k": "q8_0", "flash_attn": "off"}, True),
        ({"cache": "bf16", "flash_attn": "off"}, True),
        ({"cache": "f32", "flash_attn": "off"}, True),
        ({"cache_type_v": "q5_1", "flash_attn": "off"}, False),
    ],
)
def test_service_of_one_node_takes_every_cache_type(settings, right):
    assert (single(**settings) == []) is right


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--mmproj", "/opt/models/p.gguf"],
            "'--mmproj' seen, mmproj is needed for that: write it there and drop the ",
        ),
        (["-ot", "exps=CPU", "--seed", "-1"], None),
        (["--control-vector=a b"], None),
        ([], "an empty list seen, at least one entry is needed: add one or remove the key"),
        ("--mmproj x", "'--mmproj x' seen, a list is needed: write [--mmproj x]"),
        (["--mmproj x"], "'--mmproj x' seen, a word of a command line is needed: write each word as an entry of its "),
        (["--mmproj", "a\nb"], "'a\\nb' seen, a word of a command line is needed: write each word as an entry of its "),
        (["--seed", 7], "7 seen, a list of strings is needed: correct it"),
        (["7", "--seed"], "'7' seen first, a flag is needed there, its values after it: correct the order"),
        (["-c", "4096"], "'-c' seen, ctx_size is needed for that: write it there and drop the flag"),
        (["--temperature", "1"], "'--temperature' seen, temperature is needed for that: write it there and drop the "),
        (
            ["--reasoning-budget", "9"],
            "'--reasoning-budget' seen, reasoning_budget is needed for that: write it there ",
        ),
        (["--reasoning", "on"], "'--reasoning' seen, reasoning is needed for that: write it there and drop the flag"),
        (["-cram", "9"], "'-cram' seen, cache_ram is needed for that: write it there and drop the flag"),
        (["--api-key=x"], "'--api-key' seen, llama_api_keys is needed for that: write it there and drop the flag"),
        (["--log-file", "/x"], "'--log-file' seen, a flag that the collection does not set itself is needed: drop it"),
    ],
)
def test_words_for_llama_server(words, sentence):
    judge(single(extra_args=words), sentence and "extra_args: " + sentence)
