# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state that a probe of a llama-server sees, and the paths that it asks."""

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import server as llama_server
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama.api import LlamaApi, NoAnswer
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake


def paths(server):
    return [path for _method, path, _body in server.requests]


@pytest.mark.parametrize(
    "props, state",
    [
        ((200, fake.PROPS), "ready"),
        ((200, dict(fake.PROPS, is_sleeping=True)), "sleeping"),
        (fake.LOADING, "loading"),
        ((500, {}), "down"),
        (fake.CUT, "down"),
    ],
)
def test_state_of_a_server(server, props, state):
    server.responses["/props"] = props
    seen = llama_server.probe(LlamaApi(server.url))
    assert seen.state == state and state in llama_server.STATES
    assert paths(server) == ["/props", "/metrics"][: 1 + (state == "ready")], "a question wakes one that sleeps"


def test_working_slots_are_asked(server):
    server.responses["/metrics"] = (200, "llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n")
    server.responses["/slots"] = (200, [fake.WORKING])
    seen = llama_server.probe(LlamaApi(server.url))
    assert (seen.busy, seen.requests, seen.deferred) == (1, 1.0, 2.0)
    assert seen.working == [dict(fake.WORKING, model=None)]


def test_silent_server_is_busy(server, monkeypatch):
    monkeypatch.setattr(llama_server, "ANSWER", 0.2)
    server.responses["/metrics"] = server.silent
    seen = llama_server.probe(LlamaApi(server.url))
    assert (seen.state, seen.silent, seen.requests) == ("ready", True, 1.0)
    server.responses["/props"] = server.silent
    seen = llama_server.probe(LlamaApi(server.url))
    assert (seen.state, seen.silent) == ("down", True)


def test_sleeping_models_of_a_router_are_not_asked(server):
    server.responses.update(fake.router(coder="loaded", chat="sleeping", draft="unloaded"))
    seen = llama_server.probe(LlamaApi(server.url), router=True)
    assert (seen.state, seen.models) == ("ready", ["coder"])
    assert all("coder" in path or path == "/models" for path in paths(server))


@pytest.mark.parametrize("kind, state", [("refused", "loading"), ("timeout", "down"), ("foreign", "down")])
def test_state_without_an_answer(kind, state):
    assert llama_server.unanswered(NoAnswer(kind, "")) == state
