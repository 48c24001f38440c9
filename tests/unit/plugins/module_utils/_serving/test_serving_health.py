# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import itertools
import os
import socket
import subprocess
import sys
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import api as llama_api
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._llama import server as llama_server
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._node import sockets
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._serving import health as serving_health
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake

CHAT = "/v1/chat/completions"
POLL, LOOK = serving_health.POLL, serving_health.LOOK


@pytest.fixture(name="quick", autouse=True)
def fixture_quick(monkeypatch):
    """Half a second of silence is a timeout."""
    monkeypatch.setattr(serving_health, "POLL", 0.01)
    monkeypatch.setattr(serving_health, "LOOK", 0.5)
    monkeypatch.setattr(llama_server, "ANSWER", 0.5)
    monkeypatch.setattr(serving_health, "MOMENT", 0)


def check(server, workers=(), wait=0, timeout=None, **options):
    """Shallow without timeout, else deep."""
    api = llama_api.LlamaApi(server if isinstance(server, str) else server.url, model=options.pop("model", None))
    deep = {"prompt": "Name one color.", "max_tokens": 8, "timeout": timeout} if timeout else None
    return serving_health.Head(api, [worker.endpoint for worker in workers], **options).check(wait, deep)


def state(result):
    return result["state"], result["reason"]


def closed():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return "http://127.0.0.1:%d" % listener.getsockname()[1]


# A look.


def test_ready(server, workers):
    result = check(server, workers)
    assert state(result) == ("ready", "it is idle")
    assert (result["model"], result["slots"], result["slots_busy"], result["n_ctx"]) == ("or1-behemoth", 1, 0, 4096)
    assert [(worker["endpoint"], worker["connected"], worker["bytes_sent"]) for worker in result["workers"]] == [
        (w.endpoint, True, None) for w in workers
    ]
    assert server.asked(CHAT) == []


@pytest.mark.parametrize("odd", ["x", -1, 0, 2**24 + 1, 10**400, 1.5, None, [4096]])
def test_odd_slot_numbers_are_ignored(server, workers, odd):
    server.responses["/slots"] = (501, {})
    server.responses["/props"] = (200, {"total_slots": odd, "default_generation_settings": {"n_ctx": odd}})
    result = check(server, workers)
    assert (result["slots"], result["n_ctx"]) == (None, None)
    most = {"total_slots": 1024, "default_generation_settings": {"n_ctx": 2**24}}
    server.responses["/props"] = (200, most)
    result = check(server, workers)
    assert (result["slots"], result["n_ctx"]) == (1024, 2**24)


@pytest.mark.parametrize(("said", "rate"), [(12.5, 12.5), (10**400, 1e9), ("fast", None), (-1, None), ([], None)])
def test_a_rate_is_a_number(server, workers, said, rate):
    timings = {"predicted_n": 4, "predicted_per_second": said, "prompt_per_second": said}
    server.responses[CHAT] = (200, {"choices": [{"message": {"content": "Red."}}], "timings": timings})
    result = check(server, workers, timeout=5)
    assert (result["tokens_per_second"], result["prompt_tokens_per_second"]) == (rate, rate)


@pytest.mark.parametrize(
    ("responses", "expected"),
    [
        ({"/health": "silent"}, ("down", "no answer in 0.5 s")),
        ({"/health": (404, "not found")}, ("down", "/health answers 404 (not found), 200 is needed")),
        ({"/health": fake.LOADING}, ("loading", "it answers 503 (Loading model)")),
        ({"/slots": (200, [fake.WORKING, fake.IDLE])}, ("busy", "1 of 1 slots work")),
        ({"/slots": (501, {}), "/metrics": fake.metrics(processing=1)}, ("busy", "1 of 1 slots work")),
        ({"/slots": (501, {}), "/metrics": (501, {})}, ("ready", "it is idle")),
        ({"/slots": "silent"}, ("busy", "it is too busy to answer /slots in 0.5 s")),
    ],
)
def test_state_of_responses(server, responses, expected):
    server.responses.update({path: server.silent if one == "silent" else one for path, one in responses.items()})
    result = check(server)
    assert (state(result), result["progress"]) == (expected, None)


