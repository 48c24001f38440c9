# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decisions of the engine without connections: paths, routes, replicas, queues, watched files."""

import json
import os
import re
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway import (
    affinity,
    body,
    config,
    events,
    handlers,
    http_body,
    paths,
    probes,
    request,
    routing,
    upstream,
    watched,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._gateway.replicas import (
    DOWN,
    DRAINING,
    FULL,
    LOADING,
    READY,
    STOPPED,
    WAIT,
    Drained,
    Fleet,
    Waiter,
)
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal


def service(name="big", endpoints=1, slots=2, **keys):
    entry = {
        "models": [{"name": name, "aliases": [name.upper()]}],
        "endpoints": [
            {"node": "n%d" % (at + 1), "address": "10.0.0.%d" % (at + 1), "port": 8000, "slots": slots}
            for at in range(endpoints)
        ],
    }
    return {name: dict(entry, **keys)}


def parsed(services, **keys):
    return config.parse(dict({"version": 1, "services": services}, **keys))


def fleet(services, *seen):
    """Its endpoints in these states."""
    made = Fleet()
    made.configure(parsed(services), 0, 0)
    for endpoint, state in zip(made.endpoints(), seen):
        made.observe(endpoint, state, 0, 0)
    return made


def talk(*contents, roles=("user", "assistant")):
    messages = [{"role": roles[at % len(roles)], "content": content} for at, content in enumerate(contents)]
    return affinity.conversation("/v1/chat/completions", {"messages": messages}).of("big")


@pytest.mark.parametrize(
    "target, path",
    [
        ("/v1/chat/completions?a=%2e", "/v1/chat/completions"),
        ("//v1///models/", "/v1/models/"),
        ("/v1/../slots", "/slots"),
        ("/%76%31/%6dodels", "/v1/models"),
        ("/a%2F..%2fslots", "/slots"),
        ("/../../slots/.", "/slots/"),
        ("/", "/"),
    ],
)
def test_path_is_normalised(target, path):
    assert paths.normalise(target).path == path


@pytest.mark.parametrize(
    "target",
    ["*", "http://x/", "/%2573lots", "/a b", "/a%00", "/a%0d%0ab", "/a\\b", "/a#b", "/%ff", "/a?b#c", "/a%3Fb"],
)
def test_ambiguous_path_is_refused(target):
    assert paths.normalise(target) is None


def test_sent_path_is_the_judged_one():
    assert paths.normalise("/v1/x%22y%3Cz?q=1&%41").sent == "/v1/x%22y%3Cz"
    assert paths.normalise("/v1/props?model=big&autoload=true").sent == "/v1/props"


@pytest.mark.parametrize(
    "method, path, closed",
    [
        ("GET", "/slots", True),
        ("GET", "/SLOTS/0", True),
        ("GET", "/v1/slots;x", True),
        ("GET", "/models;a/load;b", True),
        ("GET", "/v1/slots", True),
        ("POST", "/models/load", True),
        ("GET", "/v1/models/unload", True),
        ("POST", "/any/where/models/load", True),
        ("POST", "/props", True),
        ("PUT", "/props/", True),
        ("POST", "/lora-adapters", True),
        ("DELETE", "/models", True),
        ("GET", "/props", False),
        ("GET", "/models", False),
        ("GET", "/lora-adapters", False),
        ("POST", "/v1/chat/completions", False),
        ("GET", "/slotsmachine", False),
        ("GET", "/v1/stream", True),
        ("DELETE", "/v1/stream", True),
        ("POST", "/v1/streams/lookup", True),
        ("POST", "/v1/chat/completions/control", True),
        ("POST", "/tools", True),
        ("OPTIONS", "/props", False),
    ],
)
def test_closed_paths(method, path, closed):
    assert paths.is_closed(method, path) is closed
    assert not (closed and paths.is_open(method, path))


def test_paths_that_take_a_slot():
    assert paths.takes_slot("POST", "/v1/embeddings")
    assert not paths.takes_slot("GET", "/metrics")
    assert not paths.takes_slot("POST", "/v1/messages/count_tokens")


@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "/v1/chat/completions/"),
        ("POST", "/V1/chat/completions"),
        ("POST", "/v1/v1/chat/completions"),
        ("POST", "/v1/chat/completions;x"),
        ("GET", "/v1/models/x"),
        ("GET", "/models/sse"),
        ("POST", "/health"),
        ("PUT", "/v1/chat/completions"),
        ("GET", "/"),
        ("GET", "/what/a/later/build/has"),
    ],
)
def test_paths_that_are_not_listed_are_not_open(method, path):
    assert not paths.is_open(method, path)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/rerank", "/infill", "/completion", "/v1/tokenize"])
