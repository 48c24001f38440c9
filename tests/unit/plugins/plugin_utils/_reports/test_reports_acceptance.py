import base64
import json
import re
import shlex

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.full_prompt import NOT_KNOWN
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.stored import stored
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import acceptance, status
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.status import gateway_lines
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture

HEAD = {
    "unit": "llama-head-chat.service",
    "service": "chat",
    "endpoint": "http://10.0.0.31:8000/v1",
    "model": "small",
    "quant": "Q4_1",
    "serves": "text",
    "shares": [
        {"node": "node2", "endpoint": "10.100.0.32:50052", "layers": None},
        {"node": "node3", "endpoint": "10.100.0.33:50052", "layers": None},
    ],
}
LOAD = {
    "reason": None,
    "devices": [
        {"endpoint": None, "layers": 0, "model_mib": 28.7, "kv_mib": 0.0},
        {"endpoint": "10.100.0.32:50052", "layers": 10, "model_mib": 20.25, "kv_mib": 30.0},
        {"endpoint": "10.100.0.32:50052", "layers": 5, "model_mib": 11.5, "kv_mib": 15.0},
        {"endpoint": "10.100.0.33:50052", "layers": None, "model_mib": 60.4, "kv_mib": 45.0},
    ],
}
READY = {
    "state": "ready",
    "reason": "it answered",
    "n_ctx": 4096,
    "slots": 2,
    "tokens_per_second": 33.137,
    "answer": "It is\nParis.",
    "workers": [
        {"endpoint": "10.100.0.32:50052", "bytes_sent": 10, "bytes_received": 20},
        {"endpoint": "10.100.0.33:50052", "bytes_sent": 30, "bytes_received": 40},
    ],
}


def accepted(head, *found):
    return acceptance.acceptance_report(head, "node1", *found)


@pytest.mark.parametrize(
    ("layers", "node2", "refused"),
    [
        ({"node2": 15, "node3": 1, "node1": 20}, 15, []),
        ({"node2": 16, "node3": 1}, 15, ["worker 10.100.0.32:50052 holds 15 layers of small, 16 needed (why): see "]),
        ({"node2": 14, "node3": 2}, 15, ["worker 10.100.0.32:50052 holds 15", "worker 10.100.0.33:50052 holds 1"]),
        # Without a plan a worker holds some.
        ({}, 15, []),
        ({"node2": 0, "node3": 1}, 15, []),
        ({}, 0, ["worker 10.100.0.32:50052 holds 0 layers of small, at least one needed (why): see journalctl"]),
        ({}, None, ["worker 10.100.0.32:50052 holds 0 layers of small, at least one needed"]),
    ],
)
def test_worker_holds_the_layers_of_the_plan(layers, node2, refused):
    devices = [dict(LOAD["devices"][1], layers=node2), dict(LOAD["devices"][3], layers=1)]
    head = dict(HEAD, shares=[dict(share, layers=layers.get(share["node"])) for share in HEAD["shares"]])
    load = {"devices": devices if node2 is not None else devices[1:], "reason": "why"}
    found = accepted(head, READY, load, "Where?", 8)["refused"]
    assert len(found) == len(refused)
    assert all(one.startswith("llama_services.chat: " + words) for one, words in zip(found, refused, strict=True))


def test_each_worker_by_endpoint_with_all_its_cards():
    report = accepted(HEAD, READY, LOAD, "Where?", 8)["report"]
    assert report["workers"][0] == {
        "node": "node2",
        "endpoint": "10.100.0.32:50052",
        "layers": 15,
        "model_mib": 31.75,
        "kv_mib": 45.0,
        "bytes_sent": 10,
        "bytes_received": 20,
    }
    assert report["tokens_per_second"] == 33.1


