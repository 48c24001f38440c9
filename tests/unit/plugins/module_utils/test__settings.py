"""The keys of a service."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils import _settings as settings


@pytest.mark.parametrize("service, expected", [({}, "server"), ({"kind": "server"}, "server"), ({"kind": "router"}, "router")])
def test_a_service_is_a_server_unless_it_says_otherwise(service, expected):
    assert settings.kind_of(service) == expected


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
    assert settings.context(service) == expected
