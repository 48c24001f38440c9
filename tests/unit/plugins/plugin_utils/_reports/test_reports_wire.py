# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of a service whose wire was looked at: one that does what the plan says, and what can be wrong."""

import copy

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import wire, wire_bytes
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.wire_seen import Seen

AT = "2026-11-26T11:00:00Z"
ENDPOINTS = ("10.100.0.32:50052", "10.100.0.33:50052")
RELEASE = "b11434-cpu-1"
HEAD = {
    "service": "chat",
    "node": "node1",
    "label": "chat",
    "model": "smollm2",
    "quant": "Q4_1",
    "cards": None,
    "args": ["--model", "/opt/models/m.gguf"],
    "shares": [
        {"node": node, "unit": "llama-rpc-chat.service", "endpoint": endpoint, "layers": 15, "build": RELEASE}
        for node, endpoint in zip(("node2", "node3"), ENDPOINTS, strict=True)
    ],
}
# 64 tokens after 20: n_embd 576, n_vocab 49152.
FIRST, LAST = (20 + 64 - 1) * 576 * 4 + 64 * 8, 64 * (49152 * 4 + 8)


def process(listens=None, **also):
    build = {"identity": "5f27b0c4", "sha256": "aa", "intact": True, "broken": []}
    found = {"pid": 7, "release": RELEASE, "foreign": [], "build": build, "resident_mib": 90.0, "cards_mib": None}
    return dict(found, listens=[listens] if listens else [], machine="a processor", **also)


def device(endpoint, layers=15):
    sizes = {"model_mib": 60.0, "kv_mib": 20.0, "compute_mib": 20.0, "total_mib": 100.0}
    return dict(sizes, device="RPC0", endpoint=endpoint, layers=layers)


def row(node):
    sizes = {"weights": 60, "kv": 20, "compute": 20}
    return {"node": node, "device": "main", "planned_mib": sizes, "loaded_mib": sizes}


def good():
    """A service of two workers on processors, in order."""
    moved = [
        {"endpoint": endpoint, "bytes_sent": 10**6, "bytes_received": count}
        for endpoint, count in zip(ENDPOINTS, (FIRST, LAST), strict=True)
    ]
    decode = {
        **{"tokens": 64, "prompt_tokens": 20, "answers": 1, "tokens_per_second": 50.0, "text": "One, two, three."},
        **{"same": True, "began": 1000.0, "ended": 1010.0, "workers": moved},
    }
    return {
        "wire": {
            "state": "ready",
            "reason": "it is idle",
            "model": {"n_embd": 576, "n_vocab": 49152},
            "connections": [{"endpoint": one, "ends": [["10.100.0.31:40000", one]]} for one in ENDPOINTS],
            "decode": decode,
            "prefill": {"prompt_tokens": 2050, "ubatches": 4.0, "tokens_per_second": 400.0, "workers": moved},
        },
        "process": process("10.0.0.31:8000"),
        "processes": [process(endpoint) for endpoint in ENDPOINTS],
        "releases": [RELEASE] * 3,
        "knocks": {"node1": dict.fromkeys(ENDPOINTS, "refused"), "node2": dict.fromkeys(ENDPOINTS, "silent")},
        "load": {"devices": [device(endpoint) for endpoint in ENDPOINTS]},
        "addresses": {"node1": "10.100.0.31", "node2": "10.100.0.32", "node3": "10.100.0.33"},
        "plan": [row("node2"), row("node3")],
        "watches": {},
        "references": [],
    }


def judged(seen, head=None):
    return wire.wire(head or HEAD, Seen(**seen), AT)


def holds(found):
    return {check["name"]: check["holds"] for check in found["result"]["checks"]}


def test_a_service_in_order():
    found = judged(good())
    assert (found["refused"], found["result"]["verdict"]) == ([], "true")
    assert holds(found) == {
        **{"build": True, "memory": True, "addresses": True, "bytes": True, "closed": True},
        **{"work": None, "answer": None},
    }
    assert (found["name"], found["latest"]) == ("20261126T110000Z-chat", "latest-chat")
    assert [line[:12].strip() for line in found["lines"]][0] == "wire of chat"
    assert found["lines"][-1].endswith(
        "2050 tokens in 4.0 micro-batches at 400.0 tokens/s, 10.100.0.32:50052 0.18 MiB "
        "back, 10.100.0.33:50052 12.00 MiB back"
    )


def broken(change):
    seen = good()
    change(seen)
    found = judged(seen)
    assert found["result"]["verdict"] == "refused" and found["references"] == []
    (sentence,) = found["refused"]
    assert sentence.startswith("llama_services.chat: ")
    return sentence[len("llama_services.chat: ") :]


