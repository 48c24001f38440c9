# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of benchmarks and their comparison."""

import copy

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import bench
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports import speed as reports_speed

HEAD = {
    "service": "reasoning",
    "label": "reasoning on node1",
    "node": "node1",
    "endpoint": "http://10.0.0.31:8000/v1",
    "model": "or1-behemoth",
    "quant": "Q8_0",
    "args": ["--port", "8000"],
    "serves": "text",
    "shares": [{"node": "node2"}],
    "models": [],
}
SETTINGS = {
    "from": "head",
    "prompts": {"short": "Name a color."},
    "requests": 4,
    "max_tokens": 100,
    "ignore_eos": True,
    "cache_prompt": False,
}


def pct(p50, p90=None, n=4):
    return {"p50": p50, "p90": p50 if p90 is None else p90, "p95": p90 or p50, "p99": p90 or p50, "n": n}


def cell(rate=12.0, first=1.5, spread=0.0, **changes):
    figures = {
        "requests": 4,
        "errors": 0,
        "reasons": {},
        "seconds": 40.0,
        "prompt_tokens": 128,
        "generated_tokens": 400,
        "tokens_per_second": rate,
        "request_tokens_per_second": pct(rate, rate * (1 + spread)),
        "time_to_first_token": pct(first, first * (1 + spread)),
        "server": {"prompt_tokens_per_second": pct(80.0), "tokens_per_second": pct(rate)},
    }
    one = {"prompt": "short", "depth": 0, "depth_counted": True, "concurrency": 1, "others": 0}
    return dict(dict(one, began=1000.0, ended=1003.0, figures=figures), **changes)


def sample(at, cpu=0.5, rx=0, tx=0, memory=22574, utilization=40):
    card = {"index": 0, "utilization": utilization, "memory_mib": memory, "power_w": 100.0}
    return {"at": at, "cpu": cpu, "rx_bytes": rx, "tx_bytes": tx, "cards": [card]}


MACHINE = {
    "kernel": "4.18.0",
    "driver": "535.183.01",
    "cards": ["Tesla V100S-PCIE-32GB"],
    "cpu": "Xeon",
    "cores": 40,
    "build": {"release": "b11434", "commit": "abc", "sha256": "d"},
    "link": {"interface": "ib0", "link_layer": "InfiniBand", "rate_gbps": 100},
}
WATCHED = {
    "machine": MACHINE,
    "samples": [
        sample(998, 0.0, 1000, 500),
        sample(999.5, 0.0, 1000, 500),
        sample(1001, 0.4, 11000, 5500, 28708, 60),
        sample(1003, 0.6, 41000, 20500, 26000, 30),
        sample(1010, 1.0, 99000, 99000, 30000, 100),
    ],
}


def report(*cells, baseline=(), loss=0.0, **changes):
    watches = {"node1": WATCHED, "node2": {"machine": MACHINE, "samples": []}}
    return bench.bench_report(
        dict(HEAD, **changes),
        list(cells or [cell()]),
        watches,
        SETTINGS,
        "2026-11-25T20:00:00Z",
        [{"node": "node1"}],
        baseline,
        loss,
    )


def test_result_has_samples_of_the_nodes():
    made = report()
    (one,) = made["result"]["cells"]
    node = one["nodes"]["node1"]
    assert (node["cpu"], node["fabric_rx_bytes"], node["fabric_tx_bytes"]) == (0.5, 40000, 20000)
    assert node["cards"] == [{"index": 0, "utilization": 45.0, "memory_peak_mib": 28708}]
    assert one["nodes"]["node2"] is None
    names = ["20261125T200000Z-%s.json", "latest-%s.json"]
    assert list(made["files"]) == ["benchmarks/" + name % "reasoning.node1" for name in names]


def test_result_has_a_fingerprint():
    kept = report()["result"]["fingerprint"]
    assert kept["build"]["release"] == "b11434" and kept["args"] == ["--port", "8000"] and len(kept["plan"]) == 12
    assert kept["nodes"]["node2"]["driver"] == "535.183.01" and kept["link"]["interface"] == "ib0"
    assert report(shares=[])["result"]["fingerprint"]["link"] is None
    # A report has no text of prompts.
    assert report()["result"]["settings"]["prompts"]["short"] != "Name a color."