def test_a_dead_worker_degrades(server, workers):
    workers[1].die()
    result = check(server, workers)
    assert result["state"] == "degraded"
    assert result["reason"].startswith("1 of 2 workers without an established connection: %s: " % workers[1].endpoint)
    assert [worker["connected"] for worker in result["workers"]] == [True, False]


def test_a_sleeping_server_needs_no_workers(server, workers):
    workers[0].die()
    server.responses["/props"] = (200, dict(fake.PROPS, is_sleeping=True))
    assert state(check(server, workers)) == ("ready", "it sleeps, the next request loads the model")


def test_a_router_without_its_model_is_ready(server):
    missing = (400, {"error": {"message": "model is not loaded", "code": 400}})
    server.responses.update({"/props": missing, "/slots": missing, "/metrics": missing})
    assert state(check(server, model="strand")) == ("ready", "strand is not loaded, the next request loads it")
    assert all(
        path == "/health" or path.endswith("?model=strand&autoload=false") for _method, path, _body in server.requests
    )


def test_router_reports_loaded_models(server):
    server.responses.update(fake.router(coder="loaded", chat="unloaded"))
    result = check(server)
    assert state(result) == ("ready", "1 of its 2 models loaded (coder)")
    assert (result["models"], result["slots"], result["slots_busy"]) == ({"coder": "loaded", "chat": "unloaded"}, 1, 0)
    assert [path for _method, path, _body in server.requests] == [
        "/health",
        "/props",
        "/models",
        "/metrics?model=coder&autoload=false",
        "/slots?model=coder&autoload=false",
    ]
    server.responses["/slots"] = (200, [fake.WORKING])
    assert state(check(server)) == ("busy", "1 slots work, 1 of its 2 models loaded (coder)")
    server.responses.update(fake.router(coder="unloaded", chat="loading"))
    assert state(check(server)) == ("busy", "0 of its 2 models loaded, chat is loading")


def test_a_router_costs_a_bounded_number_of_requests(server):
    server.responses.update(fake.router(**{"m%d" % number: "loaded" for number in range(500)}))
    check(server)
    assert len([path for _method, path, _body in server.requests if path.startswith("/slots")]) == 64


def test_an_answer_of_another_model_is_none(server):
    reason = "a request for strand is answered by or1-behemoth, the model's own name is needed: run site.yml"
    assert state(check(server, timeout=5, model="strand")) == ("degraded", reason)


@pytest.mark.parametrize(
    "said", [None, 7, [7], {"data": 7}, {"data": [{"id": "m", "status": {"value": "loaded", "args": 7}}]}]
)
def test_whatever_a_router_says_of_its_models(server, said):
    server.responses.update({"/props": (200, {"role": "router"}), "/models": (200, said)})
    assert check(server)["state"] == "ready"


# Waiting.


def test_waiting_tells_what_for(server):
    health = iter([fake.CUT, fake.LOADING, fake.LOADING])
    server.responses["/health"] = lambda: next(health, fake.HEALTHY)
    result = check(server, wait=30)
    assert result["state"] == "ready"
    assert result["waited_for"] == ["Remote end closed connection without response", "it answers 503 (Loading model)"]


def test_no_completion_before_it_serves(server):
    server.responses["/health"] = fake.LOADING
    assert check(server, timeout=5)["state"] == "loading"
    assert server.asked(CHAT) == []


# Its unit.


def show(monkeypatch, pid=0, active="active/running", load="loaded", result="success"):
    """The unit as systemctl shows it -> the list of questions it will have been asked."""
    asked = []
    text = "Id=llama-head-chat.service\nLoadState=%s\nActiveState=%s\nSubState=%s\nMainPID=%d\nNRestarts=3\nResult=%s\n"
    shown = text % ((load,) + tuple(active.split("/")) + (pid, result))
    monkeypatch.setattr(serving_health, "systemctl_show", lambda names: asked.append(names) or shown)
    return asked


def test_connections_of_the_units_processes_count(monkeypatch, server, workers):
    show(monkeypatch, os.getpid())
    assert check(server, workers, unit="llama-head-chat")["state"] == "ready"


@pytest.fixture(name="keys")
def fixture_keys(tmp_path, monkeypatch):
    folder = tmp_path / "keys"
    folder.mkdir()
    monkeypatch.setattr(serving_health.key_of, "__defaults__", (str(folder),))
    return folder


