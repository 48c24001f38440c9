# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The split proof of a sound service, and of each fault."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.wire import wire_report

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
        {"endpoint": endpoint, "bytes_sent": 10**6, "bytes_received": 64 * count}
        for endpoint, count in zip(ENDPOINTS, (2312, 196616), strict=True)
    ]
    decode = {
        **{"tokens": 64, "answers": 1, "tokens_per_second": 50.0},
        **{"began": 1000.0, "ended": 1010.0, "workers": moved},
    }
    return {
        "wire": {
            "state": "ready",
            "reason": "it is idle",
            "connections": [{"endpoint": one, "ends": [["10.100.0.31:40000", one]]} for one in ENDPOINTS],
            "decode": decode,
        },
        "process": process("10.0.0.31:8000"),
        "processes": [process(endpoint) for endpoint in ENDPOINTS],
        "releases": [RELEASE] * 3,
        "probes": {"node1": dict.fromkeys(ENDPOINTS, "refused"), "node2": dict.fromkeys(ENDPOINTS, "silent")},
        "load": {"devices": [device(endpoint) for endpoint in ENDPOINTS]},
        "addresses": {"node1": "10.100.0.31", "node2": "10.100.0.32", "node3": "10.100.0.33"},
        "plan": [row("node2"), row("node3")],
        "watches": {},
    }


def judged(seen, head=None):
    return wire_report(head or HEAD, seen, AT)


def checks(found):
    return json.loads(found["files"]["wire/latest-chat.json"])["checks"]


def holds(found):
    return {check["name"]: check["holds"] for check in checks(found)}


def test_service_in_order():
    found = judged(good())
    assert (found["refused"], found["verdict"]) == ([], "true")
    assert holds(found) == {
        **{"build": True, "memory": True, "addresses": True, "bytes": True, "closed": True, "work": None},
    }
    assert list(found["files"]) == ["wire/20261126T110000Z-chat.json", "wire/latest-chat.json"]
    assert [line[:12].strip() for line in found["lines"]][0] == "wire of chat"


def worker_of(seen, index=0):
    return seen["processes"][index]


def ethernet(seen):
    seen["wire"]["connections"][0]["ends"] = [["10.0.0.31:40000", "10.100.0.32:50052"]]


