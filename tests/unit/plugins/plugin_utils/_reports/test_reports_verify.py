# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report, from what the hosts of a run have said and from what is kept."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.gathered import gathered
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.verify import criteria_report
from ansible_collections.thefermisea.llama_cluster.tests.unit import mixture

NOW, EARLIER = "2026-11-26T10:00:00Z", "2026-11-25T10:00:00Z"
DECISIONS = "/opt/docs/architecture-decisions.md"
GROUPS = {"llama_nodes": ["node1", "node2"], "all": ["node1", "node2"]}
SERVICES = {
    "chat": {"model": "m", "quant": "F16", "head": "node1", "workers": "node2", "port": 8000, "rpc_port": 50052}
}
MODELS = {"m": {"quants": {"F16": {"urls": ["https://models.example.org/m.gguf"]}}}}
SHAPE = mixture.DENSE.as_dict()
LAYERS = mixture.DENSE.block_count
PLAN = {
    "node": "node1",
    "model": "m",
    "layers": {"node1": 40, "node2": 40},
    "tensor_split": [40, 41],
    "cpu_moe": 0,
    "devices": [
        {"node": "node2", "device": "GPU0", "layers": 32, "first_layer": 0, "last_layer": 31},
        {"node": "node1", "device": "GPU0", "layers": LAYERS - 32, "first_layer": 32, "last_layer": LAYERS - 1},
    ],
}


def memory(node, bandwidth=521.4):
    """The fact __preflight_memory."""
    return {"devices": [{"node": node, "device": "GPU0", "bandwidth": bandwidth}], "main": {}}


def unit(kind):
    name = "llama-%s-chat.service" % kind
    found = {"name": name, "service": "chat", "installed": True, "managed": True, "enabled": True}
    return dict(found, active_state="active", arguments=["/opt/llama.cpp/releases/b1/bin/server"])


def cell(rate=12.7, first=0.8, **changes):
    """A cell of llama_bench. first: None if the model only thought."""
    figures = {
        "errors": 0,
        "prompt_tokens": 60,
        "request_tokens_per_second": {"p50": rate},
        "time_to_first_token": None if first is None else {"p50": first},
        "time_to_first_reasoning": {"p50": 1.5},
        "queue_seconds": {"p50": 0.1},
    }
    found = {"prompt": "short", "depth": 0, "concurrency": 1, "others": 0, "figures": figures}
    return dict(found, **changes)


def host(kind, **changes):
    build = {"current_build": "b1", "build_intact": True, "build_sha256": "x", "build_identity": "abc"}
    model = {"item": {"dest": "/opt/models/m.gguf"}, "there": True, "shape": SHAPE}
    facts = {
        "llama_fabric_address": "10.0.0.1" if kind == "head" else "10.0.0.2",
        "preflight_plan": {"services": {"chat": [PLAN]}},
        "__preflight_memory": memory("node1" if kind == "head" else "node2"),
        "ansible_facts": {
            "llama_node": {"units": [unit(kind)], "build": {"of": {"b1": build}}, "files": {DECISIONS: None}},
        },
        "acceptance_hand": {
            "now": 1e6,
            "at": 0.0,
            "what": "/etc/llama-cluster changed",
            "restart": {"llama-%s-chat.service" % kind: "always"},
            "recovered": None,
        },
        "acceptance_models_seen": {"models": [model] if kind == "head" else []},
        "acceptance_measured": {"results": [{"item": {"label": "chat", "service": "chat"}, "cells": [cell()]}]}
        if kind == "head"
        else {"results": []},
    }
    return dict(facts, **changes)


HOSTS = {"node1": host("head"), "node2": host("rpc")}
REPORT = {
    "format": 1,
    "kind": "verify",
    "service": "chat",
    "label": "chat",
    "measured_at": EARLIER,
    "tokens_per_second": 9.0,
    "workers": [{"node": "node2", "layers": 40, "bytes_sent": 9, "bytes_received": 9}],
    "plan": [
        {
            "node": "node1",
            "device": "GPU0",
            "planned_mib": {"weights": 20000, "kv": 100, "compute": 100},
            "total_mib": 20700,
            "loaded_mib": None,
            "card_mib": 20300,
        }
    ],
}


def benchmark(*cells, quant="F16"):
    found = {"format": 1, "kind": "benchmark", "service": "chat", "label": "chat", "measured_at": EARLIER}
    return json.dumps(dict(found, model="m", quant=quant, cells=cells))


KEPT = {"reports/chat.json": json.dumps(REPORT)}


def seen(**changes):
    given = dict({"hosts": HOSTS, "texts": KEPT, "groups": GROUPS, "services": SERVICES}, **changes)
    return gathered(given["hosts"], given["groups"], given["services"], MODELS, "/opt/models", given["texts"], NOW)


