# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import copy
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter import heads
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._exporter.config import Watched
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import server as llama_server
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake

METRICS = """llamacpp:prompt_tokens_total 30
llamacpp:tokens_predicted_total %d
llamacpp:tokens_predicted_seconds_total %s
llamacpp:n_decode_total %d
llamacpp:requests_processing %d
llamacpp:requests_deferred 1
"""


@pytest.fixture(name="server")
def fixture_server():
    server = fake.FakeLlamaServer()
    server.responses["/metrics"] = (200, METRICS % (4, "0.5", 9, 0))
    yield server
    server.stop()


@pytest.fixture(name="clock")
def fixture_clock(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(heads.time, "monotonic", lambda: clock[0])
    return clock


def watched(server, monkeypatch, kind="head", process=(77, 5), stopped=False, **settings):
    settings = dict({"url": server.url, "rpc_endpoints": [], "api_key_file": ""}, **settings)
    one = heads.Server(Watched("chat", kind, "llama-%s-chat.service" % kind, settings), stopped)
    monkeypatch.setattr(one._unit, "look", lambda _now: process)
    return one


def look(one):
    """{(name, state or ""): value}"""
    return {
        (family.name, labels.get("state", "")): value
        for family in one.look()
        for _suffix, labels, value in family.samples
    }


def test_idle_head_is_sampled(server, monkeypatch):
    seen = look(watched(server, monkeypatch))
    assert seen["llama_endpoint_state", "ready"] == 1
    assert seen["llama_endpoint_ready", ""] == 1
    assert seen["llama_slots", ""] == 1 and seen["llama_slots_busy", ""] == 0
    assert seen["llama_context_slot_tokens", ""] == 4096
    assert seen["llama_requests_deferred", ""] == 1
    assert seen["llama_generated_tokens_total", ""] == 4
    assert seen["llama_busy_without_tokens_seconds", ""] == 0
    # Two lines in its journal.
    assert [path for _method, path, _body in server.requests] == ["/props", "/metrics"]


def test_probe_time_is_its_start(server, monkeypatch):
    """Readers compare it with the start of the process, which may have been replaced meanwhile."""
    one = watched(server, monkeypatch)
    began = [50.0]
    monkeypatch.setattr(heads.time, "time", lambda: began[0])
    probe = heads.probe
    monkeypatch.setattr(heads, "probe", lambda *given: began.append(began.pop() + 12) or probe(*given))
    assert look(one)["llama_endpoint_asked_seconds", ""] == 50.0


def test_busy_head_reports_used_context(server, monkeypatch):
    server.responses["/metrics"] = (200, METRICS % (4, "0.5", 9, 1))
    working = copy.deepcopy(fake.WORKING)
    working["next_token"][0]["n_decoded"] = 28
    server.responses["/slots"] = (200, [fake.IDLE, working])
    seen = look(watched(server, monkeypatch))
    assert seen["llama_slots_busy", ""] == 1
    assert seen["llama_context_used_tokens", ""] == 2100


@pytest.mark.parametrize(
    ("responses", "state"),
    [
        ({"/props": fake.LOADING}, "loading"),
        ({"/props": (200, dict(fake.PROPS, is_sleeping=True))}, "sleeping"),
    ],
)
def test_state_of_props_is_reported(server, monkeypatch, responses, state):
    server.responses.update(responses)
    seen = look(watched(server, monkeypatch))
    assert seen["llama_endpoint_state", state] == 1
    # Another request could wake a sleeping server.
    assert [path for _method, path, _body in server.requests] == ["/props"]


def test_refused_key_is_an_error(server, monkeypatch):
    server.responses["/props"] = fake.NO_KEY
    with pytest.raises(Refusal, match="API key"):
        watched(server, monkeypatch).look()


def test_only_unit_process_gets_the_key(server, monkeypatch, tmp_path):
    (tmp_path / "key").write_text("k3y\n")
    key = str(tmp_path / "key")
    own = watched(server, monkeypatch, process=(os.getpid(), 5), api_key_file=key)
    assert look(own)["llama_endpoint_state", "ready"] == 1
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer k3y"}
    del server.headers[:]
    other = watched(server, monkeypatch, process=(1 << 30, 5), api_key_file=key)
    assert look(other)["llama_endpoint_state", "down"] == 1
    assert server.headers == []


def test_dead_unit_is_not_probed(server, monkeypatch):
    assert look(watched(server, monkeypatch, process=None))["llama_endpoint_state", "down"] == 1
    assert look(watched(server, monkeypatch, process=None, stopped=True))["llama_endpoint_state", "stopped"] == 1
    assert server.requests == []


def test_process_without_listener_is_loading(server, monkeypatch):
    server.stop()
    assert look(watched(server, monkeypatch))["llama_endpoint_state", "loading"] == 1


def test_router_is_probed_for_loaded_models(server, monkeypatch):
    server.responses.update(fake.router(small="loaded", big="unloaded"))
    server.responses["/metrics"] = (200, METRICS % (4, "0.5", 9, 1))
    server.responses["/slots"] = (200, [fake.WORKING])
    seen = look(watched(server, monkeypatch, kind="router"))
    assert seen["llama_endpoint_state", "ready"] == 1
    assert (seen["llama_slots", ""], seen["llama_slots_busy", ""]) == (1, 1)
    paths = [path for _method, path, _body in server.requests]
    assert paths[0] == "/models"
    assert all("model=small" in path and "autoload=false" in path for path in paths[1:]) and len(paths) == 3


def test_requests_without_progress_are_timed(server, monkeypatch, clock):
    one = watched(server, monkeypatch)
    server.responses["/metrics"] = (200, METRICS % (4, "0.5", 9, 1))
    server.responses["/slots"] = (200, [fake.WORKING])
    assert look(one)["llama_busy_without_tokens_seconds", ""] == 0
    clock[0] += 45
    assert look(one)["llama_busy_without_tokens_seconds", ""] == 45
    # Reading a prompt only moves batches and slot.
    server.responses["/metrics"] = (200, METRICS % (4, "0.5", 10, 1))
    assert look(one)["llama_busy_without_tokens_seconds", ""] == 0
    clock[0] += 15
    server.responses["/metrics"] = (200, METRICS % (5, "0.5", 10, 0))
    assert look(one)["llama_busy_without_tokens_seconds", ""] == 0


def test_prompt_reading_is_progress(server, monkeypatch, clock):
    one = watched(server, monkeypatch)
    server.responses["/metrics"] = (200, METRICS % (4, "0.5", 9, 1))
    for taken in (2048, 4096, 6144):
        server.responses["/slots"] = (
            200,
            [dict(fake.WORKING, n_prompt_tokens=100000, n_prompt_tokens_processed=taken)],
        )
        clock[0] += 60
        seen = look(one)
        assert seen["llama_busy_without_tokens_seconds", ""] == 0
        assert seen["llama_context_used_tokens", ""] == 100000
    clock[0] += 60
    assert look(one)["llama_busy_without_tokens_seconds", ""] == 60


def test_worker_bytes_are_progress(server, monkeypatch, clock):
    one = watched(server, monkeypatch)
    received = iter([100, 200, 200])
    monkeypatch.setattr(one._links, "look", lambda: ({}, next(received), 0))
    server.responses["/metrics"] = (200, METRICS % (4, "0.5", 9, 1))
    server.responses["/slots"] = (200, [fake.WORKING])
    seconds = []
    for _look in range(3):
        clock[0] += 60
        seconds.append(look(one)["llama_busy_without_tokens_seconds", ""])
    assert seconds == [0, 0, 60]


def test_silent_metrics_count_as_work(server, monkeypatch):
    monkeypatch.setattr(llama_server, "ANSWER", 0.2)
    one = watched(server, monkeypatch)
    look(one)
    server.responses["/metrics"] = server.silent
    first, second = look(one), look(one)
    assert first["llama_endpoint_state", "ready"] == 1 and first["llama_requests_processing", ""] == 1
    assert first["llama_generated_tokens_total", ""] == 4
    assert second["llama_busy_without_tokens_seconds", ""] > first["llama_busy_without_tokens_seconds", ""]
    # /props always responds.
    server.responses["/props"] = server.silent
    assert look(one)["llama_endpoint_state", "down"] == 1


def test_rate_is_of_last_answers(server, monkeypatch):
    one = watched(server, monkeypatch)
    assert ("llama_generation_tokens_per_second", "") not in look(one)
    server.responses["/metrics"] = (200, METRICS % (104, "10.5", 109, 0))
    assert look(one)["llama_generation_tokens_per_second", ""] == 10
    # It stays until the next answers; a token without time has no rate.
    server.responses["/metrics"] = (200, METRICS % (105, "10.5001", 110, 0))
    assert look(one)["llama_generation_tokens_per_second", ""] == 10
    monkeypatch.setattr(one._unit, "look", lambda _now: (78, 6))
    assert ("llama_generation_tokens_per_second", "") not in look(one)


def test_counters_add_up_over_processes(server, monkeypatch):
    one = watched(server, monkeypatch)
    assert look(one)["llama_generated_tokens_total", ""] == 4
    monkeypatch.setattr(one._unit, "look", lambda _now: (78, 6))
    server.responses["/metrics"] = (200, METRICS % (3, "0.1", 2, 0))
    assert look(one)["llama_generated_tokens_total", ""] == 7
    router = watched(server, monkeypatch, kind="router")
    counts = []
    for models in ({"a": "loaded", "b": "loaded"}, {"a": "loaded", "b": "unloaded"}, {"a": "loaded", "b": "loaded"}):
        server.responses.update(fake.router(**models))
        counts.append(look(router)["llama_generated_tokens_total", ""])
    assert counts == [6, 6, 9]


def test_router_of_silent_models_is_bounded(server, monkeypatch):
    monkeypatch.setattr(llama_server, "ANSWER", 0.1)
    monkeypatch.setattr(llama_server, "PATIENCE", 0.15)
    server.responses.update(fake.router(**{"m%d" % one: "loaded" for one in range(20)}))
    server.responses["/metrics"] = server.silent
    assert look(watched(server, monkeypatch, kind="router"))["llama_endpoint_state", "ready"] == 1
    assert len(server.requests) < 8
