"""The keys of a service."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _cache_keys, _settings
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import args as llama_words
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._model import kv_cache


@pytest.mark.parametrize(
    "service, expected", [({}, "server"), ({"kind": "server"}, "server"), ({"kind": "router"}, "router")]
)
def test_service_is_server_by_default(service, expected):
    assert _settings.kind_of(service) == expected


@pytest.mark.parametrize(
    "service, expected",
    [
        ({}, None),
        ({"ctx_size": 4096, "parallel": 2}, 4096),
        ({"slot_ctx_size": 4096}, 4096),
        ({"slot_ctx_size": 4096, "parallel": 3}, 12288),
    ],
)
def test_context_is_meant_per_slot(service, expected):
    assert _settings.context(service) == expected


def test_every_key_is_described_once():
    names = [key.name for key in _settings.KEYS]
    assert len(names) == len(set(names)) == len({name for keys in _settings.BY_KIND.values() for name in keys})
    assert set(_settings.ROUTER_KEYS) <= set(_settings.BY_KIND["server"]) & set(_settings.BY_KIND["router"])
    assert [key.name for key in _settings.KEYS if not key.text.endswith(".")] == []


def test_what_a_plan_takes_is_what_costs_memory():
    service = {"slot_ctx_size": 4096, "parallel": 2, "threads": 8, "cache_type_k": "q8_0", "model": "m"}
    none = {"cache_ram": 0}
    assert _settings.memory_settings(service) == {"ctx_size": 8192, "parallel": 2, "cache_type_k": "q8_0", **none}
    assert _settings.memory_settings({}) == {"parallel": 1, **none}


def test_words_keep_order_of_table():
    service = {
        "override_kv": ["a=int:1", "b=bool:true"],
        "rope_scale": 4.0,
        "rope_scaling": "yarn",
        "load_mode": "mlock",
        "threads": 8,
    }
    assert llama_words.arguments(service, 11434) == (
        [
            "--parallel",
            "1",
            "--threads",
            "8",
            "--cache-ram",
            "0",
            "--rope-scaling",
            "yarn",
            "--rope-scale",
            "4.0",
            "--override-kv",
            "a=int:1,b=bool:true",
            "--load-mode",
            "mlock",
        ]
    )
    assert llama_words.arguments({"load_mode": "mlock"}, 7772) == [
        "--parallel",
        "1",
        "--cache-ram",
        "0",
        "--no-mmap",
        "--no-direct-io",
        "--mlock",
    ]


def test_true_and_false_have_words_of_their_own():
    assert llama_words.arguments({"jinja": True, "swa_full": True}, 7772)[4:] == ["--jinja", "--swa-full"]
    assert llama_words.arguments({"jinja": False, "swa_full": False}, 7772)[4:] == ["--no-jinja"]


def test_a_map_is_one_word_of_json():
    given = {"b": [1, {"c": None}], "a": False, 1: 'x "y"'}
    assert llama_words.arguments({"chat_template_kwargs": given}, 11434)[4:] == [
        "--chat-template-kwargs",
        '{"1": "x \\"y\\"", "a": false, "b": [1, {"c": null}]}',
    ]


@pytest.mark.parametrize(
    ("build", "mode", "words"),
    [
        (7760, "off", ["--reasoning-budget", "0"]),
        (8691, "off", ["--reasoning-budget", "0"]),
        (8692, "off", ["--reasoning", "off"]),
        (11434, "on", ["--reasoning", "on"]),
        (11434, "auto", []),
    ],
)
def test_thinking_by_build(build, mode, words):
    assert llama_words.arguments({"reasoning": mode}, build)[4:] == words


def test_value_without_words_of_build():
    service = {"reasoning": "on", "load_mode": "mlock", "jinja": False, "swa_full": True, "threads": 4}
    assert llama_words.unknown_values(service, 7772) == [("reasoning", "on", ["auto", "off"])]
    assert llama_words.unknown_values(service, 10114) == [("load_mode", "mlock", ["auto", "dio", "mmap", "none"])]
    assert llama_words.unknown_values(service, 11434) == llama_words.unknown_values({}, 7760) == []
    assert llama_words.unknown_values({"reasoning": "auto"}, 7772) == []
    assert llama_words.unknown_values({"swa_full": False, "embeddings": False}, 7772) == []


@pytest.mark.parametrize(
    ("service", "model", "expected"),
    [
        ({}, None, {}),
        ({"port": 1}, {"jinja": True, "repo": "o/r", "port": 2}, {"port": 1, "jinja": True}),
        ({"jinja": False}, {"jinja": True, "top_k": None}, {"jinja": False}),
        ({"cache": "q5_1"}, {}, {"cache_type_k": "q5_1", "cache_type_v": "q5_1"}),
        ({"mmap": False}, {}, {"load_mode": "none"}),
        ({"mmap": True}, {}, {"load_mode": "mmap"}),
        (
            {"chat_template_kwargs": {"a": 1}},
            {"chat_template_kwargs": {"a": 2, "b": 2}},
            {"chat_template_kwargs": {"a": 1}},
        ),
        ({"reasoning": "off"}, {"reasoning": "on", "reasoning_budget": 9}, {"reasoning": "off"}),
        ({"reasoning": "on"}, {"reasoning_budget": 9}, {"reasoning": "on", "reasoning_budget": 9}),
        ({"reasoning_budget": 9}, {"reasoning": "off"}, {"reasoning_budget": 9}),
        ({"reasoning_budget": 9}, {"reasoning": "on"}, {"reasoning_budget": 9, "reasoning": "on"}),
        (
            {"reasoning": "on"},
            {"chat_template_kwargs": {"enable_thinking": False, "a": 1}},
            {"reasoning": "on", "chat_template_kwargs": {"a": 1}},
        ),
        ({"rope_scaling": "none"}, {"rope_scaling": "yarn", "yarn_orig_ctx": 9}, {"rope_scaling": "none"}),
        (
            {"jinja": False},
            {"reasoning": "off", "chat_template_kwargs": {"a": 1}, "top_k": 1},
            {"jinja": False, "top_k": 1},
        ),
        ({"embeddings": False}, {"embeddings": True, "pooling": "cls"}, {"embeddings": False}),
        ({}, {"reasoning": "off", "reasoning_budget": 9}, {"reasoning": "off", "reasoning_budget": 9}),
    ],
)
def test_the_one_entry_that_everybody_sees(service, model, expected):
    before = dict(service)
    assert _settings.resolved(service, model) == expected and service == before
    assert _settings.resolved(expected, model) == expected


def test_what_belongs_to_a_family_of_models():
    rope = {"rope_scaling", "rope_scale", "rope_freq_base", "yarn_orig_ctx", "override_kv"}
    template = {"jinja", "chat_template", "chat_template_kwargs", "reasoning", "reasoning_budget", "reasoning_format"}
    sampling = {"temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty"}
    served = {"swa_full", "embeddings", "pooling", "reranking", "draft"}
    assert set(_settings.FAMILY_KEYS) == rope | template | sampling | served


def test_cache_types_have_known_bytes():
    assert set(_cache_keys.ALL_CACHE_TYPES) == set(kv_cache.CACHE_TYPES)
    assert {name for name, (block, _size) in kv_cache.CACHE_TYPES.items() if block == 1} == set(
        _cache_keys.PLAIN_CACHE_TYPES
    )


def test_own_defaults_are_not_passed():
    assert [
        _settings.effective({}, name)
        for name in ("batch_size", "ubatch_size", "cache_type_k", "flash_attn", "parallel")
    ] == [2048, 512, "f16", "auto", 1]
    assert _settings.effective({"ubatch_size": 256}, "ubatch_size") == 256
    assert llama_words.arguments({}, 11434) == ["--parallel", "1", "--cache-ram", "0"]


@pytest.mark.parametrize(
    ("service", "ubatch", "batch"),
    [
        ({"embeddings": True, "slot_ctx_size": 4096, "parallel": 2}, 4096, 4096),
        ({"reranking": True, "ctx_size": 8192, "parallel": 2}, 4096, 4096),
        ({"embeddings": True, "slot_ctx_size": 1024}, 1024, None),
        ({"embeddings": True, "slot_ctx_size": 256}, None, None),
        ({"embeddings": True, "slot_ctx_size": 4096, "ubatch_size": 3000}, 3000, 3000),
        ({"embeddings": True, "slot_ctx_size": 4096, "batch_size": 1024}, 1024, 1024),
        ({"embeddings": True, "slot_ctx_size": 4096, "pooling": "last"}, None, None),
        ({"embeddings": True, "slot_ctx_size": 4096, "pooling": "mean"}, 4096, 4096),
        ({"embeddings": True}, None, None),
        ({"slot_ctx_size": 4096}, None, None),
    ],
)
def test_a_text_may_fill_a_slot(service, ubatch, batch):
    """llama-server needs it in one micro-batch, and the memory plan counts that."""
    assert (_settings.value(service, "ubatch_size"), _settings.value(service, "batch_size")) == (ubatch, batch)
    counted = _settings.memory_settings(service)
    assert (counted.get("ubatch_size"), counted.get("batch_size")) == (ubatch, batch)
    said = llama_words.arguments(service, 11434)
    assert ("--ubatch-size" in said, "--batch-size" in said) == (ubatch is not None, batch is not None)
