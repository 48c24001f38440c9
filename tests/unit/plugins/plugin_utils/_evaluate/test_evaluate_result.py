# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures, page and result of an evaluation."""

import json
import re

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate.page import FAILED, page
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate.rates import rates
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate.result import evaluate_result
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.evaluation import evaluations, wilson
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.results import Results

KINDS = ("fix", "complete", "refactor", "idiomatic")
TASKS = [{"name": f"{KINDS[number % 4]}/{number}", "kind": KINDS[number % 4], "digest": "d"} for number in range(96)]
MODELS = [{"name": "m", "asks": "m", "service": "chat", "model": "m", "quant": "Q8_0", "build": "b1", "sha256": ["0"]}]
ABOUT = {"at": "2026-11-28T09:00:00Z", "judge": "rustc 1.63", "temperature": 0.0, "samples": 1, "models": MODELS}


def answer(task, model="m", sample=0, **changes):
    found = {"key": f"{model} {task} {sample}", "model": model, "task": task, "sample": sample, "content": "text"}
    found.update(completion_tokens=100, first_token_s=0.5, seconds=10.0, tokens_per_second=10.0)
    return {**found, **changes}


def verdict(one, passes=False, compiles=False, **changes):
    found = {"answer": one["key"], "passes": passes, "compiles": compiles, "reason": "" if passes else "it fails"}
    found.update(errors={}, lines=20, clippy_warnings=None)
    return {**found, **changes}


def known(compiled=57, passed=41):
    """96 answers, of which these compile and pass."""
    answers = [answer(task["name"]) for task in TASKS]
    return answers, [verdict(one, number < passed, number < compiled) for number, one in enumerate(answers)]


def test_known_answers_are_reported_exactly():
    row, *others = rates(*known(), TASKS)
    assert (row["model"], row["kind"], row["n"], row["compiled"], row["passed"]) == ("m", "all", 96, 57, 41)
    assert row["compile_rate"] == pytest.approx([57 / 96, 0.4937, 0.6865], abs=1e-4)
    assert row["pass_rate"] == pytest.approx([41 / 96, 0.3329, 0.5270], abs=1e-4)
    assert (row["tokens_per_answer"], row["seconds_per_solved"]) == (100, pytest.approx(960 / 41))
    assert [one["kind"] for one in others] == list(KINDS) and sum(one["passed"] for one in others) == 41


@pytest.mark.parametrize(("good", "low", "high"), [(0, 0, 0.3244), (8, 0.6756, 1), (4, 0.2152, 0.7848)])
def test_intervals_of_eight_answers(good, low, high):
    assert wilson(good, 8) == pytest.approx([good / 8, low, high], abs=1e-4)


@pytest.mark.parametrize(("good", "n"), [(57, 96), (41, 96), (1, 8), (7, 8), (1, 1000)])
def test_bounds_are_1_96_standard_errors_away(good, n):
    share, *bounds = wilson(good, n)
    away = [abs(share - bound) / (bound * (1 - bound) / n) ** 0.5 for bound in bounds]
    assert away == pytest.approx([1.96, 1.96], abs=1e-3)


def test_answers_in_prose_have_no_compile_rate():
    one = answer("analyze/log")
    (row, _of_kind) = rates([one], [verdict(one, True, None)], [{"name": "analyze/log", "kind": "analyze"}])
    assert (row["compile_rate"], row["compiled"], row["pass_rate"][0]) == (None, 0, 1)


def test_warnings_errors_and_medians():
    answers = [answer("fix/0", tokens_per_second=None), answer("fix/4", tokens_per_second=30.0, first_token_s=1.5)]
    verdicts = [
        verdict(answers[0], errors={"E0382": 2}),
        verdict(answers[1], errors={"E0382": 1, "E0499": 1}, clippy_warnings=3),
    ]
    row = rates(answers, verdicts, TASKS)[0]
    assert row["errors"] == {"E0382": 3, "E0499": 1} and row["clippy_per_1000_lines"] == 150
    assert (row["tokens_per_second"], row["first_token_s"], row["seconds_per_solved"]) == (30, 1, None)


def test_answers_without_a_verdict_are_not_counted():
    answers, verdicts = known()
    assert rates([*answers, answer("fix/0", sample=1), answer("gone/1")], verdicts[:10], TASKS)[0]["n"] == 10


def test_page_has_figures_chart_and_reports():
    answers, verdicts = known()
    text = page(rates(answers, verdicts, TASKS), TASKS, answers, verdicts, ABOUT)
    assert '<td class="number">42.7 % (33.3 to 52.7)</td>' in text and "94.3 %, 70 to 90 %, and 80 to 85 %" in text
    assert text.count("<rect ") == 5 and "rustc 1.63" in text and text.count("<details>") == 55
    prose = page(rates(answers, verdicts, TASKS), TASKS, answers, verdicts, {**ABOUT, "judge": ""})
    assert "judged by" in text and "judged by ," not in prose
    # The page loads nothing.
    assert not re.search(r"<script|src=|href=|url\(", text)


def test_text_of_models_is_escaped_and_cut():
    evil = "</pre><script>alert(1)</script>\x1b[31m" + "x" * 5000
    one = answer("fix/0", "<b>m", content=evil)
    judged = [verdict(one, reason="<i>" + "y" * 1000, errors={"<u>": 1})]
    text = page(rates([one], judged, TASKS), TASKS, [one], judged, ABOUT)
    assert "<script>" not in text and "<b>m" not in text and "<u>" not in text and "<i>" not in text
    assert "\x1b" not in text and "x" * 2001 not in text and "y" * 301 not in text


def test_page_is_bounded():
    answers = [answer("fix/0", sample=number, content="x" * 9000) for number in range(FAILED + 7)]
    verdicts = [verdict(one) for one in answers]
    text = page(rates(answers, verdicts, TASKS), TASKS, answers, verdicts, ABOUT)
    assert text.count("<details>") == FAILED and "7 more are not shown" in text and len(text) < 2_000_000


def test_result_is_kept_for_comparisons():
    found = evaluate_result(TASKS, *known(), ABOUT)
    assert list(found["files"]) == [
        "evaluation.html",
        "evaluations/20261128T090000Z-m.json",
        "evaluations/latest-m.json",
    ]
    texts = {path: text for path, text in found["files"].items() if path.endswith(".json")}
    (kept,) = evaluations(Results(texts), service="chat", quant="Q8_0")
    assert len(kept["answers"]) == 96 and sum(one["passes"] for one in kept["answers"]) == 41
    assert kept["figures"][0]["passed"] == 41 and json.loads(json.dumps(kept)) == kept
    (line,) = [line for line in found["lines"] if line.startswith("m ") and " all " in line]
    assert "59.4 % (49.4 to 68.7)" in line and "42.7 % (33.3 to 52.7)" in line
    assert (found["changed"], found["refused"]) == (False, "")


def test_no_answers_make_no_result():
    found = evaluate_result(TASKS, [], [], ABOUT)
    assert list(found["files"]) == ["evaluation.html"] and len(found["lines"]) == 1


def test_name_of_two_services_is_no_route():
    tasks = TASKS[:8]
    names = ("m of solo", "m of many")
    models = [{**MODELS[0], "name": name} for name in names]
    answers = [answer(task["name"], name) for name in names for task in tasks]
    verdicts = [verdict(one, one["model"] == names[0], True) for one in answers]
    found = evaluate_result([{**task, "kind": "fix"} for task in tasks], answers, verdicts, {**ABOUT, "models": models})
    assert not found["changed"]
    assert [line for line in found["lines"] if line.startswith("fix: not decided, keep no route: m of solo passes")]