def test_listed_paths_are_open(path):
    assert paths.is_open("POST", path) and not paths.is_open("GET", path)


@pytest.mark.parametrize(
    "data, words",
    [
        ("{", "Expecting"),
        ("[]", "TypeError"),
        ("{}", "KeyError: 'version'"),
        ('{"version": 2}', "version or auth"),
        ('{"version": 1, "auth": "no"}', "version or auth"),
        ('{"version": 1, "services": {"a": {"endpoints": [{"node": "n"}]}}}', "KeyError: 'address'"),
        ('{"version": 1, "services": {"a": []}}', "AttributeError"),
        ('{"version": 1, "services": {"a": {"fallback": "b"}}}', "no service b, the fallback of a"),
    ],
)
def test_unusable_configuration_is_refused(tmp_path, data, words):
    (tmp_path / "gateway.json").write_text(data)
    with pytest.raises(Refusal, match=re.escape(words)) as refusal:
        config.load(str(tmp_path))
    assert str(refusal.value).endswith("run site.yml with --tags gateway again")


def test_missing_configuration_is_refused(tmp_path):
    with pytest.raises(Refusal, match="cannot be read"):
        config.load(str(tmp_path))


def test_own_names_come_before_aliases():
    services = {
        **service("a", state="stopped", models=[{"name": "m", "aliases": []}]),
        **service("b", models=[{"name": "x", "aliases": ["m", "y"]}]),
        **service("c", models=[{"name": "m", "aliases": ["y"]}]),
    }
    assert parsed(services).names == {"x": ("b", "x"), "m": ("c", "m"), "y": ("b", "x")}


def test_routes():
    made = parsed(
        {**service("big"), **service("r", kind="router", models=[{"name": "m1", "aliases": ["M1"]}, {"name": "m2"}])},
        routes={"default": "big", "tasks": {"t": "M1"}},
        unserved={"deep": "no room for it"},
        unknown_model="default",
    )
    assert routing.of_model(made, None, "BIG")[:3] == (made.services["big"], "big", None)
    assert routing.of_model(made, None, "M1")[1:3] == ("m1", "m1")
    assert routing.of_model(made, None, "m2")[1:3] == ("m2", None)
    assert routing.of_model(made, "t", "big")[1:3] == ("m1", "m1")
    assert routing.of_model(made, "no", "m2")[1:] == ("big", "big", "default; unknown task no")
    assert routing.of_model(made, None, "unknown")[1:3] == ("big", "big")
    assert routing.of_model(made, None, None)[1:3] == ("big", "big")
    refused = routing.of_model(made, None, "deep")
    assert (refused.status, json.loads(refused.body)["error"]["message"]) == (400, "no room for it")
    assert routing.of_model(made._replace(unknown_model="404"), None, "deep").status == 404
    strict = made._replace(unknown_model="400", default=None)
    assert routing.of_model(strict, None, "BIGG").status == 400
    assert routing.of_model(strict, "no", "big").status == 404
    assert routing.of_model(strict, None, 7).status == 400
    assert routing.of_tier(strict, "none", "big").status == 503


def test_texts_of_clients_break_no_header():
    made = parsed(service("big"), routes={"default": "big"})
    assert routing.of_model(made, "a\r\nX: 1\u2028", "big").note == "default; unknown task a??X: 1?"


def test_most_free_slots():
    made = fleet(service(endpoints=3), READY, READY, LOADING).pools["big"]
    assert [made.take("big", affinity.NONE).where.node for _one in range(4)] == ["n1", "n2", "n1", "n2"]
    assert made.take("big", affinity.NONE) == WAIT


