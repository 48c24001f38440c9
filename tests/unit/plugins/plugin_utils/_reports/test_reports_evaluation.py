# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kept evaluations: two quants by the same answers, a trial's judge, and claims of decisions."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.decisions import decisions_page
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.evaluation import (
    CONFIRMED,
    CONTRADICTED,
    UNDECIDED,
    UNKNOWN,
    claimed,
    evaluation_judged,
    paired,
)
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._reports.results import Results

EARLIER, LATER = "2026-11-27T09:00:00Z", "2026-11-28T09:00:00Z"
SERVICE = {"model": "m", "quant": "F16", "head": "node1"}
RATE = {"says": "it is as good", "figure": "pass_rate", "of": {"quant": "Q8_0"}, "at_least": 0}
BOTH = {**RATE, "against": {"quant": "F16"}}


def evaluation(quant, passed, n=96, at=EARLIER, kind="fix", **changes):
    """A kept result, of which the first answers pass and all compile."""
    found = {"format": 1, "kind": "evaluation", "measured_at": at, "label": "m", "service": "chat", "model": "m"}
    found.update(quant=quant, build="b1", sha256=[quant], temperature=0.0)
    found["answers"] = [
        {"task": f"{kind}/{number}", "kind": kind, "sample": 0, "digest": "d", "passes": number < passed}
        for number in range(n)
    ]
    for one in found["answers"]:
        one["compiles"] = True
    return {**found, **changes}


def texts(*results):
    return {f"{number}.json": json.dumps(one) for number, one in enumerate(results)}


def judged(*results, new="Q8_0"):
    return evaluation_judged(texts(*results), SERVICE, "chat", "F16", new)


def shares(*passes):
    return {number: bool(one) for number, one in enumerate(passes)}


def test_difference_of_pairs_has_its_interval():
    # 30 alike that pass, 10 alike that fail, 5 that only the new one passes, 15 that only the old one passes.
    old = shares(*[1] * 30, *[0] * 10, *[0] * 5, *[1] * 15)
    new = shares(*[1] * 30, *[0] * 10, *[1] * 5, *[0] * 15)
    found = paired(old, {**new, "other": True})
    assert (found.n, found.old, found.new) == (60, 45, 35)
    # -10/62 less and more 1.96 times the square root of 21 less 100/62, by 62.
    assert (found.low, found.high) == pytest.approx((-0.300499, -0.022081), abs=1e-4)
    assert found.words().startswith("-16.7 points, -30.0 to -2.2")


def test_same_answers_leave_room_for_both_sides():
    found = paired(shares(1, 1, 0), shares(1, 1, 0))
    assert found.low == -found.high and found.high > 0.3 and paired({1: True}, {2: True}) is None


@pytest.mark.parametrize("passed", [41, 42, 96])
def test_trial_that_is_not_worse_is_kept(passed):
    found = judged(evaluation("F16", 41), evaluation("Q8_0", passed, at=LATER))
    assert found["refused"] == []
    assert found["lines"][0].startswith(f"chat: {passed} of 96 answers pass with Q8_0, 41 with F16 (")


def test_lower_pass_rate_is_refused_with_its_interval():
    (sentence,) = judged(evaluation("F16", 41), evaluation("Q8_0", 40, at=LATER))["refused"]
    assert sentence.startswith(
        "llama_services.chat: 40 of 96 answers that pass with Q8_0 seen, the 41 of F16 to the same tasks are needed to "
        "keep it (-1.0 points, "
    )
    assert "-e quant=F16, or keep it without -e evaluation=true" in sentence


def test_only_the_same_tasks_count():
    few = evaluation("F16", 8, n=8, at="2026-11-27T10:00:00Z")
    lines = judged(evaluation("F16", 41), few, evaluation("Q8_0", 8, n=8, at=LATER))["lines"]
    assert lines[0].startswith("chat: 8 of 8 answers pass with Q8_0, 8 with F16")
    # A later run of other tasks adds to the earlier one.
    more = evaluation("Q8_0", 9, n=10, kind="complete", at=LATER)
    both = evaluation("F16", 41), evaluation("Q8_0", 41, at="2026-11-27T10:00:00Z")
    assert judged(*both, more)["refused"] == []


def test_missing_answers_keep_no_trial():
    (sentence,) = judged(evaluation("F16", 41), evaluation("Q8_0", 8, n=8, at=LATER))["refused"]
    assert sentence.startswith(
        "llama_services.chat: 88 answers fewer with Q8_0 than in the last evaluation of F16 seen, all of them "
    )
    assert "run evaluate.yml -e models=chat with the same task_dir, tasks, limit and samples" in sentence


@pytest.mark.parametrize(
    "changes",
    [
        {"build": "b2"},
        {"temperature": 0.7},
        {"model": "other"},
        {"service": "other"},
        {"answers": [{"task": "fix/0", "kind": "fix", "sample": 0, "digest": "e", "passes": True, "compiles": True}]},
    ],
)
def test_other_conditions_are_no_comparison(changes):
    (sentence,) = judged(evaluation("F16", 41), evaluation("Q8_0", 96, at=LATER, **changes))["refused"]
    assert "one is needed to judge the trial: run evaluate.yml -e models=chat" in sentence