@pytest.mark.parametrize(
    "workers", [[dict(one, bytes_sent=None, bytes_received=None) for one in READY["workers"]], [], None]
)
def test_uncounted_bytes_are_unknown(workers):
    judged = accepted(HEAD, dict(READY, workers=workers), LOAD, "Where?", 8)
    assert [one["bytes_sent"] for one in judged["report"]["workers"]] == [None, None]


def test_the_curl_line_survives_a_quote():
    curl = accepted(HEAD, READY, LOAD, "What's up?", 8)["report"]["curl"]
    words = shlex.split(curl)
    assert words[0] == "curl" and words[2] == "http://10.0.0.31:8000/v1/chat/completions"
    assert '"content": "What\\u0027s up?"' in words[-1]


def served(*heads, idle=False, behind=False, health=None, **row):
    judged = [accepted(head, health or READY, LOAD, "Where?", 8)["row"] for head in heads]
    shown = {"chat%d" % number: dict(one, **row) for number, one in enumerate(judged)}
    return acceptance.served_lines(shown, idle, behind)


def test_what_serves_is_a_row_each():
    lines = served(HEAD, dict(HEAD, shares=[]), health=dict(READY, conversation=HELD))
    said = "33.1      2 x 4096  http://10.0.0.31:8000/v1  answers, tools: called, reasoning: off as configured"
    assert lines[:3] == [
        "service  nodes                layers    tokens/s  context   endpoint                  conversation",
        "chat0    node1, node2, node3  0, 15, 0  " + said,
        "chat1    node1                all       " + said,
    ]
    assert len(lines) == 4 and lines[3].startswith("curl -sS http://10.0.0.31:8000/v1/chat/completions")


def test_row_has_the_plan():
    row = accepted(HEAD, READY, LOADED, "Where?", 8, [PLAN])["row"]
    assert row["plan"] == "139 of 140 MiB" and row["layers"] == "20, 15, 0"
    assert accepted(HEAD, READY, LOADED, "Where?", 8)["row"]["plan"] == ""


def test_useless_curl_line_is_left_out():
    assert not any("curl" in line or "10.0.0.31" in line for line in served(HEAD, behind=True)), (
        "a gateway is before it"
    )
    assert not any("curl" in line for line in served(HEAD, idle=True)), "it was said when it was started"
    assert served() == [] == served(idle=True)


def test_many_unchanged_instances_are_counted():
    assert len(served(*[HEAD] * 10, idle=True)) == 11
    assert served(*[HEAD] * 11, idle=True) == ["11 instances answer: verify.yml shows each"]
    assert len(served(*[HEAD] * 11)) == 13


def test_curl_line_takes_key_from_environment():
    *_rows, key, curl = served(dict(HEAD, api_key_file="/etc/llama-cluster/keys/chat"))
    assert key == "with LLAMA_API_KEY set to one of llama_api_keys.chat:"
    assert ' -H "Authorization: Bearer $LLAMA_API_KEY" ' in curl


HELD = {"question": "answers", "tools": "called", "reasoning": "off as configured", "context": None, "not_held": None}


@pytest.mark.parametrize(
    ("conversation", "text"),
    [
        (dict(HELD, tools="skipped: no tools", draft="19 of 24 accepted"),
         "answers, reasoning: off as configured, draft: 19 of 24 accepted"),
        ({"embedding": "768 numbers"}, "embedding: 768 numbers"),
        ({"not_held": "1 of 1 slots work"}, "not held: 1 of 1 slots work"),
        (None, ""),
    ],
)  # fmt: skip
def test_conversation_is_a_cell(conversation, text):
    judged = accepted(HEAD, dict(READY, conversation=conversation, long_prompt="3686 read"), LOAD, "Where?", 8)
    assert (judged["row"]["conversation"], judged["row"]["long prompt"]) == (text, "3686 read")


def test_embeddings_have_their_own_curl_line():
    embeds = dict(READY, answer="", tokens_per_second=None, conversation={"embedding": "768 numbers"})
    judged = accepted(dict(HEAD, serves="embeddings"), embeds, LOAD, "Where?", 8)
    words = shlex.split(judged["report"]["curl"])
    assert words[2].endswith(":8000/v1/embeddings") and words[-1] == '{"model": "small", "input": "Where?"}'


