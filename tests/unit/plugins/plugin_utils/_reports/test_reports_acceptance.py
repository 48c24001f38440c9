import base64
import json
import re
import shlex

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.full_prompt import NOT_KNOWN
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._plan.stored import stored
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import acceptance, status
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture

HEAD = {
    "unit": "llama-head-chat.service",
    "service": "chat",
    "endpoint": "http://10.0.0.31:8000/v1",
    "model": "small",
    "quant": "Q4_1",
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
    return acceptance.acceptance(head, "node1", *found)


def refused(layers, node2=15, reason=None):
    devices = [dict(LOAD["devices"][1], layers=node2), dict(LOAD["devices"][3], layers=1)]
    head = dict(HEAD, shares=[dict(share, layers=layers.get(share["node"])) for share in HEAD["shares"]])
    return accepted(
        head, READY, {"devices": devices if node2 is not None else devices[1:], "reason": reason}, "Where?", 8
    )["refused"]


def test_a_worker_holds_the_layers_of_the_plan():
    assert refused({"node2": 15, "node3": 1, "node1": 20}) == []
    assert refused({"node2": 16, "node3": 1}) == [
        "llama_services.chat: worker 10.100.0.32:50052 holds 15 layers of small, 16 needed: see journalctl -u "
        "llama-head-chat.service on node1"
    ]
    assert len(refused({"node2": 14, "node3": 2})) == 2


@pytest.mark.parametrize("layers", [{}, {"node2": 0, "node3": 1}])
def test_without_a_plan_a_worker_holds_some(layers):
    assert refused(layers) == []
    for nothing in (0, None):
        (sentence,) = refused(layers, nothing, "the log has no layers")
        assert (
            "worker 10.100.0.32:50052 holds 0 layers of small, at least one needed (the log has no layers): see "
            "journalctl" in sentence
        )


def test_a_service_without_workers_has_no_layers_elsewhere():
    assert accepted(dict(HEAD, shares=[]), READY, LOAD, "Where?", 8)["refused"] == []


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


def test_bytes_that_ss_does_not_count_are_unknown():
    untold = [dict(worker, bytes_sent=None, bytes_received=None) for worker in READY["workers"]]
    lines = accepted(HEAD, dict(READY, workers=untold), LOAD, "Where?", 8)["lines"]
    assert lines[0].endswith(
        ", 45.0 MiB of KV cache, bytes for the answer unknown: ss of the head's node does not count them"
    )


def test_the_last_lines():
    lines = accepted(HEAD, READY, LOAD, "Where?", 8)["lines"]
    assert (
        lines[0]
        == "worker node2 (10.100.0.32:50052): 15 layers, 31.8 MiB of weights, 45.0 MiB of KV cache, 10 bytes out and "
        "20 back for the answer"
    )
    assert lines[2:4] == ["endpoint: http://10.0.0.31:8000/v1, 4096 tokens a slot (2 slots)", "tokens/s: 33.1"]
    assert lines[-1] == "answer: It is Paris."
    untold = accepted(HEAD, dict(READY, n_ctx=None, slots=None), LOAD, "Where?", 8)["lines"]
    assert untold[2] == "endpoint: http://10.0.0.31:8000/v1"


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


def test_what_the_plan_was_worth_is_in_the_row():
    row = accepted(HEAD, READY, LOADED, "Where?", 8, [PLAN])["row"]
    assert row["plan"] == "139 of 140 MiB" and row["layers"] == "20, 15, 0"
    assert accepted(HEAD, READY, LOADED, "Where?", 8)["row"]["plan"] == ""


def test_no_curl_line_that_nobody_can_use():
    assert not any("curl" in line or "10.0.0.31" in line for line in served(HEAD, behind=True)), (
        "a gateway is before it"
    )
    assert not any("curl" in line for line in served(HEAD, idle=True)), "it was said when it was started"
    assert served() == [] == served(idle=True)


def test_of_many_that_are_as_they_were_the_number_is_said():
    assert len(served(*[HEAD] * 10, idle=True)) == 11
    assert served(*[HEAD] * 11, idle=True) == ["11 instances answer: verify.yml shows each"]
    assert len(served(*[HEAD] * 11)) == 13


def test_the_curl_line_takes_the_key_from_the_environment():
    *_rows, key, curl = served(dict(HEAD, api_key_file="/etc/llama-cluster/keys/chat"))
    assert key == "with LLAMA_API_KEY set to one of llama_api_keys.chat:"
    assert ' -H "Authorization: Bearer $LLAMA_API_KEY" ' in curl


def test_a_busy_service_is_not_given_a_rate():
    busy = {"state": "busy", "reason": "1 of 1 slots at work", "workers": [], "tokens_per_second": None, "answer": None}
    lines = accepted(HEAD, busy, LOAD, "Where?", 8)["lines"]
    assert "tokens/s: not measured, the service is busy with other requests and makes progress" in lines


HELD = {"question": "answers", "tools": "called", "reasoning": "off as configured", "context": None, "not_held": None}


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (HELD, "conversation: answers, tools: called, reasoning: off as configured"),
        (dict(HELD, tools="skipped: no tools"), "conversation: answers, tools: skipped: no tools, reasoning: off"),
        ({"embedding": "768 numbers"}, "conversation: embedding: 768 numbers"),
        ({"not_held": "1 of 1 slots work"}, "conversation: not held: 1 of 1 slots work"),
    ],
)
def test_a_conversation_is_a_line(said, line):
    judged = accepted(HEAD, dict(READY, conversation=said), LOAD, "Where?", 8)
    assert [one for one in judged["lines"] if one.startswith(line)] == judged["lines"][4:5]
    assert judged["report"]["conversation"] == said