@pytest.mark.parametrize("unit", ["llama-head-chat.service", "llama-router-chat.service"])
def test_a_unit_has_the_key_of_its_service(keys, unit):
    (keys / "chat").write_text("s3cret\n")
    assert serving_health.key_of(unit) == "s3cret"


def authorizations(server, monkeypatch, pid):
    """The Authorization headers of a check."""
    show(monkeypatch, pid)
    del server.headers[:]
    head = serving_health.Head(llama_api.LlamaApi(server.url), unit="llama-head-chat", own_key=True)
    assert head.check()["state"] == "ready"
    return {headers.get("Authorization") for headers in server.headers}


def test_key_comes_from_service_file(monkeypatch, server, keys):
    assert authorizations(server, monkeypatch, os.getpid()) == {None}
    (keys / "chat").write_text("# of chat\ns3cret\nother\n")
    assert authorizations(server, monkeypatch, os.getpid()) == {"Bearer s3cret"}


def test_other_process_at_port_gets_no_key(monkeypatch, server, keys):
    (keys / "chat").write_text("s3cret\n")
    # The unit has another process.
    show(monkeypatch, 1 << 30)
    result = serving_health.Head(llama_api.LlamaApi(server.url), unit="llama-head-chat", own_key=True).check()
    assert result["state"] == "down" and "user id %d listens at" % os.geteuid() in result["reason"]
    assert server.headers == []


def test_unsafe_key_file_is_refused(monkeypatch, server, keys, tmp_path):
    (tmp_path / "shadow").write_text("root:$6$hash\n")
    (keys / "chat").symlink_to(tmp_path / "shadow")
    with pytest.raises(
        llama_api.Refusal,
        match=r"the API key of llama-head-chat.service cannot be read \(.*chat: no regular file.*\): run with become",
    ):
        authorizations(server, monkeypatch, os.getpid())
    (keys / "chat").unlink()
    (keys / "chat").write_text("s3cret\n")
    keys.chmod(0o777)
    with pytest.raises(llama_api.Refusal, match="mode 0777"):
        authorizations(server, monkeypatch, os.getpid())
    assert server.headers == []


def test_waiting_head_reports_its_status(monkeypatch):
    text = (
        "Id=llama-head-chat.service\nLoadState=loaded\nActiveState=activating\nSubState=start-pre\nMainPID=0\nNRestarts=0\n"
        "Result=success\nStatusText=%s\n"
    )
    for words in ("waits for RPC worker 10.0.0.2:50052: the port is closed", ""):
        monkeypatch.setattr(serving_health, "systemctl_show", lambda names, words=words: text % words)
        state = check(closed(), unit="llama-head-chat.service")
        if words:
            assert (state["state"], state["reason"]) == (
                "loading",
                "llama-head-chat.service has not started its server yet: it " + words,
            )
        else:
            assert state["state"] == "down"


def test_repeatedly_ending_unit_is_down(monkeypatch):
    counts = iter([5, 6, 7, 8])
    text = (
        "Id=llama-head-chat.service\nLoadState=loaded\nActiveState=activating\nSubState=auto-restart\nMainPID=0\nNRestarts=%d\n"
        "Result=exit-code\n"
    )
    monkeypatch.setattr(serving_health, "systemctl_show", lambda names: text % next(counts))
    monkeypatch.setattr(serving_health, "POLL", 0)
    result = check(closed(), unit="llama-head-chat", wait=600)
    assert (result["state"], result["reason"]) == ("down", "llama-head-chat has ended 3 times and never served")


def test_earlier_ends_count(monkeypatch):
    text = (
        "Id=llama-head-chat.service\nLoadState=loaded\nActiveState=activating\nSubState=start-pre\nMainPID=0\nNRestarts=%d\n"
        "StatusText=%s\n"
    )
    for runs, state in ((2, "loading"), (6, "down")):
        words = "waits 30 s: %d runs in a row ended before they served" % runs
        monkeypatch.setattr(
            serving_health, "systemctl_show", lambda names, runs=runs, words=words: text % (runs, words)
        )
        assert check(closed(), unit="llama-head-chat", wait=0.1)["state"] == state


def test_connections_of_other_processes_do_not(monkeypatch, server, workers):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    show(monkeypatch, other.pid)
    assert check(server, workers, unit="llama-head-chat")["state"] == "degraded"
    other.communicate(b"\n")


