# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers and verdicts, kept on the controller."""

import json
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._judge.judge import Verdict
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate import store as stored

KEY = "a" * 64
ANSWER = {
    **{"key": KEY, "content": "```rust\nfn x() {}\n```", "finish_reason": "stop"},
    **{"completion_tokens": 9, "first_token_s": 0.1, "seconds": 1.0, "tokens_per_second": 9.0},
}
VERDICT = {
    **{"answer": KEY, "passes": True, "compiles": True, "reason": "", "errors": {}},
    **{"lines": 1, "clippy_warnings": None},
}


@pytest.fixture(name="store")
def fixture_store(tmp_path):
    return stored.Store(str(tmp_path / "evaluation"))


def test_answers_and_verdicts_are_found_again(store):
    assert store.answer(KEY) is None and store.verdict(ANSWER, "d", "rustc 1.63") is None
    store.keep_answer(ANSWER)
    store.keep_verdict(ANSWER, "d", "rustc 1.63", VERDICT)
    assert store.answer(KEY) == ANSWER
    assert store.verdict(ANSWER, "d", "rustc 1.63") == VERDICT


def test_verdicts_belong_to_what_judged(store):
    store.keep_verdict(ANSWER, "d", "rustc 1.63", VERDICT)
    assert store.verdict(ANSWER, "other tests", "rustc 1.63") is None
    assert store.verdict(ANSWER, "d", "rustc 1.80") is None
    assert store.verdict({**ANSWER, "content": "other"}, "d", "rustc 1.63") is None
    # The same text of another model is not judged again.
    assert store.verdict({**ANSWER, "key": "b" * 64}, "d", "rustc 1.63") == {**VERDICT, "answer": "b" * 64}


def test_only_the_owner_reads_the_store(store, tmp_path):
    store.keep_answer(ANSWER)
    paths = [tmp_path / "evaluation", tmp_path / "evaluation/answers", tmp_path / f"evaluation/answers/{KEY}.json"]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o700, 0o700, 0o600]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"key": "b"}', '{"content": 3}', "[" * 100000, json.dumps({"key": KEY, "content": "x"})]
)
def test_damaged_answers_count_as_missing(store, tmp_path, text):
    store.keep_answer(ANSWER)
    (tmp_path / f"evaluation/answers/{KEY}.json").write_text(text)
    assert store.answer(KEY) is None


@pytest.mark.parametrize("value", ["9", None, [9]])
def test_answers_without_numbers_count_as_missing(store, value):
    store.keep_answer({**ANSWER, "completion_tokens": value})
    assert store.answer(KEY) is None


@pytest.mark.parametrize("key", stored.JUDGED)
def test_verdicts_of_another_form_are_judged_again(store, key):
    for value in (3.5, [9]):
        store.keep_verdict(ANSWER, "d", "rustc 1.63", {**VERDICT, key: value})
        assert store.verdict(ANSWER, "d", "rustc 1.63") is None
    store.keep_verdict(ANSWER, "d", "rustc 1.63", {name: one for name, one in VERDICT.items() if name != key})
    assert store.verdict(ANSWER, "d", "rustc 1.63") is None


def test_verdicts_of_an_earlier_judge_are_left(store, monkeypatch):
    store.keep_verdict(ANSWER, "d", "rustc 1.63", VERDICT)
    monkeypatch.setattr(stored, "JUDGES", stored.JUDGES + 1)
    assert store.verdict(ANSWER, "d", "rustc 1.63") is None


def test_fields_of_a_verdict_are_checked():
    assert {*stored.JUDGED} == {*Verdict._fields} - {"answer"}


def test_links_count_as_missing(store, tmp_path):
    store.keep_answer(ANSWER)
    path = tmp_path / f"evaluation/answers/{KEY}.json"
    os.rename(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert store.answer(KEY) is None


def test_other_names_never_become_paths(store):
    with pytest.raises(ValueError, match="sha256"):
        store.answer("../../etc/passwd")


def test_interrupted_writing_leaves_no_file(store, tmp_path, monkeypatch):
    def dies(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stored.os, "rename", dies)
    with pytest.raises(Refusal, match="No space left on device seen.*run again"):
        store.keep_answer(ANSWER)
    assert os.listdir(tmp_path / "evaluation/answers") == []