def test_a_long_prompt_is_a_line():
    lines = accepted(HEAD, dict(READY, conversation=HELD, long_prompt="3686 read"), LOAD, "Where?", 8)["lines"]
    assert lines[5] == "long prompt: 3686 read"


def test_without_a_conversation_no_line_speaks_of_one():
    judged = accepted(HEAD, dict(READY, long_prompt=""), LOAD, "Where?", 8)
    assert not any("conversation" in line or "long prompt" in line for line in judged["lines"])
    assert (judged["report"]["conversation"], judged["report"]["long_prompt"]) == (None, None)


def test_who_embeds_has_no_rate_and_its_own_curl_line():
    embeds = dict(READY, answer="", tokens_per_second=None, conversation={"embedding": "768 numbers"})
    judged = accepted(dict(HEAD, args=["--embeddings"]), embeds, LOAD, "Where?", 8)
    words = shlex.split(judged["report"]["curl"])
    assert words[2].endswith(":8000/v1/embeddings") and words[-1] == '{"model": "small", "input": "Where?"}'
    assert not any(line.startswith(("tokens/s", "answer")) for line in judged["lines"])


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


def test_status_names_units_that_are_not_as_they_should_be():
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
    lines = judged["lines"]
    assert lines[2] == (
        "plan node2 GPU0: 21 + 30 + 4 MiB planned, 20.2 + 30.0 + 4.0 loaded (weights, KV cache, compute), off by +1.38 "
        "%, the card has 700 MiB in use of 1079 planned with the margin"
    )
    assert lines[4] == "plan node3 GPU0: 9 + 9 + 9 MiB planned, the log does not tell what was loaded"


def test_a_head_that_computes_on_its_main_memory():
    plan = {"node": "node1", "model": "small", "devices": [planned("node1", "main", 70, 10, 16)]}
    alone = dict(HEAD, shares=[])
    (row,) = accepted(alone, READY, dict(LOADED, devices=LOADED["devices"][:3]), "Where?", 8, [plan])["report"]["plan"]
    assert row["loaded_mib"] == {"weights": 69.7, "kv": 10.0, "compute": 16.0}


