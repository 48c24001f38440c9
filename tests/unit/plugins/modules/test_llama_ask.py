# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions to a server that speaks llama-server's JSON, or lies."""

import json
import os
import subprocess
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench import ask, exchange
from ansible_collections.thefermisea.llama_cluster.plugins.modules import llama_ask
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake


def stream(*deltas, finish="stop", **more):
    """An answer as llama-server streams it."""
    events = [{"choices": [{"delta": delta}]} for delta in deltas]
    events.append({"choices": [{"delta": {}, "finish_reason": finish}], **more})
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


def question(key="a", **changes):
    return {"key": key, "prompt": "Name a color.", "max_tokens": 9, "temperature": 0.7, "seed": 3, **changes}


@pytest.fixture(name="run")
def fixture_run(run, server):
    server.responses["/v1/chat/completions"] = (200, stream({"content": "Blue"}, {"content": "."}))
    return lambda **options: run(**{"url": server.url + "/v1", "questions": [question()], **options})


def test_answers_have_text_and_figures(run, server):
    timings = {"predicted_n": 5, "predicted_per_second": 12.5, "prompt_n": 4}
    text = stream({"reasoning_content": "Hm."}, {"content": "Bl\r\n"}, {"content": "ue"}, timings=timings)
    server.responses["/v1/chat/completions"] = (200, text)
    code, result = run(model="coder")
    (found,) = result["answers"]
    assert (code, result["changed"]) == (0, False)
    assert [found[key] for key in ("key", "content", "finish_reason", "error")] == ["a", "Bl\r\nue", "stop", None]
    assert (found["completion_tokens"], found["tokens_per_second"]) == (5, 12.5)
    assert 0 <= found["first_token_s"] <= found["seconds"]
    (sent,) = server.asked("/v1/chat/completions")
    assert sent["messages"] == [{"role": "user", "content": "Name a color."}]
    assert [sent[key] for key in ("model", "max_tokens", "temperature", "seed", "cache_prompt")] == [
        *("coder", 9, 0.7, 3),
        False,
    ]


def test_further_questions_need_time(run, server):
    many = [question(str(number)) for number in range(3)]
    assert [one["key"] for one in run(questions=many)[1]["answers"]] == ["0", "1", "2"]
    # However long an answer takes, there is one.
    assert [one["key"] for one in run(questions=many, seconds=0)[1]["answers"]] == ["0"]
    assert run(questions=[])[1]["answers"] == []


def test_first_error_ends_the_questions(run, server):
    server.responses["/v1/chat/completions"] = fake.LOADING
    code, result = run(questions=[question(), question("b")])
    (found,) = result["answers"]
    assert code == 0 and found["error"] == "it answers 503 (Loading model)" and found["content"] == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("data: nothing\n\n", "a piece of the stream is no JSON"),
        (stream({"content": "a"}).partition("\n\n")[0] + "\n\n", "the stream ended without its last piece"),
        (stream({"content": "x" * (ask.LARGEST + 1)}), "an answer of more than 256 KiB"),
    ],
)
def test_broken_answers_are_errors(run, server, text, said):
    server.responses["/v1/chat/completions"] = (200, text)
    (found,) = run()[1]["answers"]
    assert said in found["error"] and found["content"] == ""


def test_other_types_than_text_are_no_text(run, server):
    server.responses["/v1/chat/completions"] = (200, stream({"content": ["a"]}, {"content": "b\ud800"}))
    (found,) = run()[1]["answers"]
    assert found["content"] == "b?" and found["completion_tokens"] == 2


def test_fallback_of_a_gateway_is_an_error(run, monkeypatch):
    def answered(*_arguments):
        pieces = [(1.0, stream({"content": "Red"}).encode())]
        return exchange.Exchange(0.0, pieces, 1.0, None, 200, "coder")

    monkeypatch.setattr(ask, "exchange", answered)
    (found,) = run()[1]["answers"]
    assert found["error"] == "coder does not serve, its fallback answered" and found["content"] == ""


def test_gateway_key_comes_from_its_file(run, server, tmp_path, monkeypatch):
    header = tmp_path / "curl-header"
    monkeypatch.setattr(llama_ask, "GATEWAY_CURL_HEADER", str(header))
    run(gateway=True)
    assert "Authorization" not in server.headers[-1]
    header.write_text("Authorization: Bearer k3y\n")
    header.chmod(0o600)
    run(gateway=True)
    assert server.headers[-1]["Authorization"] == "Bearer k3y"
    header.write_text("")
    code, result = run(gateway=True)
    assert code == 1 and "no key that can be read seen" in result["msg"]


def test_unit_key_goes_to_its_process(run, server, monkeypatch):
    monkeypatch.setattr(llama_ask, "key_of", lambda unit: "k3y")
    monkeypatch.setattr(llama_ask, "main_pid", lambda unit: os.getpid())
    assert run(unit="llama-head-chat.service")[0] == 0
    assert server.headers[-1]["Authorization"] == "Bearer k3y"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        monkeypatch.setattr(llama_ask, "main_pid", lambda unit: other.pid)
        code, result = run(unit="llama-head-chat.service")
    assert code == 1 and "it gets no key" in result["msg"]


def test_certificate_of_the_own_gateway_is_not_checked():
    to = exchange.target("https://127.0.0.1:443", verify=False)
    assert (to.tls.check_hostname, to.tls.verify_mode) == (False, exchange.ssl.CERT_NONE)
    assert exchange.target("https://127.0.0.1:443").tls.check_hostname