def unit_of(name, **facts):
    sound = {"name": name, "active_state": "active", "since": "2026-10-01T08:00:00Z", "restarts": 0, "stale": False}
    return dict(sound, **facts)


PLACED = dict(
    HEAD,
    node="node1",
    unit="llama-head-chat.service",
    shares=[dict(share, unit="llama-rpc-chat.service") for share in HEAD["shares"]],
)


def states(**facts):
    """{node: result of llama_unit_info} of all that belongs to PLACED; facts: of the worker's unit on node2."""
    units = {"node1": [unit_of("llama-head-chat.service", restarts=1)]}
    units.update({"node2": [unit_of("llama-rpc-chat.service", **facts)], "node3": [unit_of("llama-rpc-chat.service")]})
    return {node: {"units": found, "current_build": "b1", "held": None} for node, found in units.items()}


def test_status_is_a_row_for_each_instance():
    assert [re.split("  +", line) for line in status.status_lines(states(), [(PLACED, READY)])] == [
        ["service", "nodes", "state", "context", "endpoint", "since", "restarts", "what it says"],
        ["chat", "node1, node2, node3", "ready", "2 x 4096", "http://10.0.0.31:8000/v1", "2026-10-01T08:00:00Z", "1",
         "it answered"],
    ]  # fmt: skip
    assert len(status.status_lines(states(), [(PLACED, READY)], verbose=True)) == 5


def test_status_names_faulty_units():
    stale = states(restarts=2, stale=True)
    stale["node5"] = {"units": [unit_of("llama-rpc-old.service")], "current_build": None, "held": None}
    stale["node4"] = {
        "units": [unit_of("llama-rpc-old.service")],
        "current_build": None,
        "held": "2026-10-01T08:00:00Z",
    }
    assert status.status_lines(stale, [(PLACED, READY)])[2:] == [
        "node4: held for maintenance since 2026-10-01T08:00:00Z: maintenance.yml -e node=node4 -e state=return",
        "node2: llama-rpc-chat.service active since 2026-10-01T08:00:00Z, 2 restarts, build b1, its configuration "
        "changed since it started",
        "node5: llama-rpc-old.service active since 2026-10-01T08:00:00Z, 0 restarts, build none",
    ]
    (line,) = status.status_lines(states(active_state="failed"), [(PLACED, READY)])[2:]
    assert line.startswith("node2: llama-rpc-chat.service failed since ")


def test_a_node_without_an_answer_is_a_row():
    rows = status.status_lines({}, [], silent={"node4": ["chat", "embed"], "node5": []})
    assert [re.split("  +", row) for row in rows[1:]] == [
        ["chat, embed", "node4", "no answer"],
        ["-", "node5", "no answer"],
    ]


def planned(node, device, weights, kv, compute):
    return {
        "node": node,
        "device": device,
        "weights_mib": weights,
        "kv_mib": kv,
        "compute_mib": compute,
        "total_mib": weights + kv + compute + 1024,
    }


LOADED = {
    "reason": None,
    "devices": [
        {"device": "CPU", "endpoint": None, "layers": 0, "model_mib": 28.7, "kv_mib": 0.0, "compute_mib": 9.0},
        {"device": "CUDA0", "endpoint": None, "layers": 20, "model_mib": 40.0, "kv_mib": 10.0, "compute_mib": 5.0},
        {"device": "CUDA_Host", "endpoint": None, "layers": 0, "model_mib": 1.0, "kv_mib": 0.0, "compute_mib": 2.0},
        {
            "device": "RPC0",
            "endpoint": "10.100.0.32:50052",
            "layers": 10,
            "model_mib": 20.25,
            "kv_mib": 30.0,
            "compute_mib": 4.0,
        },
        {
            "device": "RPC1",
            "endpoint": "10.100.0.32:50052",
            "layers": 5,
            "model_mib": 11.5,
            "kv_mib": 15.0,
            "compute_mib": 3.0,
        },
    ],
}
PLAN = {
    "node": "node1",
    "model": "small",
    "devices": [
        planned("node2", "GPU0", 21, 30, 4),
        planned("node2", "GPU1", 12, 15, 3),
        planned("node3", "GPU0", 9, 9, 9),
        planned("node1", "GPU0", 40, 10, 5),
    ],
}