def test_waiting_for_a_failed_unit_is_hopeless(monkeypatch):
    asked = show(monkeypatch, active="failed/failed", result="exit-code")
    reason = "Connection refused (llama-head-chat.service is failed/failed, result exit-code, 3 restarts)"
    result = check(closed(), wait=3, unit="llama-head-chat")
    assert (state(result), result["waited_for"], len(asked)) == (("down", reason), [reason], 1)


def test_a_unit_that_restarts_is_waited_for(monkeypatch):
    show(monkeypatch, active="activating/auto-restart", result="signal")
    result = check(closed(), wait=0.05, unit="llama-head-chat")
    assert "is activating/auto-restart, result signal, 3 restarts" in result["reason"]


def test_unit_without_listener_is_loading(monkeypatch):
    show(monkeypatch, os.getpid())
    result = check(closed(), unit="llama-head-chat")
    assert result["state"] == "loading"
    assert "waits for a worker that serves another head" in result["reason"]


def test_an_answer_from_another_process_degrades(monkeypatch, server, workers):
    show(monkeypatch, active="inactive/dead")
    result = check(server, workers, unit="llama-head-chat")
    assert state(result) == (
        "degraded",
        "it answers, but not from llama-head-chat, which is inactive: another process has the port",
    )
    assert [worker["connected"] for worker in result["workers"]] == [False, False]


def test_unknown_unit_is_refused(monkeypatch, server):
    show(monkeypatch, active="inactive/dead", load="not-found")
    with pytest.raises(Refusal, match="^unit llama-head-chat does not exist on this node: "):
        check(server, unit="llama-head-chat")


def test_unit_without_file_is_probed(monkeypatch, server):
    show(monkeypatch, os.getpid(), load="not-found")
    assert check(server, unit="llama-head-chat")["state"] == "ready"


# A real completion.


def test_a_completion_over_all_workers(server, workers):
    def complete():
        workers[0].work(sent=500, received=60)
        workers[1].work(sent=400, received=70)
        return fake.answer()

    server.responses[CHAT] = complete
    result = check(server, workers, timeout=5)
    assert result["state"] == "ready"
    assert result["reason"].startswith("it answered 8 tokens in ")
    assert (result["answer"], result["tokens"], result["prompt_tokens"]) == ("Blue, as the sky.", 8, 34)
    assert (result["tokens_per_second"], result["prompt_tokens_per_second"]) == (58.25, 125.5)
    assert result["seconds_to_answer"] > 0
    assert [(worker["bytes_sent"], worker["bytes_received"]) for worker in result["workers"]] == [(500, 60), (400, 70)]
    assert [request["max_tokens"] for request in server.asked(CHAT)] == [8]


def test_a_completion_without_a_worker_degrades(server, workers):
    server.responses[CHAT] = lambda: workers[0].work() or fake.answer()
    result = check(server, workers, timeout=5)
    assert state(result) == (
        "degraded",
        "it answers, but not over %s: compare tensor_split with --rpc" % workers[1].endpoint,
    )


def test_unknown_counters_leave_the_answer_enough(monkeypatch, server, workers):
    monkeypatch.setattr(sockets, "counters_of", lambda _ends: None)
    result = check(server, workers, timeout=5)
    assert (result["state"], result["workers"][0]["bytes_sent"]) == ("ready", None)


def test_reasoning_is_an_answer_too(server):
    server.responses[CHAT] = fake.answer(content="", reasoning_content="The user wants")
    assert check(server, timeout=5)["answer"] == "The user wants"


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (
            (500, {"error": {"message": "Compute error."}}),
            ("degraded", "a completion is answered 500 (Compute error.)"),
        ),
        ((200, "<html>"), ("degraded", "a completion is answered 200 (<html>)")),
        (fake.LOADING, ("loading", "a completion is answered 503 (Loading model)")),
        (fake.answer(tokens=0, content=""), ("degraded", "a completion is answered without a token")),
    ],
)
def test_an_answer_that_is_none(server, response, expected):
    server.responses[CHAT] = response
    result = check(server, timeout=5)
    assert state(result) == expected


