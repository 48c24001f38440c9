# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import api
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import api as llama_api
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving import health as serving_health
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving import long_prompt, recovery
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake

PIECE = 'data: {"content":"a","stop":false}\n\n'
LAST = 'data: {"content":"","stop":true}\n\n'


class Process:
    """The head's process: gone after some looks at it; what the server answers then."""

    def __init__(self, looks):
        self.looks = looks

    def alive(self, _pid):
        self.looks -= 1
        return "1" if self.looks >= 0 else None


def watch(server, looks=2, timeout=5, wanted=lambda: True, generate=None, embeddings=False):
    armed = []
    result = recovery.watch(
        api.LlamaApi(server.url),
        7,
        timeout,
        lambda: armed.append(list(server.requests)),
        wanted,
        generate,
        Process(looks).alive,
        embeddings,
    )
    return result, armed


def test_a_process_is_known_by_its_start(tmp_path):
    assert recovery.process_identity(os.getpid()).isdigit()
    assert recovery.process_identity(2**30) is None
    (tmp_path / "7").mkdir()
    # As proc(5) has it: the start is field 22, and a name may hold anything.
    (tmp_path / "7/stat").write_text(
        "7 (a) b 1 2) S %s 4711 23 24\n" % " ".join(str(number) for number in range(4, 22))
    )
    assert recovery.process_identity(7, str(tmp_path)) == "4711"


def test_the_present_head_is_not_asked(server):
    result, armed = watch(server, looks=4, timeout=0.5)
    assert armed == [[]]
    assert result == {"pid": 7, "answered_at": None, "seconds_to_token": None, "client": None}
    assert server.requests == []


def test_the_first_token_of_the_next_one(server):
    health = iter([fake.LOADING, fake.LOADING])
    server.responses["/health"] = lambda: next(health, fake.HEALTHY)
    result, _armed = watch(server)
    assert result["answered_at"] and 0 <= result["seconds_to_token"] < 5
    assert [body["max_tokens"] for body in server.asked("/v1/chat/completions")] == [1]


def test_an_answer_without_a_token_is_none(server):
    server.responses["/v1/chat/completions"] = fake.answer(tokens=0)
    assert watch(server, timeout=0.5)[0]["answered_at"] is None


def test_the_first_embedding_of_the_next_one(server):
    none = (200, {"data": [{"embedding": []}]})
    replies = iter([(503, {"error": {"message": "Loading model"}}), none, (200, {"data": []})])
    server.responses["/v1/embeddings"] = lambda: next(replies, (200, {"data": [{"embedding": [0.5]}]}))
    result, _armed = watch(server, embeddings=True)
    assert result["answered_at"]
    assert server.asked("/v1/embeddings") == [{"input": "Hello"}] * 4
    assert server.asked("/v1/chat/completions") == []


def test_unwanted_watch_ends(server):
    assert watch(server, looks=1000, timeout=60, wanted=lambda: False)[0]["answered_at"] is None


def test_a_client_is_cut_off(server):
    server.responses["/completion"] = lambda: (200, PIECE * 3)
    result, armed = watch(server, generate="Once")
    assert [path for _method, path, _body in armed[0]] == ["/completion"]
    client = result["client"]
    assert (client["tokens"], client["failure"]) == (3, "the stream ended without its last piece")
    assert client["last_token_at"] <= client["cut_at"]
    assert server.asked("/completion") == [
        {"prompt": "Once", "n_predict": -1, "ignore_eos": True, "stream": True, "cache_prompt": False}
    ]


def test_client_repeats_ended_answers(server):
    texts = iter([PIECE * 2 + LAST])
    server.responses["/completion"] = lambda: (200, next(texts, PIECE))
    assert watch(server, generate="Once")[0]["client"]["tokens"] == 4
    assert len(server.asked("/completion")) == 2


def test_silent_head_is_an_error(server):
    server.responses["/completion"] = (503, {"error": {"message": "Loading model", "code": 503}})
    with pytest.raises(Refusal, match=r"gave 0 tokens .*answered 503 \(.*Loading model"):
        watch(server, generate="Once")