def test_main_memory_beside_cards_is_what_is_not_on_them():
    plan = {
        "node": "node1",
        "model": "small",
        "devices": [planned("node1", "GPU0", 40, 10, 5), planned("node1", "main", 30, 0, 12)],
    }
    rows = accepted(dict(HEAD, shares=[]), READY, LOADED, "Where?", 8, [plan])["report"]["plan"]
    assert [row["loaded_mib"] for row in rows] == [
        {"weights": 40.0, "kv": 10.0, "compute": 5.0},
        {"weights": 29.7, "kv": 0.0, "compute": 11.0},
    ]


def test_running_transfer_is_one_line():
    moves = [{"name": "m.gguf", "line": "34 % (26.3 GB of 77.3 GB), 412.1 MB/s, 2 min 03 s left"}]
    nodes = {"node1": {"units": [], "current_build": None, "held": None, "transfers": moves}}
    assert status.status_lines(nodes, [])[0] == "node1: fetches m.gguf: %s" % moves[0]["line"]


def test_a_head_says_which_held_node_it_waits_for():
    nodes = {"node3": {"units": [], "current_build": "b1", "held": "2026-10-01T08:00:00Z"}}
    waiting = dict(READY, state="loading", reason="refused", n_ctx=None, slots=None)
    assert status.status_lines(nodes, [(HEAD, waiting)])[1].endswith("  it waits for node3, held for maintenance")


def test_a_stopped_service_is_stopped_as_the_inventory_says_or_runs_all_the_same():
    stopped, down = dict(HEAD, state="stopped"), dict(READY, state="down", reason="refused", n_ctx=None, slots=None)

    def row(head, health):
        (found,) = status.status_lines({}, [(head, health)])[1:]
        return re.split("  +", found)

    assert row(stopped, down) == ["chat", "node2, node3", "stopped", "as the inventory says"]
    assert row(stopped, READY)[-1] == "it answered, and the inventory says stopped: run site.yml"
    assert row(dict(HEAD, label="chat on node1"), down)[0] == "chat on node1"
    assert row(dict(HEAD, state="started"), down)[2:] == ["down", "http://10.0.0.31:8000/v1", "refused"]


def test_sizes_have_two_decimals():
    devices = [dict(LOAD["devices"][1], model_mib=20.254, kv_mib=30.001), dict(LOAD["devices"][2], kv_mib=15.003)]
    (worker, _other) = accepted(HEAD, READY, dict(LOAD, devices=devices), "Where?", 8)["report"]["workers"]
    assert (worker["model_mib"], worker["kv_mib"]) == (31.75, 45.0)


def test_bytes_of_a_worker_that_was_not_looked_at_are_unknown():
    report = accepted(HEAD, dict(READY, workers=READY["workers"][:1]), LOAD, "Where?", 8)["report"]
    assert [(one["bytes_sent"], one["bytes_received"]) for one in report["workers"]] == [(10, 20), (None, None)]
    assert accepted(HEAD, dict(READY, workers=None), LOAD, "Where?", 8)["report"]["workers"][0]["bytes_sent"] is None


def test_one_plan_is_held_against_the_log():
    devices = [dict(planned("node2", "GPU0", 21, 30, 4))]
    plans = [
        {"node": "node2", "model": "small", "devices": devices * 3},
        {"node": "node1", "model": "small", "devices": devices},
    ]
    assert len(accepted(HEAD, READY, LOADED, "Where?", 8, plans)["report"]["plan"]) == 1
    assert accepted(HEAD, READY, LOADED, "Where?", 8)["report"]["plan"] == []


def test_the_main_memory_of_a_worker_is_all_that_it_has():
    plan = {"node": "node1", "model": "small", "devices": [planned("node2", "main", 40, 50, 10)]}
    (row,) = accepted(HEAD, READY, LOADED, "Where?", 8, [plan])["report"]["plan"]
    on_it = [device for device in LOADED["devices"] if device["endpoint"] == HEAD["shares"][0]["endpoint"]]
    assert len(on_it) == 2 and row["loaded_mib"] == {
        kind: round(sum(device[key] for device in on_it), 2)
        for kind, key in (("weights", "model_mib"), ("kv", "kv_mib"), ("compute", "compute_mib"))
    }