def measured(**changes):
    return seen(**changes).services[0].measured


def test_what_was_measured_just_now_counts():
    one = measured(texts={**KEPT, "b": benchmark(cell(rate=3.0))})
    assert (one.label, one.rate, one.first_token, one.queue, one.measured_at) == ("chat", 12.7, 0.8, 0.1, NOW)
    # One card after the other at 521.4 GB/s.
    read = sum(mixture.DENSE.block_bytes) + mixture.DENSE.output_bytes
    assert one.ceiling == pytest.approx(521.4e9 / read, rel=1e-3) and one.stages == 2


def others(**changes):
    return {**HOSTS, "node1": host("head", **changes)}


@pytest.mark.parametrize(
    "results",
    [
        # Disturbed by others, all requests failed, and no request was sent.
        [{"item": {"label": "chat"}, "cells": [cell(others=7)]}],
        [{"item": {"label": "chat"}, "cells": [cell(figures={"errors": 3})]}],
        [{"item": {"label": "chat"}, "failed": True}],
        [],
    ],
)
def test_last_benchmark_then_verify_is_the_source(results):
    hosts = others(acceptance_measured={"results": results})
    busy = cell(rate=1.0, concurrency=5)
    deep = cell(rate=2.0, depth=4096)
    one = measured(hosts=hosts, texts={**KEPT, "b": benchmark(busy, deep, cell(rate=11.0))})
    assert (one.rate, one.evidence, one.measured_at) == (11.0, "benchmark", EARLIER)
    one = measured(hosts=hosts)
    assert (one.rate, one.first_token, one.evidence) == (9.0, None, "the answer that verify got")
    assert measured(hosts=hosts, texts={}).rate is None


def test_first_thought_is_the_first_token():
    results = [{"item": {"label": "chat"}, "cells": [cell(first=None)]}]
    assert measured(hosts=others(acceptance_measured={"results": results})).first_token == 1.5


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"acceptance_models_seen": {"models": []}}, "the header of its model was not read"),
        ({"__preflight_memory": memory("node1", None)}, "a bandwidth is not known"),
        ({"preflight_plan": {}}, "no plan says"),
    ],
)
def test_why_there_is_no_ceiling(changes, why):
    one = measured(hosts=others(**changes))
    assert one.ceiling is None and one.no_ceiling.startswith(why)


def test_peaks_and_utilization_are_those_of_the_benchmark():
    cards = {"node1": {"cards": [{"index": 0, "utilization": 31.0, "memory_peak_mib": 21000}]}, "node2": None}
    later = {"node1": {"cards": [{"index": 0, "utilization": 90.0, "memory_peak_mib": 20500}]}}
    one = measured(texts={**KEPT, "b": benchmark(cell(nodes=cards), cell(concurrency=5, nodes=later))})
    assert one.peaks == {"node1": {0: 21000}} and one.utilization == {("node1", 0): 31.0}


def test_another_quants_benchmark_is_not_its():
    found = measured(hosts=others(acceptance_measured={"results": []}), texts={"b": benchmark(cell(), quant="Q8_0")})
    assert (found.quant, found.rate, found.first_token) == ("F16", None, None)


def test_service_of_a_held_node_is_not_judged():
    facts = HOSTS["node2"]["ansible_facts"]
    held = host("rpc", ansible_facts={**facts, "llama_node": {**facts["llama_node"], "held": EARLIER}})
    found = seen(hosts={**HOSTS, "node2": held})
    assert found.services == [] and found.wanted == {"node1": [], "node2": []}


def test_what_is_stopped_is_not_judged():
    found = seen(services={"chat": dict(SERVICES["chat"], state="stopped")})
    assert found.services == [] and found.wanted == {"node1": [], "node2": []}


def test_router_is_judged_by_its_models():
    services = {"fast": {"kind": "router", "head": "node1", "models": {"m": "F16"}, "port": 8080}}
    texts = {"b": benchmark(cell(rate=20.0)).replace('"chat"', '"fast.m"')}
    (found,) = seen(services=services, texts=texts).services
    assert (found.measured.label, found.measured.rate) == ("fast.m", 20.0)
    # Its header is that of its own file.
    assert found.measured.no_ceiling == "no plan says what a token reads"
    facts = HOSTS["node1"]["ansible_facts"]
    held = others(ansible_facts={**facts, "llama_node": {**facts["llama_node"], "held": EARLIER}})
    assert seen(hosts=held, services=services).services == []


