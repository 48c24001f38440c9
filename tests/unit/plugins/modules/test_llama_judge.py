# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module llama_judge, with a sandbox that is not started."""

import contextlib
import functools

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._judge.exchange import Outcome
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._judge.sandbox import Way
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.modules import llama_judge

TASK = {"name": "own/a", "judge": ["./judge.sh"], "dir": "/tasks/own/a"}
ANSWER = {"answer": "1", "task": "own/a", "source": "text"}


@pytest.fixture(name="run")
def fixture_run(monkeypatch, run):
    @contextlib.contextmanager
    def found_way(image):
        if image == "none":
            raise Refusal("judging: nothing seen")
        yield Way("podman", image=image)

    def start(_user, script, *_rest):
        said = b"rustc 1.63.0\nclippy 0.1.63\n" if "rustc --version" in script[0] else b""
        return Outcome(0, said, False, False, "")

    monkeypatch.setattr(llama_judge, "found_way", found_way)
    monkeypatch.setattr(llama_judge, "runner", lambda way: start)

    return functools.partial(run, tasks=[TASK])


def test_verdicts_come_with_what_they_depend_on(run):
    code, result = run(answers=[ANSWER])
    assert (code, result["changed"], result["verdicts"][0]["passes"]) == (0, False, True)
    assert (result["rustc"], result["clippy"], result["way"]) == ("rustc 1.63.0", "clippy 0.1.63", "podman")


def test_without_answers_it_tells_how_it_would_judge(run):
    code, result = run()
    assert (code, result["verdicts"], result["way"]) == (0, [], "podman")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"image": "none"}, "llama_judge: judging: nothing seen"),
        ({"answers": [{**ANSWER, "task": "own/b"}]}, "llama_judge: judging: task own/b is of an answer"),
    ],
)
def test_refusals_are_one_sentence(run, arguments, sentence):
    code, result = run(**arguments)
    assert code == 1 and result["msg"].startswith(sentence)