def test_a_card_is_known_by_its_number():
    plan = {"node": "node1", "model": "small", "devices": [planned("node2", "GPU1", 21, 30, 4)]}
    for index, seen in ((0, None), (1, 600)):
        cards = {"node2": [{"index": index, "memory_used_mib": 600}]}
        (row,) = accepted(HEAD, READY, LOADED, "Where?", 8, [plan], cards)["report"]["plan"]
        assert row["card_mib"] == seen
    assert row["loaded_mib"]["weights"] == 20.25, "what llama.cpp calls the first is the first of the plan"


def test_what_was_loaded_is_not_told_by_a_log_of_empty_buffers():
    empty = {"model_mib": 0.0, "kv_mib": 0.0, "compute_mib": 0.0}
    devices = [dict(LOADED["devices"][1], **empty)]
    plan = {"node": "node1", "model": "small", "devices": [planned("node2", "GPU0", 21, 30, 4)]}
    judged = accepted(HEAD, READY, dict(LOADED, devices=devices), "Where?", 8, [plan])
    (row,) = judged["report"]["plan"]
    assert (row["loaded_mib"], row["error_percent"]) == (None, None)
    assert judged["lines"][2].endswith(" MiB planned, the log does not tell what was loaded")


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


def prompted(plans, **health):
    judged = accepted(HEAD, dict(READY, **health), LOAD, "Where?", 8, plans)
    return judged["prompt"], [line for line in judged["lines"] if "full prompt" in line]


def test_how_long_a_full_prompt_takes_is_kept_and_said():
    plan = {"node": "node1", "model": "small", "devices": [], "inputs": ["m", 1]}
    kept, lines = prompted([plan], long=PROMPT)
    assert kept == dict(PROMPT, inputs=["m", 1]) and lines == [KNOWN]
    read = {"prompt": base64.b64encode(json.dumps(kept).encode()).decode()}
    assert prompted([plan], kept=read) == ({}, [KNOWN])
    assert prompted([plan], kept=read, long=dict(PROMPT, tokens=100)) == ({}, [KNOWN])
    assert prompted([dict(plan, inputs=["m", 2])], kept=read) == ({}, [NOT_KNOWN]) == prompted([plan])
    assert prompted([dict(plan, node="node2")], long=PROMPT) == ({}, []) == prompted([])


def test_a_service_of_embeddings_reads_no_full_prompt():
    plan = {"node": "node1", "model": "small", "devices": [], "inputs": ["m", 1]}
    judged = accepted(dict(HEAD, args=["--embeddings"]), READY, LOAD, "Where?", 8, [plan])
    assert judged["report"]["full_prompt"] is None


def test_what_was_drafted_is_a_part_of_the_conversation():
    said = dict(HELD, draft="19 of 24 drafted tokens accepted")
    lines = accepted(HEAD, dict(READY, conversation=said), LOAD, "Where?", 8)["lines"]
    assert lines[4].endswith(", draft: 19 of 24 drafted tokens accepted")


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
    # Without a plan, or a head that tells its context, nobody can say it, and of embeddings nobody asks.
    assert lines(head, READY, {}) == lines(head, dict(READY, n_ctx=None), read) == []
    assert lines(dict(head, args=["--embeddings"]), READY, read) == []


def test_a_service_that_reranks_is_asked_for_scores():
    judged = accepted(
        dict(HEAD, args=["--reranking"]), dict(READY, conversation={"reranking": "2 scores"}), LOAD, "Q", 8
    )
    assert "conversation: reranking: 2 scores" in judged["lines"]
    curl = judged["report"]["curl"]
    assert "/v1/rerank " in curl and '"query": "Q"' in curl and '"documents": [' in curl
