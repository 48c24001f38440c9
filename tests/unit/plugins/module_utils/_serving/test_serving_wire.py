# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of a head, and what is counted meanwhile."""

import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import api as llama_api
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving import wire
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving.health import Head
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files


@pytest.fixture(name="worker")
def fixture_worker():
    worker = fake.FakeWorker().attach()
    yield worker
    worker.close()


@pytest.fixture(name="server")
def fixture_server(worker):
    server = fake.FakeLlamaServer()
    server.responses["/tokenize"] = (200, {"tokens": list(range(22))})

    def answer():
        worker.work(1000, 200)
        return fake.answer(tokens=64)

    server.responses["/v1/chat/completions"] = answer
    yield server
    server.stop()


@pytest.fixture(name="model")
def fixture_model(tmp_path):
    path = tmp_path / "m.gguf"
    tensors = [("token_embd.weight", (64, 128), 0), ("output.weight", (64, 128), 0)]
    path.write_bytes(gguf_files.file_bytes([("general.architecture", 8, "llama")], tensors))
    return str(path)


def look(server, worker, model, seconds=0.0, ubatch=512):
    head = Head(llama_api.LlamaApi(server.url), [worker.endpoint])
    check = head.check

    def with_a_process(*given):
        found = check(*given)
        head.pid = os.getpid()
        return found

    head.check = with_a_process
    return wire.look(head, model, ubatch, seconds, 5)


def test_an_answer_and_its_bytes(server, worker, model):
    found = look(server, worker, model)
    assert (found["state"], found["model"]) == ("ready", {"n_embd": 64, "n_vocab": 128})
    decode = found["decode"]
    assert (decode["tokens"], decode["prompt_tokens"], decode["answers"], decode["same"]) == (64, 34, 1, True)
    assert decode["text"] == "Blue, as the sky." and decode["began"] <= decode["ended"]
    moved = [(one["endpoint"], one["bytes_sent"], one["bytes_received"]) for one in decode["workers"]]
    assert moved == [(worker.endpoint, 1000, 200)]
    ((local, remote),) = found["connections"][0]["ends"]
    assert remote == worker.endpoint and local.startswith("127.0.0.1:")


def test_the_questions_are_computed_in_full_and_the_same_each_time(server, worker, model):
    look(server, worker, model)
    first, second = server.asked("/v1/chat/completions")
    assert [one["cache_prompt"] for one in (first, second)] == [False, False]
    assert (first["max_tokens"], first["seed"], first["ignore_eos"], first["temperature"]) == (64, 0, True, 0)
    assert second["max_tokens"] == 1


def test_the_prompt_has_four_micro_batches_and_leaves_room_in_the_slot(server, worker, model):
    look(server, worker, model, ubatch=512)
    look(server, worker, model, ubatch=4096)
    texts = [one["messages"][0]["content"] for one in server.asked("/v1/chat/completions")[1::2]]
    sentence = len(wire.TEXT)
    assert [len(text) // sentence for text in texts] == [4 * 512 // 22, int(4096 * 0.75) // 22]


def test_answers_go_on_for_as_long_as_cards_are_watched(server, worker, model, monkeypatch):
    monkeypatch.setattr(wire, "ANSWERS", 3)
    found = look(server, worker, model, seconds=60)
    assert (found["decode"]["answers"], found["decode"]["tokens"]) == (3, 192)


def test_an_answer_that_is_another_each_time_is_told(server, worker, model, monkeypatch):
    monkeypatch.setattr(wire, "ANSWERS", 2)
    texts = iter(["one", "two", "three"])
    server.responses["/v1/chat/completions"] = lambda: fake.answer(content=next(texts))
    assert look(server, worker, model, seconds=60)["decode"]["same"] is False


def test_who_serves_others_is_asked_nothing(server, worker, model):
    server.responses["/slots"] = (200, [fake.WORKING])
    found = look(server, worker, model)
    assert (found["state"], found["decode"], found["prefill"]) == ("busy", None, None)
    assert server.asked("/v1/chat/completions") == []


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (
            (500, {"error": {"message": "Compute error"}}),
            "a completion is answered 500 (Compute error): see the journal",
        ),
        (fake.CUT, "a completion is not answered ("),
    ],
)
def test_an_answer_that_does_not_come_is_a_refusal(server, worker, model, response, said):
    server.responses["/v1/chat/completions"] = response
    with pytest.raises(Refusal) as refused:
        look(server, worker, model)
    assert said in str(refused.value)


def test_what_counts_no_tokens_is_a_refusal(server, worker, model):
    server.responses["/tokenize"] = (404, {"error": {"message": "File Not Found"}})
    with pytest.raises(Refusal, match=r"/tokenize is answered 404 \(File Not Found\), a list of tokens is needed"):
        look(server, worker, model)


def test_a_model_without_an_embedding_table_has_no_dimensions(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_files.file_bytes([("general.architecture", 8, "llama")], [("other", (64,), 0)]))
    assert wire.dimensions(str(path)) == {"n_embd": None, "n_vocab": None}