FAULTS = {
    "idle worker": (
        lambda s: s["wire"]["decode"]["workers"][0].update(bytes_received=511),
        "worker node2 sent back 511",
    ),
    "other release": (
        lambda s: worker_of(s, 1).update(release="b9-cpu-2"),
        "node3 runs b9-cpu-2, release b11434-cpu-1",
    ),
    "unknown program": (lambda s: worker_of(s, 1).update(release=None), "node3 runs a program of elsewhere"),
    "foreign file": (lambda s: worker_of(s, 1).update(foreign=["/home/eve/a.so"]), "node3 runs /home/eve/a.so"),
    "stopped worker": (lambda s: worker_of(s, 1).update(pid=None), "worker node3 does not run"),
    "other commit": (
        lambda s: worker_of(s, 1)["build"].update(identity="388c"),
        "node3 runs build 388c and the head 5f27",
    ),
    "changed file": (
        lambda s: worker_of(s, 1)["build"].update(intact=False, broken=["bin/ggml-rpc-server"]),
        "release b11434-cpu-1 of node3 has changed files (bin/ggml-rpc-server)",
    ),
    "other network": (ethernet, "RPC of worker node2 uses 10.0.0.31 of node1, its llama_fabric_address 10.100.0.31"),
    "no connection": (
        lambda s: s["wire"]["connections"][1].update(ends=[]),
        "the head has no connection to worker node3 at 10.100.0.33:50052",
    ),
    "listens everywhere": (
        lambda s: worker_of(s).update(listens=["0.0.0.0:50052"]),
        "worker node2 listens on 0.0.0.0:50052, only 10.100.0.32:50052 is needed",
    ),
    "listens nowhere": (lambda s: worker_of(s).update(listens=[]), "worker node2 listens on nothing"),
    "open port": (
        lambda s: s["probes"].update(node3={ENDPOINTS[0]: "open", ENDPOINTS[1]: "refused"}),
        "node3 gets a connection to the RPC port 10.100.0.32:50052",
    ),
    "memory missing": (lambda s: worker_of(s).update(resident_mib=10.0), "worker node2 holds 10 MiB, weights"),
    "memory off plan": (
        lambda s: s["load"]["devices"][0].update(total_mib=120.0),
        "worker node2 was given 120 MiB, 100 are planned",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_one_sentence(name):
    change, said = FAULTS[name]
    seen = good()
    change(seen)
    found = judged(seen)
    assert found["verdict"] == "refused"
    (sentence,) = found["refused"]
    assert sentence.startswith("llama_services.chat: " + said)


def divided():
    """Two workers with a part of every layer; the log has the size of the larger part."""
    seen = good()
    seen["load"].update(divided=True, width=576, layers_total=31)
    for one in seen["wire"]["decode"]["workers"]:
        one["bytes_received"] = 64 * 149000
    seen["plan"][0].update(loaded_mib=None, planned_mib={"weights": 30, "kv": 10, "compute": 20})
    seen["processes"][0]["resident_mib"] = 50.0
    return seen


def test_smaller_part_is_judged_by_its_plan():
    assert judged(divided())["verdict"] == "true"
    seen = divided()
    seen["processes"][0]["resident_mib"] = 30.0
    (sentence,) = judged(seen)["refused"]
    assert sentence.startswith("llama_services.chat: worker node2 holds 30 MiB, weights and KV cache of 40 are needed")


def test_each_part_sends_results_of_all_layers():
    seen = divided()
    seen["wire"]["decode"]["workers"][0]["bytes_received"] = 64 * 2312
    (sentence,) = judged(seen)["refused"]
    words = "worker node2 sent back 147968 bytes for 64 tokens, at least 4423680 are needed: it has no part of some"
    assert sentence.startswith("llama_services.chat: " + words)


def test_unreached_host_is_named():
    seen = good()
    seen["probes"]["node9"] = None
    said = checks(judged(seen))[-1]["said"]
    assert said == "refused to node1; no answer to node2; not asked: node9"


def test_uncounted_bytes_are_not_judged():
    seen = good()
    for one in seen["wire"]["decode"]["workers"]:
        one["bytes_received"] = None
    found = judged(seen)
    assert (holds(found)["bytes"], found["refused"], found["verdict"]) == (None, [], "not judged")


def test_unprobed_ports_prove_nothing():
    seen = good()
    seen["probes"] = dict.fromkeys(seen["probes"])
    assert judged(seen)["verdict"] == "not judged"


def test_busy_service_is_not_looked_at():
    seen = good()
    seen["wire"].update(decode=None, reason="1 of 1 slots work")
    found = judged(seen)
    assert (found["lines"], found["refused"], found["files"]) == (
        ["wire of chat: not looked at, 1 of 1 slots work"],
        [],
        {},
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


def test_cards_busy_a_third_each_hold():
    found = judged(on_cards(30, 28))
    assert (found["refused"], holds(found)["work"]) == ([], True)


@pytest.mark.parametrize(
    "planned, devices, refused",
    [
        ("GPU0", ["CPU"], True),
        ("GPU0", ["Vulkan0"], False),
        ("GPU0", [], False),
        ("main", ["CPU"], False),
    ],
)
def test_worker_on_processor_instead_of_card(planned, devices, refused):
    seen = good()
    seen["plan"] = [dict(row("node2"), device=planned), row("node3")]
    seen["processes"][0]["devices"] = devices
    words = "worker node2 computes on its processor, GPU0 is planned"
    assert [words in one for one in judged(seen)["refused"]] == [True] * refused


def test_unknown_card_memory_is_not_judged():
    seen = on_cards(30, 28)
    seen["processes"][0].update(cards_mib={"0": 0.0}, resident_mib=5.0)
    assert judged(seen)["refused"] == []


def test_idle_card_is_refused():
    (sentence,) = judged(on_cards(30, 5))["refused"]
    assert "node3 card 0 was busy 5 % of the time, more than 23 % are needed of each of 3 stages" in sentence


def test_too_few_samples_are_not_judged():
    seen = on_cards(30, 5)
    for watch in seen["watches"].values():
        del watch["samples"][2:]
    assert (holds(judged(seen))["work"], judged(seen)["refused"]) == (None, [])


def test_service_of_one_node_is_judged_by_build():
    seen = good()
    seen.update(processes=[], releases=[RELEASE], probes={})
    seen["wire"].update(connections=[])
    seen["wire"]["decode"]["workers"] = []
    assert holds(judged(seen, dict(HEAD, shares=[]))) == {"build": True}