def test_head_dying_of_completion_is_down(server):
    def die():
        server.responses["/health"] = fake.CUT
        return fake.CUT

    server.responses[CHAT] = die
    cut = "Remote end closed connection without response"
    assert state(check(server, timeout=5)) == (
        "down",
        "it broke off while it answered a completion (%s); now: %s" % (cut, cut),
    )


def test_head_breaking_off_is_degraded(server):
    server.responses[CHAT] = fake.CUT
    result = check(server, timeout=5)
    assert result["state"] == "degraded"
    assert result["reason"].endswith("now: it is idle")


def test_no_answer_and_no_progress_degrades(server):
    server.responses[CHAT] = server.silent
    result = check(server, timeout=0.1)
    assert (state(result), result["progress"]) == (
        ("degraded", "no answer to a completion in 0.1 s, no progress since"),
        False,
    )


def test_no_turn_while_others_make_progress_is_busy(server):
    probes = itertools.count()
    server.responses[CHAT] = server.silent
    server.responses["/metrics"] = lambda: fake.metrics(next(probes), processing=int(bool(server.asked(CHAT))))
    server.responses["/slots"] = (200, [fake.WORKING])
    result = check(server, timeout=0.1)
    assert (state(result), result["progress"]) == (
        ("busy", "no turn for a completion in 0.1 s, other requests make progress"),
        True,
    )


def test_an_answer_later_than_allowed_degrades(server):
    decoded = itertools.count(100)
    server.responses[CHAT] = server.silent
    server.responses["/metrics"] = lambda: fake.metrics(next(decoded))
    result = check(server, timeout=1)
    assert (state(result), result["progress"]) == (("degraded", "no answer to a completion in 1 s"), True)


# A server at work is judged by its progress, never by a completion.


def working(server):
    server.responses["/slots"] = (200, [fake.WORKING])


def progress(server, workers=(), timeout=0.2):
    result = check(server, workers, timeout=timeout)
    assert server.asked(CHAT) == []
    return result["state"], result["progress"]


def test_token_of_the_watchdog_is_waited_for(server, monkeypatch):
    monkeypatch.setattr(serving_health, "MOMENT", 30)
    looks = itertools.count(1)
    server.responses["/metrics"] = lambda: fake.metrics(processing=int(next(looks) < 3))
    server.responses["/slots"] = (200, [fake.WORKING])
    result = check(server, timeout=30)
    assert (result["state"], result["tokens"]) == ("ready", 8)


def test_progress_by_decode_counter(server):
    decoded = itertools.count(100)
    working(server)
    server.responses["/metrics"] = lambda: fake.metrics(next(decoded), 1)
    assert progress(server, timeout=30) == ("busy", True)


def test_progress_by_slot(server):
    processed = itertools.count(2048, 512)
    working(server)
    server.responses["/slots"] = lambda: (200, [dict(fake.WORKING, n_prompt_tokens_processed=next(processed))])
    assert progress(server, timeout=30) == ("busy", True)


def test_progress_by_bytes_to_a_worker(server, workers):
    working(server)

    def slots():
        workers[1].work()
        return 200, [fake.WORKING]

    server.responses["/slots"] = slots
    assert progress(server, workers, timeout=30) == ("busy", True)


def test_progress_by_an_answer_between_batches(server):
    working(server)
    looks = itertools.count(1)

    def slots():
        return server.silent() if next(looks) < 3 else (200, [fake.WORKING])

    server.responses["/slots"] = slots
    assert progress(server, timeout=30) == ("busy", True)


def test_no_progress_degrades(server):
    working(server)
    assert progress(server) == ("degraded", False)


def test_what_a_queue_does_is_no_progress(server):
    waiting = itertools.count(1)
    working(server)
    server.responses["/metrics"] = lambda: (
        200,
        "llamacpp:n_decode_total 96\nllamacpp:requests_deferred %d\n" % next(waiting),
    )
    assert progress(server) == ("degraded", False)


def test_bytes_to_worker_are_no_progress(server, workers):
    working(server)

    def slots():
        workers[1].head.sendall(b"next graph")
        return 200, [fake.WORKING]

    server.responses["/slots"] = slots
    assert progress(server, workers) == ("degraded", False)