def test_lines_name_disturbances_and_errors():
    failed = cell(others=None, depth_counted=False)
    failed["figures"].update(errors=1, reasons={"it answers 503 (Loading model)": 1}, tokens_per_second=None)
    lines = report(cell(others=12), failed)["lines"]
    assert lines[0] == "reasoning.node1 (or1-behemoth Q8_0), asked from head"
    assert "disturbed: the server generated 12 tokens for others meanwhile" in lines
    assert "1 x it answers 503 (Loading model)" in lines
    assert [line for line in lines if "1/4" in line and "  -  " in line]
    assert len([line for line in lines if "not known" in line or "estimated" in line]) == 2


def test_router_is_measured_for_generating_models():
    models = [
        {"model": "coder", "quant": "Q4_K_M", "args": [], "serves": "text"},
        {"model": "embed", "quant": "Q8_0", "args": [], "serves": "embeddings"},
    ]
    found = bench.bench_heads([dict(HEAD, models=models, label="fast"), HEAD])
    assert [(one["model"], one["label"]) for one in found["heads"]] == [
        ("coder", "fast.coder"),
        ("or1-behemoth", "reasoning on node1"),
    ]
    assert found["left_out"] == ["fast.embed: not measured, it generates nothing"]


@pytest.mark.parametrize(
    ("watch", "said"),
    [
        ({"failed": True, "msg": "llama_bench_watch: root is needed"}, "llama_bench_watch: root is needed"),
        ({"unreachable": True, "msg": "Failed to connect:\n no route"}, "Failed to connect: no route"),
        ({"finished": 0, "ansible_job_id": "j1"}, "the watching has not ended"),
    ],
)
def test_unwatched_node_is_named(watch, said):
    watches = {"node1": WATCHED, "node2": watch}
    made = bench.bench_report(HEAD, [cell()], watches, SETTINGS, "2026-11-25T20:00:00Z")
    assert made["result"]["unwatched"] == {"node2": said}
    assert made["result"]["cells"][0]["nodes"]["node2"] is None and made["result"]["cells"][0]["nodes"]["node1"]
    assert made["lines"][-1] == "node2 was not watched: " + said


def compare(new, old, loss=5.0, change=None):
    before = copy.deepcopy(report(old)["result"])
    if change:
        change(before)
    return report(new, baseline=[before], loss=loss)


def test_same_speed_passes():
    compared = compare(cell(), cell())
    assert compared["refused"] == []
    assert "  short at 0 tokens, 1 at a time: tokens/s 12.0, 12.0 before (+0.0 %, noise 0.0 %)" in compared["lines"]


@pytest.mark.parametrize(("rate", "first", "refused"), [(11.4, 1.5, 0), (11.39, 1.5, 1), (12, 1.575, 0), (12, 1.58, 1)])
def test_loss_is_the_limit(rate, first, refused):
    assert len(compare(cell(rate, first), cell())["refused"]) == refused


def test_loss_within_noise_passes():
    # 20 % between p50 and p90 of 4 requests are 7.8 % of error in each, twice their sum 22 %.
    assert compare(cell(9.0, spread=0.2), cell(spread=0.2))["refused"] == []
    (sentence,) = compare(cell(8.0, spread=0.2), cell(spread=0.2))["refused"]
    assert sentence == (
        "reasoning.node1: short at 0 tokens, 1 at a time: tokens/s 8.0 seen, at least 8.8 is needed (12.0 before, "
        "5 % and 22.1 % of noise allowed)"
    )


def test_missing_rate_is_refused():
    silent = cell(rate=12.0)
    silent["figures"].update(tokens_per_second=None, time_to_first_token=None)
    refused = compare(silent, cell())["refused"]
    assert refused[0] == "reasoning.node1: short at 0 tokens, 1 at a time: no tokens/s, 12.0 before"


def test_changed_fingerprint_is_printed():
    def change(before):
        before["fingerprint"]["build"] = {"release": "b7772", "commit": "old"}
        before["fingerprint"]["nodes"]["node2"]["driver"] = "470"
        before["fingerprint"]["args"] = ["--port", "8001"]

    lines = compare(cell(), cell(), change=change)["lines"]
    assert "  build: b7772 before, b11434 now" in lines
    assert "  driver of node2: 470 before, 535.183.01 now" in lines
    assert "  arguments: 8001 before, 8000 now" in lines


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda one: one.update(format=2), "format 2 of kind benchmark seen"),
        (lambda one: one["settings"].update(max_tokens=64), "max_tokens 64 seen, 100 is needed"),
        (lambda one: one["settings"]["prompts"].update(short="x"), "prompt short x seen"),
        (lambda one: one["cells"][0].update(depth=4096), "no cell in common"),
    ],
)
def test_other_settings_are_refused(change, words):
    (sentence,) = compare(cell(), cell(), change=change)["refused"]
    assert sentence.startswith("reasoning.node1: baseline") and words in sentence