def test_another_head_is_asked_when_there_is_one(server):
    asked = []

    def there():
        asked.append(len(server.requests))
        return len(asked) > 2

    result = recovery.watch(
        *(api.LlamaApi(server.url), 7, 5, lambda: None, lambda: True, None, Process(2).alive), there=there
    )
    assert result["answered_at"] and asked == [0, 0, 0]


def test_the_clients_key_stays_the_first_process(server):
    server.responses["/completion"] = (200, PIECE * 3 + LAST)
    asks = api.LlamaApi(server.url, "k3y")
    result = recovery.watch(
        *(asks, 7, 0.5, lambda: asks.use_key(None), lambda: True, "Tell", Process(10**6).alive, False)
    )
    assert result["client"]["failure"] is None and result["client"]["tokens"] > 6
    assert {one.get("Authorization") for one in server.headers} == {"Bearer k3y"}


@pytest.fixture(name="server")
def fixture_server():
    server = fake.FakeLlamaServer()
    server.responses["/tokenize"] = (200, {"tokens": [504, 2365, 6354]})
    server.responses["/completion"] = lambda: (
        200,
        {"tokens_evaluated": len(server.asked("/completion")[-1]["prompt"]), "timings": {}},
    )
    yield server
    server.stop()


def read(server, part=10, timeout=5):
    return long_prompt.read_part(serving_health.Head(llama_api.LlamaApi(server.url)), part, timeout)


def test_last_part_fills_nine_tenths(server):
    found = read(server)
    assert (found["tokens"], found["whole"], found["slot"]) == (3686, 3686, 4096)
    (request,) = server.asked("/completion")
    assert len(request["prompt"]) == 3686 and set(request["prompt"]) == {504, 2365, 6354}
    assert (request["cache_prompt"], request["n_predict"]) == (True, 1)


def test_each_part_begins_with_the_one_before(server):
    for part in (1, 2):
        read(server, part)
    first, second = [request["prompt"] for request in server.asked("/completion")]
    assert len(first) == 368 and len(second) == 737 and second[:368] == first


@pytest.mark.parametrize("tokens", [[10**400, "7", -1, None, 504], [2**31, 504]])
def test_what_is_no_token_is_left_out(server, tokens):
    server.responses["/tokenize"] = (200, {"tokens": tokens})
    read(server, 1)
    assert set(server.asked("/completion")[-1]["prompt"]) == {504}


def test_slot_of_odd_size_is_skipped(server):
    server.responses["/props"] = (200, {"default_generation_settings": {"n_ctx": 10**10}})
    assert (read(server)["tokens"], server.asked("/completion")) == (0, [])


def test_busy_head_is_not_filled(server):
    server.responses["/slots"] = (200, [fake.WORKING])
    found = read(server)
    assert (found["state"], found["reason"], found["tokens"]) == ("busy", "1 of 1 slots work", 0)
    assert server.asked("/completion") == []


def test_time_that_is_over_is_no_failure(server):
    server.responses["/completion"] = server.silent
    found = read(server, timeout=0.2)
    assert (found["state"], found["reason"], found["tokens"]) == ("busy", "no answer in 0.2 s", 0)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (
            (400, {"error": {"message": "request exceeds the available context size"}}),
            "is answered 400 (request exceeds the available context size), 200 is needed: lower slot_ctx_size or "
            "ubatch_size",
        ),
        ((200, {"tokens_evaluated": 2048}), "but 2048 tokens of it were read, all are needed: lower slot_ctx_size"),
        ((200, []), "but None tokens of it were read"),
        (fake.CUT, "it broke off while it answered a completion (Remote end closed"),
    ],
)
def test_what_is_not_read_names_the_setting(server, response, words):
    server.responses["/completion"] = response
    with pytest.raises(Refusal) as refusal:
        read(server)
    assert str(refusal.value).startswith("a prompt of 3686 tokens in a slot of 4096") and words in str(refusal.value)


@pytest.mark.parametrize("response", [(404, "none"), (200, {"tokens": []}), (200, {"tokens": ["The"]}), (200, [])])
def test_a_server_that_counts_no_tokens_is_named(server, response):
    server.responses["/tokenize"] = response
    with pytest.raises(Refusal, match=r"^/tokenize is answered \d+ \(.*\), a list of tokens is needed"):
        read(server)