@pytest.mark.parametrize("name", ["node1", "node2"])
def test_a_node_without_an_answer_is_missing(name):
    facts = {key: value for key, value in HOSTS[name].items() if key != "acceptance_hand"}
    assert seen(hosts={**HOSTS, name: facts}).missing == [name]
    # Its module failed, or it failed later.
    assert seen(hosts={**HOSTS, name: dict(HOSTS[name], acceptance_hand={"unreachable": True})}).missing == [name]
    assert seen(hosts={**HOSTS, name: dict(HOSTS[name], ansible_facts={})}).missing == [name]
    assert seen(hosts={**HOSTS, name: dict(HOSTS[name], acceptance_models_seen={"failed": True})}).missing == [name]


MONITORED = dict(GROUPS, llama_monitoring=["watch"])


@pytest.mark.parametrize(
    ("watch", "groups", "monitoring"),
    [
        ({"acceptance_hand": {"now": 1e6, "at": None}, "monitoring_verified": True}, MONITORED, True),
        # Its tag was skipped.
        ({"acceptance_hand": {"now": 1e6, "at": None}}, MONITORED, None),
        ({}, MONITORED, False),
        ({"monitoring_prometheus": "existing"}, MONITORED, None),
        ({}, GROUPS, None),
    ],
)
def test_whether_monitoring_was_proved(watch, groups, monitoring):
    assert seen(hosts={**HOSTS, "watch": watch}, groups=groups).monitoring is monitoring


def test_wire_truth_is_that_of_the_service():
    wire = {"format": 1, "kind": "wire", "service": "chat", "measured_at": EARLIER, "verdict": "true", "sentences": []}
    assert seen(texts={**KEPT, "wire/latest-chat.json": json.dumps(wire)}).services[0].wire == wire
    assert seen().services[0].wire is None


# The whole


def report(**changes):
    given = {"hostvars": HOSTS, "texts": KEPT, **changes}
    return criteria_report(given["hostvars"], GROUPS, SERVICES, MODELS, "/opt/models", given["texts"], NOW)


def test_what_an_operator_reads():
    found = report()
    assert found["refused"] == [] and set(found["files"]) == {
        "verify/20261126T100000Z.json",
        "verify/latest.json",
        "report.html",
    }
    assert found["lines"][0] == "acceptance: 8 of 10 criteria met"
    assert found["lines"][1] == "met                 binaries of one version: b1, whole and the same on 2 nodes"
    assert found["lines"][5] == "met                 throughput: chat 12.7 tokens/s, 47.0 % of the ceiling"
    table = found["lines"][11:]
    assert table[0].split("  ")[0] == "service"
    assert "47.0 % of 27.1 tokens/s" in table[1] and table[1].endswith("acceptable")
    assert table[3].split()[1:4] == ["memory", "node1", "GPU0"] and table[4].split()[:2] == ["all", "link"]


def test_what_is_kept_survives_json_and_says_when():
    result = json.loads(report()["files"]["verify/latest.json"])
    assert (result["format"], result["kind"], result["measured_at"]) == (1, "report", NOW)
    assert set(result["criteria"][0]) == {"name", "verdict", "value", "evidence", "measured_at", "needed"}
    assert result["figures"]["chat"]["tokens_per_second"] == 12.7
    assert [row["metric"] for row in result["readings"]] == ["throughput", "first token", "memory node1 GPU0", "link"]


def test_what_is_not_met_is_a_sentence_each():
    slow = cell(rate=2.0, first=9.0)
    slow["figures"]["time_to_first_reasoning"] = None
    hosts = others(acceptance_measured={"results": [{"item": {"label": "chat"}, "cells": [slow]}]})
    assert report(hostvars=hosts)["refused"] == [
        "verify: throughput: chat 2.0 tokens/s, 7.4 % of the ceiling, 45 % of what memory allows are needed: run "
        "doctor.yml",
        "verify: first token < 5 s: chat 9.00 s, less than 5 s are needed: run doctor.yml, and benchmark.yml to see "
        "where they go",
    ]


def test_a_file_that_is_no_result_is_named():
    assert report(texts={**KEPT, "reports/x.json": "{"})["lines"][-1] == "not read: reports/x.json, not a result"


def test_one_node_has_no_link():
    services = {"chat": {"model": "m", "quant": "F16", "head": "node1", "port": 8000}}
    found = criteria_report(HOSTS, GROUPS, services, MODELS, "/opt/models", {}, NOW)
    assert "link" not in [row["metric"] for row in json.loads(found["files"]["verify/latest.json"])["readings"]]


def test_targets_belong_to_their_service():
    wanted = {"tokens_per_second": {"target": 30, "acceptable": 20, "critical": 5, "source": "us"}}
    hosts = {name: dict(facts, llama_targets={"chat": wanted}) for name, facts in HOSTS.items()}
    assert measured(hosts=hosts).targets == wanted and measured().targets == {}