BEFORE = {"chat": {"requests": 5, "tokens_per_second": 40.0, "prompt_tokens_per_second": 200.0, "build": "b1"}}


def measured(rate, prompt_rate=100.0, service="chat", others=0, errors=0, **also):
    """A result of llama_bench."""
    server = {
        "tokens_per_second": rate and {"p50": rate},
        "prompt_tokens_per_second": prompt_rate and {"p50": prompt_rate},
    }
    figures = {"requests": 5, "errors": errors, "reasons": {"it answers 503 (busy)": errors} if errors else {}}
    cells = [{"others": others, "figures": dict(figures, server=server)}]
    return dict({"item": {"service": service}, "cells": cells}, **also)


def speed(rate, prompt_rate=200.0):
    return {"chat": {"requests": 5, "tokens_per_second": rate, "prompt_tokens_per_second": prompt_rate}}


def test_rates_are_those_that_the_server_tells():
    found = reports_speed.rates(measured(1.2345, 100.456, errors=1)["cells"][0])
    assert found == {"requests": 4, "tokens_per_second": 1.23, "prompt_tokens_per_second": 100.46}
    assert reports_speed.rates(measured(None, 10.0)["cells"][0]) is None
    assert reports_speed.rates(measured(10.0, None)["cells"][0]) is None
    assert reports_speed.rates({}) is None


def test_what_is_at_the_limit_is_allowed():
    assert reports_speed.too_slow(speed(32.0, 160.0), BEFORE, 0.8) == []
    assert reports_speed.too_slow(speed(31.9, 160.0), BEFORE, 0.8) == [
        "llama_services.chat generates 31.9 tokens/s, 32.0 are needed (0.8 of the 40.0 before)",
    ]
    assert reports_speed.too_slow(speed(40.0, 100.0), BEFORE, 0.8) == [
        "llama_services.chat reads prompts at 100.0 tokens/s, 160.0 are needed (0.8 of the 200.0 before)",
    ]
    assert reports_speed.too_slow(speed(0.1, 0.1), BEFORE, 0) == []


def test_the_filter_measures_and_judges():
    rates = {"chat": {"requests": 5, "tokens_per_second": 5.0, "prompt_tokens_per_second": 50.0}}
    assert reports_speed.upgrade_speed([measured(5.0, 50.0)]) == {"rates": rates, "refused": [], "unmeasured": {}}
    found = reports_speed.upgrade_speed([measured(5.0, 50.0)], BEFORE, 0.8)
    assert (found["rates"], found["refused"]) == (rates, reports_speed.too_slow(rates, BEFORE, 0.8))
    assert len(found["refused"]) == 2


def test_a_service_that_was_busy_is_named():
    """One was busy from the beginning, one while it was measured, one answered nothing, one could not be asked."""
    looks = [
        {"state": "busy", "reason": "1 of 1 slots work", "item": {"service": "chat"}},
        {"state": "ready", "reason": "it is idle", "item": {"service": "embed"}},
    ]
    results = [
        measured(9.0, service="embed", others=3),
        measured(None, service="silent", errors=5),
        {"item": {"service": "locked"}, "msg": "llama_bench: http://h: it answers 401", "failed": True},
        measured(9.0, service="c"),
    ]
    found = reports_speed.upgrade_speed(results, BEFORE, 0.8, looks)
    assert list(found["rates"]) == ["c"]
    assert found["unmeasured"] == {
        "chat": "busy, 1 of 1 slots work",
        "embed": "busy, others came while it was measured",
        "silent": "it answers 503 (busy)",
        "locked": "llama_bench: http://h: it answers 401",
    }
    assert reports_speed.unmeasured_lines(found["unmeasured"])[0].startswith("chat: its speed was not measured (busy, ")


def test_without_a_baseline_nothing_is_judged():
    assert reports_speed.too_slow(speed(0.1), {}, 0.8) == []
    assert reports_speed.speed_lines(speed(20.0), {}) == [
        "chat: 20.0 tokens/s, prompts 200.0 tokens/s (median of 5); nothing to compare it with"
    ]
    assert reports_speed.speed_lines(speed(20.0), BEFORE) == [
        "chat: 20.0 tokens/s, prompts 200.0 tokens/s (median of 5); before: 40.0 and 200.0 with b1"
    ]


def test_without_a_ratio_nothing_is_too_slow():
    assert reports_speed.upgrade_speed([measured(0.1, 0.1)], BEFORE)["refused"] == []
