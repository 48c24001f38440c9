# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Races of candidates over records."""

import sys
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._tune.race import (
    BASELINE,
    SCORES,
    tune_measured,
    tune_round,
)

sys.path.append(str(Path(__file__).resolve().parents[5] / "tests/benchmarks/tuning"))

import grids  # noqa: E402

CANDIDATES = [
    {"name": BASELINE, "axis": "", "changes": {}},
    {"name": "threads 1", "axis": "threads", "changes": {"threads": 1}},
    {"name": "threads 4", "axis": "threads", "changes": {"threads": 4}, "most_mib": 500},
    {"name": "cache q4_0", "axis": "cache", "changes": {"cache": "q4_0"}, "why": "q4_0 seen, f16 is needed"},
    {"name": "only node1", "axis": "placement", "changes": {}},
]


def record(name, number, rate, **more):
    found = {"name": name, "round": number, "first_token_s": 1.0, "memory_mib": 400, "error": ""}
    return {**found, **dict.fromkeys(SCORES.values(), rate), **more}


def rounds(count, rates, **more):
    return [
        record(name, number, rate, **more.get(name, {}))
        for number in range(1, count + 1)
        for name, rate in rates.items()
    ]


def why(found, name):
    return next((one["why"] for one in found["left"] if one["name"] == name), None)


def test_planted_optima_and_ties():
    assert [one for one in grids.planted(1) if one[1] < one[2]] == []


def test_first_round_measures_all_that_may_start():
    found = tune_round(CANDIDATES, [])
    assert found["alive"] == [BASELINE, "threads 1", "threads 4", "only node1"]
    assert (found["round"], found["finished"], found["best"]) == (1, False, BASELINE)
    assert why(found, "cache q4_0") == "q4_0 seen, f16 is needed"


def test_order_changes_from_round_to_round():
    rates = dict.fromkeys((BASELINE, "threads 1", "threads 4", "only node1"), 10)
    orders = [tune_round(CANDIDATES, rounds(count, rates))["alive"] for count in range(2)]
    assert orders[0][0] == BASELINE != orders[1][0] and BASELINE in orders[1]


def test_winner_is_chosen_and_slower_ones_leave():
    rates = {BASELINE: 10, "threads 1": 8, "threads 4": 13, "only node1": 9}
    found = tune_round(CANDIDATES, rounds(3, rates))
    assert (found["best"], found["finished"], found["alive"]) == ("threads 4", True, [])
    assert found["gain"]["ratio"] == 1.3 and found["gain"]["low"] > 1.25
    assert why(found, "threads 1").startswith("no better than as deployed: 0.80 times")
    assert found["words"].startswith("round 3: threads 4: 1.30 times (")


def test_placement_is_shown_and_never_chosen():
    found = tune_round(CANDIDATES, rounds(4, {BASELINE: 10, "only node1": 20, "threads 1": 8, "threads 4": 8}))
    assert found["best"] == BASELINE and found["ratios"]["only node1"]["ratio"] == 2.0


@pytest.mark.parametrize(
    "more, words",
    [
        ({"error": "llama-server ended"}, "llama-server ended"),
        ({"memory_mib": 501}, "501 MiB seen, at most 500 are allowed, what the plan says and a tenth"),
        ({"first_token_s": 1.5}, "the first token takes 1.50 times as long, at most 1.25 are allowed"),
        ({"first_token_s": 4.0}, "4.00 s to the first token seen, at most 2.00 s are allowed"),
    ],
)
def test_what_costs_too_much_is_left(more, words):
    rates = {BASELINE: 10, "threads 1": 8, "threads 4": 20, "only node1": 9}
    found = tune_round(CANDIDATES, rounds(3, rates, **{"threads 4": more}), bounds={"first_token_s": 2.0})
    assert (why(found, "threads 4"), found["best"]) == (words, BASELINE)


def test_goal_total_keeps_the_single_rate():
    more = {"threads 4": {"tokens_per_second": 9, "total_tokens_per_second": 20}}
    found = tune_round(CANDIDATES, rounds(3, {BASELINE: 10, "threads 1": 8, "threads 4": 9}, **more), "total")
    assert why(found, "threads 4") == "one request has 0.90 times the tokens/s, at least 0.95 are needed"


def test_time_that_is_over_ends_it():
    found = tune_round(CANDIDATES, [], minutes_left=3, minutes_per_candidate=1)
    assert found["alive"] == [BASELINE, "threads 1", "threads 4"]
    assert why(found, "only node1") == "no time left to measure it"
    assert tune_round(CANDIDATES, [], minutes_left=1, minutes_per_candidate=1)["finished"]


def test_deployed_service_that_fails_ends_it():
    rates = {BASELINE: 10, "threads 1": 8}
    found = tune_round(CANDIDATES, rounds(2, rates, **{BASELINE: {"error": "no answer"}}))
    assert found["finished"] and why(found, "threads 1") == "nothing to compare it with, as deployed: no answer"


def test_combinations_of_winners_are_raced():
    two = [*CANDIDATES[:2], {"name": "ubatch_size 128", "axis": "ubatch_size", "changes": {"ubatch_size": 128}}]
    records = rounds(3, {BASELINE: 10, "threads 1": 13, "ubatch_size 128": 12})
    found = tune_round(two, records)
    changes = [{"threads": 1}, {"ubatch_size": 128}]
    assert found["finished"] and [one["changes"] for one in found["combine"]] == changes
    both = {"name": "both", "axis": "combination", "changes": {**changes[0], **changes[1]}}
    again = tune_round([*two, both], records)
    assert sorted(again["alive"]) == [BASELINE, "both", "threads 1"] and again["round"] == 4
    later = [record(*one) for number in (4, 5, 6) for one in ((BASELINE, number, 10), ("threads 1", number, 13))]
    later += [record("both", number, 15) for number in (4, 5, 6)]
    last = tune_round([*two, both], records + later)
    assert (last["best"], last["finished"], last["combine"]) == ("both", True, [])


def test_record_of_llama_bench_cells():
    figures = {
        "request_tokens_per_second": {"p50": 40.0},
        "time_to_first_token": {"p50": 0.5},
        "server": {"prompt_tokens_per_second": {"p50": 300.0}},
        "tokens_per_second": 38.0,
        "reasons": {},
    }
    cells = [
        {"concurrency": 1, "figures": figures},
        {"concurrency": 4, "figures": dict(figures, tokens_per_second=90.0, reasons={"timeout": 1})},
    ]
    assert tune_measured("threads 1", 2, cells, 410) == {
        "name": "threads 1",
        "round": 2,
        "tokens_per_second": 40.0,
        "total_tokens_per_second": 90.0,
        "prompt_tokens_per_second": 300.0,
        "first_token_s": 0.5,
        "memory_mib": 410,
        "error": "requests failed: timeout",
    }
    assert tune_measured("threads 1", 1, [], error="it ended")["tokens_per_second"] is None
