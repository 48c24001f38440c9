# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slices of questions that the store has no answer to; each answer is kept at once."""

import json
import os
from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.thefermisea.llama_cluster.plugins.action import llama_ask
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress

ABOUT = {"name": "coder", "sha256": ["a"], "build": "b1", "arguments": [], "speed": None, "tokens": None}


@pytest.fixture(name="ask")
def fixture_ask(monkeypatch, tmp_path):
    """ask(answer, samples, **changes of the model) -> (result, lines, [keys of each call])"""
    for number in range(6):
        folder = tmp_path / f"tasks/fix/t{number}"
        folder.mkdir(parents=True)
        (folder / "task.yml").write_text("summary: x\njudge: rust\n")
        (folder / "prompt.md").write_text(f"Task {number}.")
        (folder / "tests.rs").write_text("#[test]\nfn x() {}\n")
    plan = {
        "directories": [str(tmp_path / "tasks")],
        "store": str(tmp_path / "evaluations"),
        "tasks": ["fix"],
        "samples": "1",
    }
    lines, calls = [], []
    monkeypatch.setattr(_progress.display, "display", lambda line, **_options: lines.append(line))

    def run(answer, check=False, **changes):
        lines.clear()
        calls.clear()
        arguments = {"plan": plan, "about": {**ABOUT, **changes}, "url": "http://h:1", "model": "coder"}
        task = mock.MagicMock(args=arguments, async_val=0, delegate_to="node1", check_mode=check)
        action = llama_ask.ActionModule(task, mock.MagicMock(), mock.MagicMock(), None, None, None)

        def module(module_args, **_options):
            assert "plan" not in module_args and "about" not in module_args
            calls.append([one["key"] for one in module_args["questions"]])
            return answer(module_args["questions"])

        monkeypatch.setattr(action, "_execute_module", module)
        return action.run(task_vars={"inventory_hostname": "node0"}), lines, calls

    return run


def answered(question, **changes):
    return {
        **{"key": question["key"], "content": question["prompt"], "finish_reason": "stop"},
        **{"completion_tokens": 100, "first_token_s": 0.5, "seconds": 10.0, "tokens_per_second": 11.0, "error": None},
        **changes,
    }


def all_of(questions):
    return {"answers": [answered(one) for one in questions]}


def kept(tmp_path):
    return [json.loads(path.read_text()) for path in (tmp_path / "evaluations/answers").glob("*.json")]


def test_first_answer_tells_the_speed(ask, tmp_path):
    result, lines, calls = ask(all_of)
    assert (result["asked"], result["missing"], result["reason"], result["changed"]) == (6, 0, "", True)
    assert [len(call) for call in calls] == [1, 5]
    assert lines[0] == "node1: asking coder 5 answers of about 100 tokens at 10.0 tokens/s: 50 s"
    assert lines[1:] == [
        "node1: asking coder 1 of 6, 10.0 tokens/s, 50 s left",
        "node1: asking coder 6 of 6, 10.0 tokens/s",
    ]
    assert {(one["model"], one["task"], one["sample"]) for one in kept(tmp_path)} == {
        ("coder", f"fix/t{number}", 0) for number in range(6)
    }


def test_kept_answers_are_not_asked_again(ask):
    ask(all_of)
    result, lines, calls = ask(all_of)
    assert (result["asked"], result["missing"], result["changed"], calls, lines) == (0, 0, False, [], [])
    # The settings of the model have changed.
    assert ask(all_of, arguments=["--temp", "0.3"])[0]["asked"] == 6


def test_answers_to_other_questions_are_left_out(ask, tmp_path):
    def more(questions):
        own = [answered(one) for one in questions]
        return {"answers": [*own, *own, answered(questions[0], key="0" * 64)]}

    assert ask(more)[0]["asked"] == 6 and len(kept(tmp_path)) == 6


def test_killed_run_goes_on_where_it_was(ask, tmp_path):
    def dies(questions):
        if len(kept(tmp_path)) >= 3:
            raise KeyboardInterrupt
        return {"answers": [answered(one) for one in questions[:2]]}

    with pytest.raises(KeyboardInterrupt):
        ask(dies)
    assert len(kept(tmp_path)) == 3
    result, _lines, calls = ask(all_of)
    assert result["asked"] == 3 and sum(map(len, calls)) == 3


def test_failed_question_is_not_kept(ask, tmp_path):
    def fails(questions):
        return {
            "answers": [
                answered(one, **({"content": "", "error": "no whole answer"} if "3" in one["prompt"] else {}))
                for one in questions
            ]
        }

    result, _lines, _calls = ask(fails)
    assert (result["asked"], result["missing"], result["reason"]) == (5, 1, "")
    assert len(kept(tmp_path)) == 5
    assert ask(all_of)[0]["asked"] == 1


def test_silent_server_is_asked_three_times(ask, tmp_path):
    result, _lines, calls = ask(lambda questions: {"answers": [answered(questions[0], error="it answers 503")]})
    assert (result["asked"], result["missing"], result["reason"], len(calls)) == (0, 6, "it answers 503", 3)
    assert not result.get("failed") and not os.path.exists(tmp_path / "evaluations")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (mock.Mock(side_effect=AnsibleConnectionFailure("no route")), "its host is not reached (no route)"),
        (lambda questions: {"failed": True, "msg": "llama_ask: http://h:1: no key"}, "http://h:1: no key"),
        (lambda questions: {}, "the module did not answer"),
    ],
)
def test_unreached_host_fails_no_run(ask, answer, said):
    result, _lines, calls = ask(answer)
    assert (result["asked"], result["missing"], result["reason"], len(calls)) == (0, 6, said, 1)


def test_dry_run_asks_nothing(ask):
    result, _lines, calls = ask(all_of, check=True)
    assert (result["asked"], result["changed"], calls) == (0, False, [])