def test_conversation_stays_with_its_replica():
    made = fleet(service(endpoints=2, slots=4), READY, READY).pools["big"]
    first = made.take("big", talk("q1"))
    for _one in range(2):
        made.take("big", talk("another"))
    assert made.take("big", talk("q1", "a1", "q2")) is first
    # Without a free slot there, elsewhere.
    first.taken["big"] = 4
    assert made.take("big", talk("q1", "a1", "q2", "a2", "q3")) is not first


def test_shared_system_prompt_does_not_attract():
    made = fleet(service(endpoints=2, slots=4), READY, READY).pools["big"]
    first = made.take("big", talk("you are", "q1", roles=("system", "user")))
    assert made.take("big", talk("you are", "other", roles=("system", "user"))) is not first


def test_prompts_are_known_by_their_beginning():
    text = "x" * 3000
    memory = affinity.Memory()

    def of(text, model="m"):
        return affinity.conversation("/completion", {"prompt": text}).of(model)

    memory.add(of(text))
    assert memory.known(of(text + "y" * 5000)) == 2
    assert memory.known(of(text, "other")) == 0
    for at in range(affinity.REMEMBERED):
        memory.add(affinity.Conversation((at,)))
    assert memory.known(of(text)) == 0


def test_known_part_of_a_conversation_is_bounded():
    image = {"type": "image_url", "image_url": {"url": "data:" + "A" * (8 << 20)}}
    one = {"role": "user", "content": [{"type": "text", "text": "hi"}, image, *[{"x": at} for at in range(100000)]]}
    began = time.thread_time()
    found = affinity.conversation("/v1/chat/completions", {"messages": [one] * 100000, "tools": [{}] * 100000})
    assert time.thread_time() - began < 1
    assert len(found.parts) == affinity.PARTS
    assert len(affinity.conversation("/completion", {"prompt": "x" * (8 << 20)}).parts) == affinity.PARTS


def test_responses_stay_with_their_replica():
    def of(value, **keys):
        return affinity.conversation("/v1/responses", dict({"input": value}, **keys)).parts

    first = of("hi", instructions="be short")
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]}
    turn = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    second = of([turn, answer, {"role": "user", "content": "and?"}], instructions="be short")
    assert len(first) == 1 and len(second) == 3
    assert second[0] == first[0] != of("hi", instructions="be long")[0]
    # Items without content, such as the result of a tool, differ by what they have.
    assert of([{"type": "function_call_output", "output": "1"}]) != of(
        [{"type": "function_call_output", "output": "2"}]
    )
    assert affinity.conversation("/v1/embeddings", {"input": "hi"}) == affinity.NONE


def test_different_texts_differ():
    def of(content):
        return talk(content).parts

    assert of("a") != of("b") != of("a" * 5000) != of("a" * 5001)
    assert of([{"type": "text", "text": "a"}]) == of("a")
    assert of(None) != of(1) != of(["x", {"y": None}]) != of([])


@pytest.mark.parametrize(
    "data, asked",
    [
        (b'{"model": "a", "x": 1e999, "y": 0.10} \n', "a"),
        (b'\xef\xbb\xbf{"model": "a"}', "a"),
        (b'{"model": "a", "model": "b"}', "b"),
        (b'{"model": ["a"]}', False),
        (b'{"model": null}', None),
        (b"{ }", None),
        (b'{"x": "}{"}', None),
        (b'{"n": ' + b"1" * 100000 + b', "model": "a"}', "a"),
        (b'{"model": "' + b"x" * 5000 + b'"}', "x" * 1024),
    ],
)
def test_rewritten_body_keeps_all_else(data, asked):
    read = body.read("/v1/chat/completions", data)
    assert read.asked == asked
    named = read.named(data, 'o"ther')
    kept = data[: data.rindex(b"}")]
    assert named.startswith(kept) and json.loads(named.decode("utf-8-sig"), parse_int=float)["model"] == 'o"ther'


@pytest.mark.parametrize(
    "data, words",
    [
        (b"\xff\xfe{\0", "no UTF-8 seen"),
        (b"[1,2]", "list seen"),
        (b"--B\r\n\r\nx\r\n--B--", "no JSON seen"),
        (b"", "no JSON seen"),
        (b"[" * 200000, "JSON that is nested too deeply seen"),
        (b'{"x":[' + b"{}," * (1 << 20), "colons and brackets seen, at most 524288"),
        (b'{"x":{' + b'"a":1,' * (1 << 19), "colons and brackets seen, at most 524288"),
    ],
)
def test_unreadable_bodies_are_refused(data, words):
    refused = body.read("/v1/chat/completions", data)
    assert words in json.loads(refused.body)["error"]["message"]
    assert refused.status == (413 if "at most" in words else 400)


