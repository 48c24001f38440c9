# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.modules import llama_health
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake


@pytest.fixture(name="run")
def fixture_run(run, server):
    return lambda **options: run(**{"url": server.url, **options})


def test_a_look_changes_nothing_and_asks_nothing(run, server):
    code, result = run()
    assert (code, result["changed"], result["state"], result["answer"]) == (0, False, "ready", None)
    assert server.asked("/v1/chat/completions") == []


def test_deep_check_sends_key_and_model(run, server, tmp_path):
    (tmp_path / "keys").write_text("k3y\n")
    code, result = run(
        deep=True,
        api_key_file=str(tmp_path / "keys"),
        model="or1-behemoth",
        prompt="Count to ten.",
        max_tokens=64,
        _ansible_check_mode=True,
    )
    assert (code, result["state"], result["tokens"]) == (0, "ready", 8)
    request = server.asked("/v1/chat/completions")[0]
    assert (request["model"], request["max_tokens"]) == ("or1-behemoth", 64)
    assert request["messages"][0]["content"] == "Count to ten."
    assert {headers.get("Authorization") for headers in server.headers} == {"Bearer k3y"}


def test_failure_has_complete_result(run, server):
    server.responses["/health"] = fake.LOADING
    code, result = run()
    assert (code, result["state"], result["workers"]) == (1, "loading", [])
    assert (
        result["msg"]
        == "llama_health: %s is loading: it answers 503 (Loading model); see the log of its unit or job" % server.url
    )


def test_fail_on_decides(run, server):
    server.responses["/health"] = fake.LOADING
    assert run(fail_on=["down", "degraded"])[0] == 0
    server.responses["/health"] = fake.HEALTHY
    assert run(fail_on=["ready"])[0] == 1


def test_health_only_needs_no_key(run, server):
    server.responses.update(dict.fromkeys(("/props", "/slots", "/metrics"), (401, {})))
    code, result = run(health_only=True)
    assert (code, result["state"], result["reason"], result["model"]) == (0, "ready", "it answers /health", None)
    assert [path for _method, path, _body in server.requests] == ["/health"]


def test_conversation_is_returned(run, server):
    server.responses["/v1/models"] = fake.models()
    code, result = run(conversation="full", _ansible_check_mode=True)
    assert (code, result["state"], result["answer"]) == (0, "ready", "Blue, as the sky.")
    assert result["conversation"] == {
        "question": "answers",
        "embedding": None,
        "picture": None,
        "reranking": None,
        "tools": "skipped: no tools",
        "reasoning": "none",
        "draft": None,
        "not_held": None,
    }


def test_a_conversation_that_breaks_fails_with_its_sentence(run, server):
    server.responses["/v1/models"] = fake.models(n_ctx_train=4096)
    code, result = run(conversation="plain", arguments=["--ctx-size", "8192", "--parallel", "1"])
    assert (code, result["state"], result["conversation"]["question"]) == (1, "degraded", "answers")
    assert result["msg"].startswith(
        "llama_health: %s is degraded: a slot has 4096 tokens, slot_ctx_size asks for 8192, and the header's "
        "context_length caps it: set rope_scaling" % server.url
    )


def test_no_conversation_where_nothing_serves(run, server):
    server.responses["/health"] = fake.LOADING
    code, result = run(conversation="full", fail_on=[])
    assert (code, result["state"]) == (0, "loading") and "conversation" not in result


def test_the_next_step_names_the_unit(run, server, monkeypatch):
    monkeypatch.setattr(
        llama_health.Head, "check", lambda head, wait, deep: {"state": "down", "reason": "Connection refused"}
    )
    assert run(unit="llama-head-chat.service")[1]["msg"].endswith(
        " is down: Connection refused; see journalctl -u llama-head-chat.service"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"url": "node1:8000"}, "llama_health: url 'node1:8000' is not an address"),
        ({"rpc_endpoints": ["node2"]}, "llama_health: rpc_endpoints: 'node2' is not an endpoint"),
        ({"api_key_file": "/nonexistent"}, "llama_health: api_key_file /nonexistent cannot be read"),
    ],
)
def test_a_question_that_cannot_be_put_fails(run, options, text):
    code, result = run(fail_on=[], **options)
    assert code == 1
    assert result["msg"].startswith(text)
