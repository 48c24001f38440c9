# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter import heads, proof
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter.config import Watched
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake


@pytest.fixture(name="server")
def fixture_server():
    server = fake.FakeLlamaServer()
    yield server
    server.stop()


@pytest.fixture(name="clock")
def fixture_clock(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(heads.time, "monotonic", lambda: clock[0])
    return clock


@pytest.fixture(name="pair")
def fixture_pair(server, clock, monkeypatch):
    """Who asks how the server is, and who proves that it can be talked with."""
    monkeypatch.setattr(proof, "unit_info", lambda _units: [])
    monkeypatch.setattr(proof.Head, "_show_unit", lambda _self: None)
    told = Watched("chat", "head", "llama-head-chat.service", {"url": server.url, "api_key_file": ""})
    asked = heads.Asked(told, False)
    monkeypatch.setattr(asked._unit, "look", lambda _now: (77, 5))
    return asked, proof.Proof(told, asked)


def values(found):
    return {family.name: value for family in found for _suffix, _labels, value in family.samples}


def test_a_conversation_is_proved_once_an_hour_when_nobody_asks(server, clock, pair):
    asked, prover = pair

    def passes(seconds):
        clock[0] += seconds
        asked.look()
        return values(prover.look())

    def questions():
        return len(server.asked("/v1/chat/completions"))

    assert (passes(0), questions()) == ({}, 0)
    assert (passes(proof.IDLE + 1)["llama_conversation_ok"], questions()) == (1, 1)
    # It is told of until there is another.
    assert (passes(proof.PROOF / 2)["llama_conversation_ok"], questions()) == (1, 1)
    # Not while somebody asks, and not right after.
    server.responses["/metrics"] = fake.metrics(processing=1)
    passes(proof.PROOF)
    server.responses["/metrics"] = fake.metrics()
    passes(proof.IDLE - 1)
    assert questions() == 1
    server.responses["/v1/chat/completions"] = fake.answer(content="")
    assert (passes(2)["llama_conversation_ok"], questions()) == (0, 2)


@pytest.mark.parametrize("props", [fake.LOADING, (200, dict(fake.PROPS, is_sleeping=True)), (500, {})])
def test_one_that_loads_sleeps_or_does_not_serve_is_not_asked(server, clock, pair, props):
    asked, prover = pair
    server.responses["/props"] = props
    for _hour in range(3):
        clock[0] += proof.PROOF
        asked.look()
        assert values(prover.look()) == {}
    assert server.asked("/v1/chat/completions") == []


def test_a_proof_that_cannot_be_had_is_tried_in_an_hour(server, clock, pair, monkeypatch):
    asked, prover = pair
    asked.look()
    clock[0] += proof.IDLE
    server.responses["/v1/chat/completions"] = fake.NO_KEY
    with pytest.raises(Refusal, match="API key"):
        prover.look()
    assert values(prover.look()) == {}


def test_one_that_got_work_meanwhile_is_not_judged(server, clock, pair):
    asked, prover = pair
    asked.look()
    clock[0] += proof.IDLE
    server.responses["/slots"] = (200, [fake.WORKING])
    server.responses["/metrics"] = fake.metrics(processing=1)
    assert values(prover.look()) == {}