def said(*parts):
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "http://a.b"}, *parts]}]}


def result(part):
    return said({"type": "tool_result", "content": [part]})


@pytest.mark.parametrize(
    "sent, refused",
    [
        (said({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR=="}}), False),
        (said({"type": "image_url", "image_url": {"url": "iVBORw0KGgo="}}), False),
        (said({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}), False),
        (said({"type": "tool_use", "input": {"type": "page", "source": "http://a.b"}}), False),
        (said({"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}}), True),
        (said({"type": "image_url", "image_url": {"url": "httpx"}}), True),
        (said({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}), True),
        (said({"type": "input_audio", "input_audio": {"data": "https://a.b/c.wav"}}), True),
        (said({"type": "video_url", "video_url": {"url": "http://a.b/c.mp4"}}), True),
        (result({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}), False),
        (result({"type": "image", "source": {"type": "url", "url": "http://a.b"}}), True),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://a.b"}]}]}, True),
        ({"prompt": "http://a.b", "lora": [{"id": 0, "scale": 0}]}, True),
        ({"prompt": "lora", "input": [[1, 2], {"image_url": 1, "type": ["image"]}]}, False),
    ],
)
def test_remote_media_and_lora_are_refused(sent, refused):
    read = body.read("/v1/chat/completions", json.dumps(sent).encode())
    assert (getattr(read, "status", 0) == 400) is refused


def test_body_of_many_values_is_searched_fast():
    start = time.monotonic()
    body.read("/v1/chat/completions", b'{"input": [' + b"[]," * 170000 + b"[]]}")
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("data", [b"", b"\xff", b'{"model":"a"}\0{"model":"b"}', b'\0{"model":"a"}'])
def test_tokenize_needs_an_object_too(data):
    assert body.read("/v1/tokenize", data).status == 400


@pytest.mark.parametrize(
    "answer, seen", [(b"[1, 2]", [1, 2]), (b"9" * 200000, float("inf")), (b"no", None), (b"[" * 200000, None)]
)
def test_answers_of_servers_are_read_fast(answer, seen):
    start = time.monotonic()
    assert probes._json((200, answer)) == seen
    assert time.monotonic() - start < 1


def test_new_process_has_read_nothing():
    made = fleet(service(endpoints=2), READY, READY)
    pool, endpoint = made.pools["big"], made.endpoints()[1]
    endpoint.memory.add(talk("q1"))
    made.observe(endpoint, DOWN, 1, 1)
    made.observe(endpoint, READY, 2, 2)
    assert pool.take("big", talk("q1")).where.node == "n1"


def test_queue_is_ordered_and_bounded():
    made = fleet(service(slots=1, queue=2), READY).pools["big"]
    held = made.take("big", affinity.NONE)
    granted = []
    for name in ("first", "second"):
        assert made.take("big", affinity.NONE) == WAIT
        made.wait(Waiter("big", affinity.NONE, lambda one, name=name: granted.append((name, one))))
    assert made.take("big", affinity.NONE) == FULL
    made.release(held, "big")
    assert granted == [("first", held)]
    assert made.take("big", affinity.NONE) == WAIT, "no request overtakes"
    made.release(held, "big")
    assert [name for name, _one in granted] == ["first", "second"]


def test_each_model_of_a_router_has_slots():
    made = fleet(service("r", slots=1, kind="router", models=[{"name": "a"}, {"name": "b"}]), READY).pools["r"]
    assert made.take("a", affinity.NONE).free("a") == 0
    granted = []
    made.wait(Waiter("a", affinity.NONE, granted.append))
    assert made.take("b", affinity.NONE) in made.endpoints
    assert granted == []


@pytest.mark.parametrize(
    "seen, drained, state, answer",
    [
        ([READY, DOWN], [], READY, "n1"),
        ([DOWN, LOADING], [], LOADING, LOADING),
        ([DOWN, DOWN], [], DOWN, DOWN),
        ([READY, READY], ["change", None], READY, "n2"),
        ([READY, DOWN], ["change", None], DRAINING, WAIT),
        ([DOWN, LOADING], ["change", "change"], DRAINING, WAIT),
        ([READY, DOWN], ["maintenance", None], DRAINING, DOWN),
        ([READY, LOADING], ["maintenance", None], DRAINING, LOADING),
    ],
)
def test_states(seen, drained, state, answer):
    made = fleet(service(endpoints=2), *seen)
    made.drain(Drained("big", "n%d" % (at + 1), reason) for at, reason in enumerate(drained) if reason)
    granted = made.pools["big"].take("big", affinity.NONE)
    assert made.pools["big"].state == state
    assert (granted if isinstance(granted, str) else granted.where.node) == answer


def test_a_stopped_service():
    made = fleet(service(state="stopped"), READY)
    assert (made.pools["big"].state, made.pools["big"].take("big", affinity.NONE)) == (STOPPED, STOPPED)
    assert made.status(0)["big"]["endpoints"][0]["state"] == STOPPED


def test_waiter_of_a_change_waits_until_ready():
    made = fleet(service(), READY)
    endpoint, pool, granted = made.endpoints()[0], made.pools["big"], []
    made.drain([Drained("big", "n1", "change")])
    pool.wait(Waiter("big", affinity.NONE, granted.append))
    made.observe(endpoint, DOWN, 1, 1)
    made.observe(endpoint, LOADING, 2, 2)
    assert made.drain([]) == [endpoint]
    made.observe(endpoint, LOADING, 3, 3)
    assert (granted, endpoint.state) == ([], DRAINING)
    made.observe(endpoint, READY, 4, 4)
    assert (granted, endpoint.state) == ([endpoint], READY)


def test_waiter_learns_that_service_is_down():
    made = fleet(service(slots=1), READY)
    granted = []
    made.pools["big"].take("big", affinity.NONE)
    made.pools["big"].wait(Waiter("big", affinity.NONE, granted.append))
    made.observe(made.endpoints()[0], DOWN, 1, 1)
    assert granted == [DOWN]


def test_seconds_left_are_those_of_the_last_load():
    made = fleet(service(), DOWN)
    endpoint = made.endpoints()[0]
    made.observe(endpoint, LOADING, 10, 10)
    assert made.pools["big"].seconds_left(20) is None
    made.observe(endpoint, READY, 70, 70)
    made.observe(endpoint, LOADING, 100, 100)
    assert made.pools["big"].seconds_left(120) == 40
    assert made.pools["big"].seconds_left(161) is None
    # The load time of a server that was loading at the engine's start is unknown.
    other = fleet(service(), LOADING)
    other.observe(other.endpoints()[0], READY, 5, 5)
    assert other.endpoints()[0].load is None


@pytest.mark.parametrize(
    "patience, seen, answer",
    [
        (60, [(READY, 0), (DOWN, 10)], {11: WAIT, 69: WAIT, 71: DOWN}),
        (60, [(READY, 0), (DOWN, 10), (LOADING, 12)], {69: WAIT, 71: LOADING}),
        (0, [(READY, 0), (DOWN, 10)], {10: DOWN}),
        # By its last load, of 30 and of 300 s.
        (60, [(LOADING, 0), (READY, 30), (DOWN, 40), (LOADING, 95)], {95: WAIT, 184: WAIT, 186: LOADING}),
        (60, [(LOADING, 0), (READY, 300), (DOWN, 310)], {311: DOWN}),
        (60, [(LOADING, 0), (READY, 300), (DOWN, 310), (LOADING, 311)], {312: LOADING, 552: WAIT, 670: WAIT}),
        # It never was there.
        (60, [(DOWN, 1)], {2: DOWN}),
        (60, [(LOADING, 1)], {2: LOADING}),
    ],
)
def test_service_is_expected_back_by_its_load(patience, seen, answer):
    made = fleet(service(patience=patience), DOWN)
    for state, now in seen:
        made.observe(made.endpoints()[0], state, now, now)
    pool = made.pools["big"]
    assert {now: pool.take("big", affinity.NONE, now) for now in answer} == answer
    assert pool.take("big", affinity.NONE) in (DOWN, LOADING), "who has another service to go to does not wait"


def test_patient_waiter_ends_after_patience():
    made, granted = fleet(service(slots=1), READY), []
    endpoint, pool = made.endpoints()[0], made.pools["big"]
    made.observe(endpoint, DOWN, 1, 1)
    pool.wait(Waiter("big", affinity.NONE, granted.append, patient=True))
    made.observe(endpoint, DOWN, 60, 60)
    assert granted == []
    made.observe(endpoint, DOWN, 62, 62)
    assert granted == [DOWN]
    made.drain([Drained("big", "n1", "maintenance")])
    assert pool.take("big", affinity.NONE, 30) == DOWN


def test_new_configuration_keeps_known_endpoints():
    made = fleet(service(endpoints=2), READY, READY)
    endpoint = made.pools["big"].take("big", talk("q1"))
    new = made.configure(parsed({**service(endpoints=3), **service("other")}), 1, 1)
    assert [one.place for one in new] == [("big", "10.0.0.3", 8000), ("other", "10.0.0.1", 8000)]
    assert (endpoint.ready, endpoint.free("big")) == (True, 1)
    assert made.pools["big"].endpoints[0] is endpoint
    granted = []
    made.pools["big"].wait(Waiter("big", affinity.NONE, granted.append))
    made.configure(parsed(service("other")), 2, 2)
    assert granted == [DOWN]


def test_request_before_the_first_probe_waits():
    made, granted = fleet(service()), []
    pool = made.pools["big"]
    assert pool.take("big", affinity.NONE) == WAIT
    pool.wait(Waiter("big", affinity.NONE, granted.append))
    made.observe(made.endpoints()[0], DOWN, 1, 1)
    assert (granted, pool.take("big", affinity.NONE)) == ([DOWN], DOWN)


def test_endpoints_of_a_registry():
    made = parsed(service(), registry={"hosts": {"n1": "10.0.0.1", "n2": "10.0.0.2"}})
    entry = {"service": "big", "node": "n2", "address": "10.0.0.2", "port": 9, "slots": 3, "models": ["z"], "tier": "t"}
    known = dict(entry, node="n1", address="10.0.0.1", port=8000, state="draining")
    own = dict(entry, service="job", models=["job-model", "Job"], port=7, slots=None, slot_ctx_size=512)
    strange = [
        None,
        7,
        dict(entry, address="6.6.6.6"),
        {"service": "x"},
    ]
    merged, drained = watched.merged(made, {"endpoints": [entry, known, own, *strange]})
    # A service with servers in the inventory gets no other server; a service of jobs has only servers of files.
    assert [one[1:] for one in merged.services["big"].endpoints] == [("10.0.0.1", 8000, 2, 2)]
    jobs = dict(entry, slots=4096)
    empty = parsed(service(endpoints=0), registry={"hosts": {"n2": "10.0.0.2"}})
    added = watched.merged(empty, {"endpoints": [jobs]})[0].services["big"].endpoints
    assert [one[1:] for one in added] == [("10.0.0.2", 9, 64, 64)]
    assert drained == [Drained("big", "10.0.0.1:8000", "change")]
    assert merged.names["Job"] == ("job", "job-model")
    # One whose file tells no slots is asked for them.
    assert (merged.tiers, merged.services["job"].endpoints[0][3:]) == ({"t": "job"}, (1, 64))
    assert watched.merged(made._replace(hosts={}), {"endpoints": [entry]})[0].services == made.services


def test_entries_that_drain():
    entries = [
        {"service": "a", "node": "n", "reason": "maintenance"},
        {"service": "a", "node": "m", "held": "x"},
        7,
        {},
    ]
    assert watched.drained({"endpoints": entries}) == [Drained("a", "n", "maintenance"), Drained("a", "m", "change")]


def test_watched_file(tmp_path, capfd):
    path = tmp_path / "f"
    file = watched.Watched(str(path), {"endpoints": []})
    assert not file.look()
    path.write_text('{"endpoints": [1]}')
    assert file.look()
    assert not file.look()
    for broken in ("{", "[]", '{"endpoints": 1}', "[" * 100000):
        path.write_text(broken)
        assert not file.look()
        assert file.value == {"endpoints": [1]}
    assert capfd.readouterr().out.count("cannot be read") == 4
    path.unlink()
    assert file.look()
    assert file.value == {"endpoints": []}
    kept = watched.Watched(str(path), None)
    path.write_text('{"endpoints": [1]}')
    assert kept.look()
    path.unlink()
    os.mkfifo(path)
    assert not kept.look()
    assert "cannot be read" in capfd.readouterr().out
    path.unlink()
    assert not kept.look()
    assert kept.value == {"endpoints": [1]}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_where_chunks_end(size):
    body = b"5\r\nhello\r\n1A;x=y\r\n" + b"z" * 26 + b"\r\n0\r\nTrailer: 1\r\n\r\n"
    data, chunks, content = body + b"more", http_body.Chunks(), b""
    for at in range(0, len(data), size):
        content += chunks.feed(data[at : at + size])
    assert chunks.done and content == b"hello" + b"z" * 26


@pytest.mark.parametrize(
    "stream, alive",
    [
        (b": ping\n\n", False),
        (b":\r\n\r\n\n\n", False),
        (b":data: x\n\n", False),
        (b"event: ping\n\nid: 5\nretry: 1000\n\n", False),
        (b'event: ping\ndata: {"type": "ping"}\n\n', False),
        (b"event: ping\r\ndata: {}\r\n\r\n", False),
        (b": data\ndatum: x\n", False),
        (b"data: x\n", True),
        (b"data\n", True),
        (b"event: ping\ndata: 1\n\ndata: 2\n\n", True),
        (b"event: delta\rdata: 1\r\r", True),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_only_data_counts_as_an_event(stream, alive, size):
    seen = events.Events()
    data = [seen.feed(stream[at : at + size]) for at in range(0, len(stream), size)]
    assert any(data) is alive


@pytest.mark.parametrize("data", [b"\r\n", b"x\r\n", b"-1\r\n", b"5\n", b"1" * 5000])
def test_malformed_chunks_are_errors(data):
    with pytest.raises(ValueError):
        http_body.Chunks().feed(data)


def test_head_of_a_server_as_clients_get_it():
    headers = "X-Llama-Node: other", "Content-Length: 3", "Keep-Alive: 5", "Access-Control-Allow-Origin: http://o"
    head = upstream.Head(("\r\n".join(["HTTP/1.1 200 OK", *headers]) + "\r\n\r\n").encode(), "GET")
    assert head.sent([("X-Llama-Node", "n1")]).decode().split("\r\n") == [
        *("HTTP/1.1 200 OK", "content-length: 3", "Access-Control-Allow-Origin: *", "Access-Control-Expose-Headers: *"),
        *("X-Llama-Node: n1", "Connection: close", "", ""),
    ]
    for wrong in (
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        with pytest.raises(upstream.Broken):
            upstream.Head(wrong, "GET")
    assert upstream.Head(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD").body.done


@pytest.mark.parametrize("tier", ["", "X-Llama-Tier: fast\r\n"])
@pytest.mark.parametrize("path", ["/health", "/v1/health", "/v1/chat/completions"])
def test_bodies_need_a_key(path, tier):
    """A body without a key is not read."""

    class state:
        config = parsed(service(tier="fast"), auth="required")

    def status(method):
        head = request.parse(("%s %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (method, path, tier)).encode())
        answer = handlers.refused(state, head, False)
        return answer and answer.status

    assert status("POST") == 401
    assert status("GET") == (401 if path == "/v1/chat/completions" else None)
    assert status("OPTIONS") == 204


@pytest.mark.parametrize("path", ["/clients/x", "/status"])
def test_pages_are_only_at_the_own_port(path):
    class state:
        config = parsed(service(tier="fast"), auth="required")

    def status(method, tier=""):
        head = request.parse(("%s %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (method, path, tier)).encode())
        answer = handlers.refused(state, head, False)
        return answer and answer.status

    assert (status("POST"), status("GET"), status("GET", "X-Llama-Tier: fast\r\n")) == (401, None, 404)


def test_keys_of_a_request():
    def key(*headers):
        lines = ["GET / HTTP/1.1", "Host: x", *headers]
        return request.parse(("\r\n".join(lines) + "\r\n\r\n").encode()).key

    assert key("Authorization: Bearer  k") == "k"
    assert key("authorization: bearer k", "x-api-key: other") == "k"
    assert key("Authorization: k") == "k"
    assert key("X-Api-Key: k") == "k"
    assert key() is None
