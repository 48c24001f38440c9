"""The keys of a service."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _settings


@pytest.mark.parametrize(
    "service, expected", [({}, "server"), ({"kind": "server"}, "server"), ({"kind": "router"}, "router")]
)
def test_a_service_is_a_server_unless_it_says_otherwise(service, expected):
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
    names = [(kind, key.name) for key in _settings.KEYS for kind in key.kinds]
    assert len(names) == len(set(names)) == sum(len(keys) for keys in _settings.BY_KIND.values())
    assert [key.name for key in _settings.KEYS if not key.text.endswith(".")] == []


def test_what_a_plan_takes_is_what_costs_memory():
    service = {"slot_ctx_size": 4096, "parallel": 2, "threads": 8, "cache_type_k": "q8_0", "model": "m"}
    assert _settings.memory_settings(service) == {"ctx_size": 8192, "parallel": 2, "cache_type_k": "q8_0"}
    assert _settings.memory_settings({}) == {"parallel": 1}


def test_settings_become_words_in_the_order_of_the_table():
    service = {
        "override_kv": ["a=int:1", "b=bool:true"],
        "rope_scale": 4.0,
        "rope_scaling": "yarn",
        "load_mode": "mlock",
        "threads": 8,
    }
    assert _settings.arguments(service, 11434) == (
        [
            "--parallel",
            "1",
            "--threads",
            "8",
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
    assert _settings.arguments({"load_mode": "mlock"}, 7772) == [
        "--parallel",
        "1",
        "--no-mmap",
        "--no-direct-io",
        "--mlock",
    ]


def test_what_is_computed_from_a_default_of_llama_server_is_not_handed_to_it():
    assert [
        _settings.effective({}, name)
        for name in ("batch_size", "ubatch_size", "cache_type_k", "flash_attn", "parallel")
    ] == [2048, 512, "f16", "auto", 1]
    assert _settings.effective({"ubatch_size": 256}, "ubatch_size") == 256
    assert _settings.arguments({}, 11434) == ["--parallel", "1"]