def test_no_progress_names_the_worker_it_waits_for(server, workers):
    working(server)
    workers[0].work()
    workers[1].work()
    time.sleep(0.05)  # so that the kernel's milliseconds tell the request from the answer before it
    workers[1].head.sendall(b"next graph")
    result = check(server, workers, timeout=0.2)
    assert state(result) == (
        "degraded",
        "1 of 1 slots work, no progress in 0.2 s: it waits for %s" % workers[1].endpoint,
    )


@pytest.mark.parametrize("odd", [None, 1e300, [[]], {"next_token": "x"}], ids=str)
@pytest.mark.parametrize("path", ["/health", "/props", "/slots", "/metrics", CHAT])
def test_answers_of_any_shape_end_in_a_state(server, path, odd):
    for body in (
        odd,
        [odd],
        {"choices": odd, "usage": odd, "timings": odd, "default_generation_settings": odd},
        {"choices": [odd], "usage": {"completion_tokens": odd}},
    ):
        server.responses[path] = (200, body)
        assert check(server, timeout=0.05)["state"] in serving_health.STATES


class Api:
    """Loads until it has been asked a few times; time passes by what is slept."""

    model = None

    def __init__(self, monkeypatch, looks):
        self.looks, self.now, self.timeouts, self.sleeps = looks, 100.0, set(), []
        monkeypatch.setattr(serving_health, "POLL", POLL)
        monkeypatch.setattr(serving_health, "LOOK", LOOK)
        monkeypatch.setattr(llama_server, "ANSWER", LOOK)
        monkeypatch.setattr(serving_health.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(serving_health.time, "sleep", self.sleep)

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.now += seconds

    def get(self, path, timeout, of_model=False):
        self.timeouts.add(timeout)
        if path == "/health":
            self.looks -= 1
            return (503, {"error": {"message": "Loading model"}}) if self.looks >= 0 else (200, {"status": "ok"})
        return 404, {}


@pytest.mark.parametrize(
    ("looks", "wait", "state", "waited"),
    [
        (0, 0, "ready", 0.0),
        (0, 10, "ready", 0.0),
        (3, 10, "ready", 1.5),
        (99, 2, "loading", 2.0),
        (99, 0, "loading", 0.0),
    ],
)
def test_head_is_probed_every_half_second(monkeypatch, looks, wait, state, waited):
    api = Api(monkeypatch, looks)
    result = serving_health.Head(api).check(wait)
    assert (result["state"], result["waited"]) == (state, waited)
    assert api.timeouts == {5} and set(api.sleeps) <= {0.5} and sum(api.sleeps) == waited
    assert bool(result["waited_for"]) is (waited > 0)


@pytest.mark.parametrize(("tokens", "rate"), [(0, None), (1, None), (2, 58.25)])
def test_a_rate_needs_two_tokens(server, tokens, rate):
    server.responses[CHAT] = fake.answer(tokens=tokens)
    assert check(server, timeout=5)["tokens_per_second"] == rate


@pytest.mark.parametrize(
    ("started", "now", "given_up"), [((3, 5), 2, False), ((3, 6), 3, True), ((9, 0, 2), 2, False), ((9, 0, 3), 3, True)]
)
def test_three_ends_since_the_first_look_are_hopeless(monkeypatch, started, now, given_up):
    """A manual start resets the count."""
    head, shown = serving_health.Head(None, unit="u"), {"ActiveState": "activating"}
    for count in started:
        result = {"state": "loading", "reason": "it loads"}
        hopeless = head._fails_for_good(result, dict(shown, NRestarts=str(count)))
    assert hopeless is given_up
    assert result == (
        {"state": "down", "reason": "u has ended %d times and never served" % now}
        if given_up
        else {"state": "loading", "reason": "it loads"}
    )


@pytest.mark.parametrize(
    ("body", "parsed"),
    [
        ({"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]}, ("a", 0, None)),
        ({"usage": {"completion_tokens": 3, "prompt_tokens": 9}, "timings": {"predicted_n": 4}}, ("", 3, 9)),
        ({"timings": {"predicted_n": 4, "prompt_n": 8}}, ("", 4, 8)),
        ({"choices": []}, ("", 0, None)),
    ],
)
def test_answer_is_parsed(body, parsed):
    result = {}
    serving_health._read_answer(result, body)
    assert (result["answer"], result["tokens"], result["prompt_tokens"]) == parsed