def test_a_worker_that_idles():
    def idle(seen):
        seen["wire"]["decode"]["workers"][0]["bytes_received"] = 0

    assert broken(idle) == (
        "worker node2 sent back 0 bytes for 83 tokens, 172569 to 213312 are needed: it does not do its share of the "
        "work"
    )


def test_a_worker_that_does_the_work_of_another():
    def swapped(seen):
        seen["wire"]["decode"]["workers"][0]["bytes_received"] = LAST

    assert "worker node2 sent back 12583424 bytes" in broken(swapped)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"release": "b9999-cpu-2"},
            "node3 runs b9999-cpu-2, release b11434-cpu-1 is needed: restart it with site.yml",
        ),
        (
            {"release": None},
            "node3 runs a program of elsewhere, release b11434-cpu-1 is needed: restart it with site.yml",
        ),
        ({"foreign": ["/home/eve/libggml.so"]}, "node3 runs /home/eve/libggml.so, files of release b11434-cpu-1 alone"),
        ({"pid": None}, "worker node3 does not run: start it with site.yml"),
    ],
)
def test_a_process_of_another_build(change, said):
    assert broken(lambda seen: seen["processes"][1].update(change)).startswith(said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"identity": "388ce822"}, "node3 runs build 388ce822 and the head 5f27b0c4, one build is needed"),
        (
            {"intact": False, "broken": ["bin/ggml-rpc-server"]},
            "release b11434-cpu-1 of node3 has changed files (bin/ggml-rpc-server), those of its build are needed",
        ),
    ],
)
def test_a_release_that_is_another(change, said):
    assert broken(lambda seen: seen["processes"][1]["build"].update(change)).startswith(said)


def test_rpc_over_ethernet():
    def ethernet(seen):
        seen["wire"]["connections"][0]["ends"] = [["10.0.0.31:40000", "10.100.0.32:50052"]]

    assert broken(ethernet) == (
        "RPC of worker node2 uses 10.0.0.31 of node1, its llama_fabric_address 10.100.0.31 is needed: correct routes "
        "or units"
    )


def test_no_connection():
    def lost(seen):
        seen["wire"]["connections"][1]["ends"] = []

    assert broken(lost).startswith("the head has no connection to worker node3 at 10.100.0.33:50052")


def test_a_worker_that_listens_everywhere():
    def everywhere(seen):
        seen["processes"][0]["listens"] = ["0.0.0.0:50052"]

    assert broken(everywhere) == (
        "worker node2 listens on 0.0.0.0:50052, 10.100.0.32:50052 is needed: restart it with site.yml"
    )


def test_a_worker_whose_process_listens_nowhere():
    def gone(seen):
        seen["processes"][0]["listens"] = []

    assert broken(gone).startswith("worker node2 listens on nothing, 10.100.0.32:50052 is needed")


def test_rpc_that_is_open():
    def opened(seen):
        seen["knocks"]["node3"] = {ENDPOINTS[0]: "open", ENDPOINTS[1]: "refused"}

    assert broken(opened) == (
        "node3 gets a connection to the RPC port 10.100.0.32:50052, the head alone may have one: load the firewall "
        "with --tags node"
    )


def test_memory_that_is_not_there():
    assert broken(lambda seen: seen["processes"][0].update(resident_mib=10.0)) == (
        "worker node2 holds 10 MiB, weights and KV cache of 80 are needed: look at its journal, and restart it"
    )


def test_memory_that_is_not_the_plans():
    def more(seen):
        seen["load"]["devices"][0]["total_mib"] = 120.0

    assert broken(more).startswith(
        "worker node2 was given 120 MiB, 100 are planned and a tenth more or less is allowed"
    )


def test_a_host_that_was_not_reached_is_told():
    seen = good()
    seen["knocks"]["node9"] = None
    said = judged(seen)["result"]["checks"][-1]["said"]
    assert said == "refused to node1; no answer to node2; not asked: node9"


def test_what_cannot_be_counted_is_not_judged():
    seen = good()
    for one in seen["wire"]["decode"]["workers"]:
        one["bytes_received"] = None
    found = judged(seen)
    assert (holds(found)["bytes"], found["refused"], found["result"]["verdict"]) == (None, [], "not judged")


def test_where_nobody_could_ask_nothing_is_proved():
    seen = good()
    seen["knocks"] = dict.fromkeys(seen["knocks"])
    assert judged(seen)["result"]["verdict"] == "not judged"