def test_the_plan_beside_the_log_and_the_cards():
    cards = {
        "node2": [{"index": 0, "memory_used_mib": 700}, {"index": 1, "memory_used_mib": 600}],
        "node1": [{"index": 0, "memory_used_mib": None}],
    }
    judged = accepted(HEAD, READY, LOADED, "Where?", 8, [PLAN], cards)
    report = judged["report"]
    rows = report["plan"]
    assert [(row["node"], row["device"], row["card_mib"]) for row in rows] == [
        ("node2", "GPU0", 700),
        ("node2", "GPU1", 600),
        ("node3", "GPU0", None),
        ("node1", "GPU0", None),
    ]
    assert rows[0]["loaded_mib"] == {"weights": 20.25, "kv": 30.0, "compute": 4.0}
    assert rows[0]["error_percent"] == round(100 * (55 - 54.25) / 54.25, 2)
    assert rows[1]["loaded_mib"]["weights"] == 11.5
    assert rows[2]["loaded_mib"] is None and rows[2]["error_percent"] is None
    assert rows[3]["loaded_mib"] == {"weights": 40.0, "kv": 10.0, "compute": 5.0} and rows[3]["error_percent"] == 0.0


@pytest.mark.parametrize(
    ("planned_on", "seen", "refused"),
    [
        ("GPU0", ["CPU", "CPU_Mapped"], True),
        ("GPU0", ["CPU", "Vulkan_Host"], True),
        ("GPU0", ["CPU", "Vulkan_Host", "Vulkan0"], False),
        ("GPU0", ["CUDA0"], False),
        ("main", ["CPU"], False),
        # A log without buffers tells nothing.
        ("GPU0", [], False),
    ],
)
def test_head_without_its_card_is_refused(planned_on, seen, refused):
    plan = {"node": "node1", "model": "small", "devices": [planned("node1", planned_on, 21, 30, 4)]}
    devices = [dict(LOADED["devices"][0], device=name) for name in seen]
    found = accepted(dict(HEAD, shares=[]), READY, dict(LOADED, devices=devices), "Where?", 8, [plan])["refused"]
    words = f"{', '.join(seen)} of node1 seen in the load of small, GPU0 is needed: "
    assert [words in one for one in found] == [True] * refused


def test_cards_of_all_vendors_as_the_plan_counts():
    def card(slot, used, **more):
        known = {"vendor": "amd", "driver": "amdgpu", "device_id": "0x744c", "name": "RX", "numa_node": 0}
        sensors = dict.fromkeys(("busy_percent", "temperature_c", "power_w", "idle_ms", "energy_uj", "at"))
        sizes = {"vram_total_mib": 24576, "vram_used_mib": used, "gtt_total_mib": 9, "gtt_used_mib": 0}
        sensors["at"] = 0.0
        return {"slot": slot, **known, "render": "/dev/dri/renderD128", "unified": False, **sizes, **sensors, **more}

    def seen(node, gpus, *cards):
        facts = {"nvidia_smi": {"gpus": gpus}, "llama_drm": {"cards": list(cards), "reason": None}}
        return {"item": node, "ansible_facts": facts}

    display = card("0000:05:00.0", 1, render=None, driver="ast")
    results = [
        seen("node1", [{"index": 0, "memory_used_mib": 700}], display),
        seen("node2", [], card("0000:03:00.0", 20), card("0000:04:00.0", 30)),
        seen("node3", [], display),
    ]
    devices = [{"slot": "0000:04:00.0", "index": 0}, {"slot": "0000:03:00.0", "index": 1}]
    hostvars = {"node1": {}, "node3": {}, "node2": {"ansible_facts": {"llama_node": {"vulkan": {"gpus": devices}}}}}
    found = acceptance.cards_seen(results, hostvars)
    assert {node: [(one["index"], one["memory_used_mib"]) for one in cards] for node, cards in found.items()} == {
        "node1": [(0, 700)],
        "node2": [(1, 20), (0, 30)],
        "node3": [],
    }


