# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cost of an evaluation, before its first request."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate import plan, questions, store, tasks
from ansible_collections.thefermisea.llama_cluster.tests.unit.plugins.plugin_utils._evaluate.evaluations import (
    GROUPS,
    HOSTVARS,
    MODELS,
    heads,
)


@pytest.fixture(name="planned")
def fixture_planned(tmp_path):
    """planned(kept, **options) -> what evaluation_plan() returns"""
    for kind in ("fix", "own"):
        for number in range(96):
            folder = tmp_path / f"tasks/{kind}/t{number:02}"
            folder.mkdir(parents=True)
            (folder / "task.yml").write_text("summary: x\njudge: rust\nmax_tokens: 1024\n")
            (folder / "prompt.md").write_text(f"{kind} {number}.")
            (folder / "tests.rs").write_text("#[test]\nfn x() {}\n")

    def run(kept=(), **options):
        given = {"directories": [str(tmp_path / "tasks")], "store": str(tmp_path / "evaluations"), "tasks": []}
        given = {**given, "models": ["chat"], "limit": "0", "samples": "1", **options}
        return plan.evaluation_plan(heads(), MODELS, GROUPS, HOSTVARS, dict(kept), given)

    return run


def benchmark(rate, **changes):
    """The latest benchmark of service chat."""
    result = {
        **{"format": 1, "kind": "benchmark", "measured_at": "2026-11-28T08:00:00Z", "service": "chat", "label": "chat"},
        **{"model": "a", "quant": "Q4"},
        "cells": [{"figures": {"request_tokens_per_second": {"p50": rate}}}],
        **changes,
    }
    return {"latest-chat.json": json.dumps(result)}


def answer(planned, tokens, seconds, number):
    """Keeps an answer to one of the questions."""
    found = planned()["plan"]
    own = tasks.chosen(tasks.load(found["directories"]), found["tasks"])
    question = list(questions.questions(own, found["models"][0], 1))[number]
    kept = {"key": question["key"], "content": "x", "completion_tokens": tokens, "seconds": seconds, "error": None}
    kept = {**kept, "finish_reason": "stop", "first_token_s": 0.1, "tokens_per_second": 9.0}
    store.Store(found["store"]).keep_answer(kept)


def test_cost_is_said_by_the_latest_benchmark(planned):
    assert planned(benchmark(12.7))["lines"] == ["a: 192 answers of about 500 tokens at 12.7 tokens/s: 2 h 05 min"]
    for other in ({"quant": "Q8"}, {"model": "b"}, {"service": "solo", "label": "solo"}):
        assert planned(benchmark(12.7, **other))["lines"] == [
            "a: 192 answers of about 500 tokens, its speed is known after the first one"
        ]


def test_kept_answers_tell_more_than_benchmarks(planned):
    for number in range(2):
        answer(planned, 100, 20.0, number)
    found = planned(benchmark(12.7))
    assert found["lines"] == ["a: 190 answers of about 100 tokens at 5.0 tokens/s: 1 h 03 min, 2 answers kept already"]
    assert found["plan"]["models"][0]["left"] == 190


def test_nothing_is_asked_twice(planned):
    for number in range(2):
        answer(planned, 100, 20.0, number)
    only = planned(tasks=["fix/t00", "fix/t01"])
    assert only["lines"] == ["a: nothing to ask, 2 answers kept already"]


def test_limit_and_samples_count(planned):
    found = planned(benchmark(10), limit="3", samples="2")
    assert found["lines"] == ["a: 12 answers of about 500 tokens at 10.0 tokens/s: 10 min 00 s"]
    assert [len(found["plan"]["tasks"]), found["plan"]["samples"]] == [6, 2]


def test_models_add_up(planned):
    rate = {**benchmark(10), "latest-many.b.json": next(iter(benchmark(5, label="many.b", model="b").values()))}
    found = planned(rate, models=["chat", "many"], limit=1)
    assert found["lines"][-1].startswith("c: 2 answers of about 500 tokens, its speed")
    # How long one of them takes is not known.
    assert not any(line.startswith("together") for line in found["lines"])
    both = {**rate, "latest-many.c.json": next(iter(benchmark(5, label="many.c", model="c").values()))}
    assert planned(both, models=["chat", "many"], limit=1)["lines"][-1] == "together 8 min 20 s"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"samples": "0"}, "samples 0 seen, a number from 1 to 100 is needed: correct -e samples="),
        ({"samples": "x"}, "samples x seen"),
        ({"limit": "-1"}, "limit -1 seen, a number from 0 to 1000"),
        ({"limit": "2.5"}, "limit 2.5 seen"),
        ({"directories": ["/nowhere"]}, "/nowhere: no directory that can be read seen"),
    ],
)
def test_wrong_values_are_refused(planned, options, said):
    with pytest.raises(Refusal, match=said):
        planned(**options)