def test_who_was_busy_was_not_looked_at():
    seen = good()
    seen["wire"].update(decode=None, prefill=None, reason="1 of 1 slots work")
    found = judged(seen)
    assert (found["lines"], found["refused"], found["name"]) == (
        ["wire of chat: not looked at, 1 of 1 slots work"],
        [],
        "",
    )


def on_cards(first, second):
    """Three stages: two workers and the head have a card each."""
    seen = good()
    for one in (seen["process"], *seen["processes"]):
        one["cards_mib"] = {"0": 90.0}
    seen["watches"] = {
        node: {"samples": [{"at": 1001.0 + at, "cards": [{"index": 0, "utilization": share}]} for at in range(8)]}
        for node, share in (("node1", 33), ("node2", first), ("node3", second))
    }
    return seen


def test_cards_that_work_a_third_of_the_time_each():
    found = judged(on_cards(30, 28))
    assert (found["refused"], holds(found)["work"]) == ([], True)


def test_untold_memory_on_card_is_not_judged():
    seen = on_cards(30, 28)
    seen["processes"][0].update(cards_mib={"0": 0.0}, resident_mib=5.0)
    assert judged(seen)["refused"] == []


def test_a_card_that_idles():
    (sentence,) = judged(on_cards(30, 5))["refused"]
    assert "node3 card 0 was busy 5 % of the time, more than 23 % are needed of each of 3 stages" in sentence


def test_cards_that_were_hardly_seen_are_not_judged():
    seen = on_cards(30, 5)
    for watch in seen["watches"].values():
        del watch["samples"][2:]
    assert (holds(judged(seen))["work"], judged(seen)["refused"]) == (None, [])


def test_the_last_stage_is_the_heads_where_it_has_a_card():
    seen = Seen(**good())
    seen.load["devices"].append(dict(device(None, 10), device="CUDA0"))
    least = [one.least for one in wire_bytes.expected(HEAD, seen)]
    assert least == [(20 + 64 - 1) * 576 * 4 + 64 * 8] * 2
    least = [one.least for one in wire_bytes.expected(dict(HEAD, cards=[]), seen)]
    assert least == [FIRST, LAST], "main memory comes before all devices"


def with_reference(text="One, two, three.", **basis):
    seen = good()
    (kept,) = judged(seen)["references"]
    seen["references"] = [dict(copy.deepcopy(kept), text=text)]
    seen["references"][0]["basis"].update(basis)
    return judged(seen)


def test_a_first_answer_is_kept():
    (kept,) = judged(good())["references"]
    assert (kept["text"], kept["measured_at"]) == ("One, two, three.", AT)
    assert kept["basis"]["build"] == {"node1": "aa", "node2": "aa", "node3": "aa"}


def test_the_same_answer_again():
    found = with_reference()
    assert (holds(found)["answer"], found["references"], found["refused"]) == (True, [], [])


def test_another_answer():
    (sentence,) = with_reference("One, two, four.")["refused"]
    assert "its answer goes on 'three.' and did 'four.' on 2026-11-26T11:00:00Z" in sentence


def test_another_build_is_not_compared_and_kept_beside():
    found = with_reference("Something else.", build={"node1": "bb"})
    assert (holds(found)["answer"], found["refused"]) == (None, [])
    said = {check["name"]: check["said"] for check in found["result"]["checks"]}["answer"]
    assert said == "not comparable here, other build; kept as reference"
    assert [one["text"] for one in found["references"]] == ["Something else.", "One, two, three."]


def test_no_more_answers_are_kept_than_are_compared():
    seen = good()
    (kept,) = judged(seen)["references"]
    seen["references"] = [dict(kept, basis=dict(kept["basis"], args=str(number))) for number in range(16)]
    found = judged(seen)["references"]
    assert len(found) == 16 and found[0]["basis"]["args"] == "1" and found[-1] == kept


def test_an_answer_that_changes_by_itself_is_no_reference():
    seen = good()
    seen["wire"]["decode"]["same"] = False
    assert (judged(seen)["references"], holds(judged(seen))["answer"]) == ([], None)


def test_an_empty_answer():
    assert broken(lambda seen: seen["wire"]["decode"].update(text=" \n")).startswith("its answer is empty, a text is")


def test_a_service_of_one_node_is_judged_by_build_and_answer():
    seen = good()
    seen.update(processes=[], releases=[RELEASE], knocks={})
    seen["wire"].update(connections=[])
    seen["wire"]["decode"]["workers"] = seen["wire"]["prefill"]["workers"] = []
    assert holds(judged(seen, dict(HEAD, shares=[]))) == {"build": True, "answer": None}