ON_MAIN = {"weights": 29.7, "kv": 0.0, "compute": 11.0}
ON_CARD = {"weights": 40.0, "kv": 10.0, "compute": 5.0}
EMPTY = [dict(LOADED["devices"][1], model_mib=0.0, kv_mib=0.0, compute_mib=0.0)]


@pytest.mark.parametrize(
    ("places", "devices", "loaded"),
    [
        # Main memory by itself has all of the head, beside cards only what is not on them.
        ([("node1", "main")], LOADED["devices"][:3], [{"weights": 69.7, "kv": 10.0, "compute": 16.0}]),
        ([("node1", "GPU0"), ("node1", "main")], LOADED["devices"], [ON_CARD, ON_MAIN]),
        ([("node2", "main")], LOADED["devices"], [{"weights": 31.75, "kv": 45.0, "compute": 7.0}]),
        ([("node2", "GPU1")], LOADED["devices"], [{"weights": 20.25, "kv": 30.0, "compute": 4.0}]),
        # A log of empty buffers tells nothing.
        ([("node1", "GPU0")], EMPTY, [None]),
    ],
)
def test_planned_device_has_what_llama_cpp_put_there(places, devices, loaded):
    plan = {"node": "node1", "model": "small", "devices": [planned(*place, 21, 30, 4) for place in places]}
    # Another node's plan of the same service does not count.
    plans = [dict(plan, node="node2"), plan]
    rows = accepted(HEAD, READY, dict(LOADED, devices=devices), "Where?", 8, plans)["report"]["plan"]
    assert [row["loaded_mib"] for row in rows] == loaded
    assert [row["error_percent"] is None for row in rows] == [one is None for one in loaded]


def test_running_transfer_is_one_line():
    moves = [{"name": "m.gguf", "line": "34 % (26.3 GB of 77.3 GB), 412.1 MB/s, 2 min 03 s left"}]
    nodes = {"node1": {"units": [], "current_build": None, "held": None, "transfers": moves}}
    assert status.status_lines(nodes, [])[0] == "node1: fetches m.gguf: %s" % moves[0]["line"]


def test_head_names_the_held_node():
    nodes = {"node3": {"units": [], "current_build": "b1", "held": "2026-10-01T08:00:00Z"}}
    waiting = dict(READY, state="loading", reason="refused", n_ctx=None, slots=None)
    assert status.status_lines(nodes, [(HEAD, waiting)])[1].endswith("  it waits for node3, held for maintenance")


def test_stopped_service_has_a_row():
    stopped, down = dict(HEAD, state="stopped"), dict(READY, state="down", reason="refused", n_ctx=None, slots=None)

    def row(head, health):
        (found,) = status.status_lines({}, [(head, health)])[1:]
        return re.split("  +", found)

    assert row(stopped, down) == ["chat", "node2, node3", "stopped", "as the inventory says"]
    assert row(stopped, READY)[-1] == "it answered, and the inventory says stopped: run site.yml"
    assert row(dict(HEAD, label="chat on node1"), down)[0] == "chat on node1"
    assert row(dict(HEAD, state="started"), down)[2:] == ["down", "http://10.0.0.31:8000/v1", "refused"]


