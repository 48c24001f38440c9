# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to a head, and the bytes that are counted."""

import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import api as llama_api
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving import wire
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving.health import Head
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake


@pytest.fixture(name="worker")
def fixture_worker():
    worker = fake.FakeWorker().attach()
    yield worker
    worker.close()


@pytest.fixture(name="server")
def fixture_server(worker):
    server = fake.FakeLlamaServer()

    def answer():
        worker.work(1000, 200)
        return fake.answer(tokens=64)

    server.responses["/v1/chat/completions"] = answer
    yield server
    server.stop()


def look(server, worker, seconds=0.0):
    head = Head(llama_api.LlamaApi(server.url), [worker.endpoint])
    check = head.check

    def with_a_process(*given):
        found = check(*given)
        head.pid = os.getpid()
        return found

    head.check = with_a_process
    return wire.look(head, seconds, 5)


def test_sleeping_head_is_woken_first(server, worker):
    server.responses["/props"] = (200, dict(fake.PROPS, is_sleeping=True))
    found = look(server, worker)
    assert (found["state"], found["decode"]["answers"]) == ("ready", 1)
    assert len(server.asked("/v1/chat/completions")) == 2


def test_answer_and_its_bytes(server, worker):
    found = look(server, worker)
    decode = found["decode"]
    assert (found["state"], decode["tokens"], decode["answers"]) == ("ready", 64, 1)
    assert decode["began"] <= decode["ended"]
    moved = [(one["endpoint"], one["bytes_sent"], one["bytes_received"]) for one in decode["workers"]]
    assert moved == [(worker.endpoint, 1000, 200)]
    ((local, remote),) = found["connections"][0]["ends"]
    assert remote == worker.endpoint and local.startswith("127.0.0.1:")
    (asked,) = server.asked("/v1/chat/completions")
    assert (asked["max_tokens"], asked["seed"], asked["ignore_eos"], asked["cache_prompt"]) == (64, 0, True, False)


def test_answers_repeat_while_cards_are_watched(server, worker, monkeypatch):
    monkeypatch.setattr(wire, "ANSWERS", 3)
    found = look(server, worker, seconds=60)
    assert (found["decode"]["answers"], found["decode"]["tokens"]) == (3, 192)


def test_busy_head_is_not_asked(server, worker):
    server.responses["/slots"] = (200, [fake.WORKING])
    found = look(server, worker)
    assert (found["state"], found["decode"]) == ("busy", None)
    assert server.asked("/v1/chat/completions") == []


@pytest.mark.parametrize("response", [(500, {"error": {"message": "Compute error"}}), fake.CUT])
def test_missing_answer_is_refused(server, worker, response):
    server.responses["/v1/chat/completions"] = response
    with pytest.raises(Refusal, match="a completion is"):
        look(server, worker)