def by(compiler, way="systemd"):
    return {"judge": f"{compiler}, clippy 0.1.63, {way}"}


def test_trial_needs_the_same_compiler():
    old, new = evaluation("F16", 41, **by("rustc 1.63.0")), evaluation("Q8_0", 96, at=LATER, **by("rustc 1.70.0"))
    (sentence,) = judged(old, new)["refused"]
    assert sentence.startswith(
        "llama_services.chat: answers with Q8_0 judged by rustc 1.70.0 seen, rustc 1.63.0, which judged those with "
        "F16, is needed: set acceptance_judge_host"
    )
    # Without a program none was judged, and clippy decides nothing.
    assert judged(evaluation("F16", 41), new)["refused"] == []
    assert judged(evaluation("F16", 41, judge="rustc 1.70.0, systemd"), new)["refused"] == []
    assert claimed(BOTH, Results(texts(old, new)))[0] == UNKNOWN
    # Judged again, and in another sandbox.
    again = evaluation("Q8_0", 96, at="2026-11-29T09:00:00Z", **by("rustc 1.63.0", "docker"))
    assert judged(old, new, again)["refused"] == []
    assert claimed(BOTH, Results(texts(old, new, again)))[0] == CONFIRMED


def test_prose_needs_no_compiler():
    found = [evaluation("F16", 41, **by("rustc 1.63.0")), evaluation("Q8_0", 41, at=LATER, **by("rustc 1.70.0"))]
    for answer in [one for result in found for one in result["answers"]]:
        answer["compiles"] = None
    assert judged(*found)["refused"] == []
    found[0]["answers"] += evaluation("F16", 9, n=9, kind="complete")["answers"]
    found[1]["answers"] += evaluation("Q8_0", 9, n=9, kind="complete")["answers"]
    assert claimed({**BOTH, "tasks": ["fix"], "at_least": -50}, Results(texts(*found)))[0] == CONFIRMED
    assert claimed({**BOTH, "at_least": -50}, Results(texts(*found)))[0] == UNKNOWN


def test_other_models_are_no_comparison():
    kept = Results(texts(evaluation("F16", 96), evaluation("Q8_0", 1, at=LATER, model="small", label="small")))
    assert claimed(BOTH, kept)[0] == UNKNOWN


def test_files_that_were_exchanged_do_not_count():
    old = evaluation("F16", 96, sha256=["another file"])
    (sentence,) = judged(old, evaluation("F16", 0, n=0, at=LATER), evaluation("Q8_0", 1))["refused"]
    assert "no evaluation of F16 seen" in sentence


@pytest.mark.parametrize(
    ("new", "step"), [("", "run evaluate.yml -e models=chat while it serves"), ("Q8_0", "go back")]
)
def test_trial_needs_an_evaluation_of_the_old_quant(new, step):
    (sentence,) = judged(evaluation("Q8_0", 41), new=new)["refused"]
    assert sentence.startswith("llama_services.chat: no evaluation of F16 seen") and step in sentence


def test_start_of_a_trial_shows_the_rate():
    assert judged(evaluation("F16", 41), new="")["lines"] == [
        "chat: 41 of 96 answers pass with F16: run evaluate.yml -e models=chat during the trial of the new one, before "
        "it is kept, with the same task_dir, tasks, limit and samples"
    ]


@pytest.mark.parametrize(
    ("claim", "passed", "verdict"),
    [
        (BOTH, 96, CONFIRMED),
        (BOTH, 42, UNDECIDED),
        (BOTH, 20, CONTRADICTED),
        ({**BOTH, "tasks": ["complete"]}, 96, UNKNOWN),
        ({**RATE, "at_least": 80}, 96, CONFIRMED),
        ({**RATE, "at_least": 80}, 77, UNDECIDED),
        ({**RATE, "at_least": 80}, 41, CONTRADICTED),
        ({**RATE, "figure": "compile_rate", "at_least": 94.3}, 0, CONFIRMED),
        ({"figure": "pass_rate", "of": {"quant": "Q8_0"}, "at_most": 50}, 41, UNDECIDED),
        ({**RATE, "of": {"quant": "Q4_0"}}, 41, UNKNOWN),
    ],
)
def test_claim_needs_its_whole_interval(claim, passed, verdict):
    kept = Results(texts(evaluation("F16", 41), evaluation("Q8_0", passed, at=LATER)))
    assert claimed(claim, kept)[0] == verdict


def test_page_of_decisions_shows_the_comparison():
    decision = {"title": "Q8_0", "date": "2026-01", "status": "in force", "decision": "x", "alternatives": []}
    decision["claims"] = [BOTH]
    kept = texts(evaluation("F16", 90), evaluation("Q8_0", 20, at=LATER))
    page = decisions_page([decision], kept)
    assert "**CONTRADICTED**: 20 of 96 answers against 90 to the same tasks, -72.9 points, " in page["text"]
    assert page["lines"][1:] == ["contradicted by measurement: Q8_0: it is as good"]
