# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import api as llama_api
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving import health as serving_health
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving import long_prompt
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake


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