@pytest.mark.parametrize(
    ("n_ctx", "slots", "words"),
    [
        (4096, 1, "4096 tokens a slot"),
        (4096, None, "4096 tokens a slot"),
        (4096, 2, "4096 tokens a slot (2 slots)"),
        (0, 2, None),
    ],
)
def test_what_one_request_may_use(n_ctx, slots, words):
    assert acceptance.context_of({"n_ctx": n_ctx, "slots": slots}) == words


PROMPT = {"tokens": 3686, "seconds": 36.86, "measured_at": "2026-11-24T05:00:00Z"}
KNOWN = "a full prompt of 4096 tokens takes about 40 s at 100.0 tokens/s (measured 2026-11-24)"


def test_speed_of_a_long_prompt_is_kept():
    plan = {"node": "node1", "model": "small", "devices": [], "inputs": ["m", 1]}
    health = dict(READY, long=PROMPT)
    assert accepted(HEAD, health, LOAD, "Where?", 8, [plan])["prompt"] == dict(PROMPT, inputs=["m", 1])
    assert accepted(HEAD, health, LOAD, "Where?", 8, [dict(plan, node="node2")])["prompt"] == {}


def test_status_says_how_long_a_full_prompt_takes():
    (part,) = mixture.planned(model="big")["services"]["chat"]
    prompt = dict(PROMPT, inputs=part["inputs"])
    texts = {"content": json.dumps(stored([part])), "prompt": json.dumps(prompt)}
    read = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    head = dict(HEAD, node="node1")

    def lines(head, health, read):
        return status.status_lines({}, [(head, health)], {"node1": {"chat": read}}, verbose=True)[2:]

    assert lines(head, READY, read) == ["chat: " + KNOWN]
    assert lines(head, READY, {"content": read["content"]}) == ["chat: " + NOT_KNOWN]
    # Unknown without a plan or a context, and useless for embeddings.
    assert lines(head, READY, {}) == lines(head, dict(READY, n_ctx=None), read) == []
    assert lines(dict(head, serves="embeddings"), READY, read) == []


def test_reranking_service_has_its_own_curl_line():
    curl = accepted(dict(HEAD, serves="scores"), READY, LOAD, "Q", 8)["report"]["curl"]
    assert "/v1/rerank " in curl and '"query": "Q"' in curl and '"documents": [' in curl


UNITS = [
    {"name": "llama-gateway.service", "active_state": "active"},
    {"name": "nginx.service", "active_state": "failed"},
]
STATUS = {
    "base_urls": ["http://10.0.0.5:8000"],
    "services": {
        "chat": {
            "state": "ready",
            "queue": 3,
            "endpoints": [
                {"node": "gpu1", "state": "ready", "slots": 4, "free": 1},
                {"node": "gpu2", "state": "down", "slots": 4, "free": 0},
            ],
        }
    },
}


def test_where_it_is_and_what_it_knows():
    assert gateway_lines("front", UNITS, {"stdout": json.dumps(STATUS)}) == [
        "gateway on front: http://10.0.0.5:8000, engine active, nginx failed",
        "  chat: ready, 1 of 4 slots free, 3 waiting, gpu2 down",
    ]


def test_an_engine_that_says_nothing_is_said():
    for asked in ({"stdout": "", "stderr": "curl: (7) no\x1b socket"}, {"stdout": "[]"}, {"stdout": "{}"}):
        (line,) = gateway_lines("front", UNITS[:1], asked)
        assert line.startswith("gateway on front: engine active, nginx absent, which does not say what it knows (")
        assert "\x1b" not in line


def test_serving_services_are_verbose():
    sound = {"state": "ready", "queue": 0, "endpoints": [{"node": "gpu1", "state": "ready", "slots": 4, "free": 1}]}
    said = {"stdout": json.dumps(dict(STATUS, services={"chat": sound}))}
    assert len(gateway_lines("front", UNITS, said)) == 1
    assert gateway_lines("front", UNITS, said, True)[1:] == ["  chat: ready, 1 of 4 slots free, 0 waiting"]
