# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model whose answers are known, from its requests to the kept result: asking, store, verdicts and figures are real,
only the sandbox is not."""

import json
import os
from unittest import mock

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.action import evaluation, llama_ask
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._bench import ask, exchange
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress

# As planted: of 96 answers 57 compile, and 41 of these pass.
KINDS, EACH, COMPILE, PASS = 8, 12, 57, 41
ABOUT = {
    **{"name": "coder", "asks": "coder"},
    **{"service": "chat", "model": "a", "quant": "Q4", "build": "b1", "sha256": ["f" * 64]},
    **{"arguments": [], "speed": None, "tokens": None},
}
BLOCK = "Here:\n```rust\npub fn f() {} // %s\n```\n"
ENDS = {
    # The answers of a model to tasks of kind edge, and the reason that its verdict has.
    "bare": ("pub fn f() {} // good", "stop", "no code block"),
    "two": (BLOCK % "wrong" + BLOCK % "good", "stop", ""),
    "crlf": ((BLOCK % "good").replace("\n", "\r\n"), "stop", ""),
    "main": ("```rust\nfn main() {}\n// good\n```", "stop", ""),
    "cut": ("```rust\npub fn f() {} // good", "length", "cut off at max_tokens"),
    "whole": (BLOCK % "good" + "And so on", "length", ""),
}


class Cluster:
    """A server that answers as planted, and a controller that asks and judges."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        self.judged, self.host = [], "localhost"
        self.interrupted_after = None
        self.answers = {}
        names = [f"kind{number % KINDS}/t{number // KINDS:02}" for number in range(KINDS * EACH)]
        for number, name in enumerate(names):
            word = "good" if number < PASS else "wrong" if number < COMPILE else "broken"
            self.answers[name] = (BLOCK % f"{word}, {name}", "stop")
        self.answers.update({f"edge/{name}": (text, finish) for name, (text, finish, _reason) in ENDS.items()})
        for name in self.answers:
            path = folder / "tasks" / name
            path.mkdir(parents=True)
            (path / "task.yml").write_text("summary: x\njudge: rust\n")
            (path / "prompt.md").write_text(name)
            (path / "tests.rs").write_text("#[test]\nfn x() {}\n")
        server.responses["/v1/chat/completions"] = self.answer

    def answer(self):
        """As llama-server streams it."""
        name = self.server.requests[-1][2]["messages"][0]["content"]
        text, finish = self.answers[name]
        events = [
            {"choices": [{"delta": {"content": text}}]},
            {
                "choices": [{"delta": {}, "finish_reason": finish}],
                "timings": {"predicted_n": 50, "predicted_per_second": 20.0},
            },
        ]
        return 200, "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    def plan(self, *kinds):
        store = str(self.folder / "reports/evaluations")
        directories = [str(self.folder / "tasks")]
        return {"directories": directories, "store": store, "tasks": list(kinds), "samples": 1, "models": [ABOUT]}

    def run(self, *kinds, routes=None):
        """Asks and judges -> the result of each."""
        plan = self.plan(*kinds)
        asked = self._action(llama_ask, self._ask, {"plan": plan, "about": ABOUT, "url": self.server.url})
        given = {"plan": plan, "asked": [{**asked, "item": ABOUT}], "routes": routes or {}, "routes_text": ""}
        return asked, self._action(evaluation, self._judge, {**given, "image": "rust"})

    def look(self, *kinds):
        """Looks for a compiler and a sandbox."""
        given = {"plan": self.plan(*kinds), "routes": {}, "image": "rust"}
        return self._action(evaluation, self._judge, given)

    def _action(self, module, execute, arguments):
        task = mock.MagicMock(args=arguments, async_val=0, delegate_to=self.host, check_mode=False)
        action = module.ActionModule(task, mock.MagicMock(), mock.MagicMock(), None, None, None)
        action._execute_module = execute
        return action.run(task_vars={"inventory_hostname": "node1"})

    def _ask(self, module_args, **_options):
        if self.interrupted_after is not None and len(self.kept("answers")) >= self.interrupted_after:
            raise KeyboardInterrupt
        questions = [ask.Question(**one) for one in module_args["questions"][:7]]
        return {"answers": ask.ask(exchange.target(module_args["url"]), None, questions, 30, 30)}

    def _judge(self, module_args, **_options):
        """The sandbox: what it is to find stands in the program."""
        found = []
        for one in module_args["answers"]:
            if self.interrupted_after is not None and len(self.kept("verdicts")) >= self.interrupted_after:
                raise KeyboardInterrupt
            self.judged.append(one["task"])
            compiles, passes = "broken" not in one["source"], "good" in one["source"]
            errors = {} if compiles else {"E0382": 2}
            verdict = {"answer": one["answer"], "passes": passes, "compiles": compiles, "errors": errors, "lines": 2}
            found.append({**verdict, "reason": "" if passes else "no", "clippy_warnings": 0})
        return {"verdicts": found, "rustc": "rustc 1.63.0", "clippy": None, "way": "systemd"}

    def kept(self, part):
        folder = self.folder / "reports/evaluations" / part
        return sorted(os.listdir(folder)) if folder.exists() else []

    def result(self):
        return json.loads((self.folder / "reports/evaluations/latest-coder.json").read_text())

    def figures(self):
        """Rows without what a clock measures."""
        timed = ("first_token_s", "seconds_per_solved")
        return [{key: one for key, one in row.items() if key not in timed} for row in self.result()["figures"]]


@pytest.fixture(name="cluster")
def fixture_cluster(server, tmp_path, monkeypatch):
    monkeypatch.setattr(_progress.display, "display", lambda *_arguments, **_options: None)
    return Cluster(server, tmp_path)


KNOWN = [f"kind{number}" for number in range(KINDS)]


def test_known_answers_are_reported_exactly(cluster):
    asked, judged = cluster.run(*KNOWN)
    assert (asked["asked"], asked["missing"], judged["changed"], judged["refused"]) == (96, 0, True, [])
    assert "asked 96, judged 96" in judged["lines"]
    row = cluster.figures()[0]
    assert [row[key] for key in ("model", "kind", "n", "compiled", "passed")] == ["coder", "all", 96, COMPILE, PASS]
    # Wilson's intervals of 57 and 41 of 96.
    assert row["compile_rate"] == pytest.approx([0.59375, 0.4937388489, 0.6865469783], abs=1e-9)
    assert row["pass_rate"] == pytest.approx([0.4270833333, 0.3328208311, 0.5269568588], abs=1e-9)
    assert (row["tokens_per_second"], row["tokens_per_answer"], row["errors"]) == (20.0, 50, {"E0382": 78})
    by_kind = {one["kind"]: (one["compiled"], one["passed"], one["n"]) for one in cluster.figures()[1:]}
    assert by_kind == {
        f"kind{kind}": (sum(range_ < COMPILE for range_ in own), sum(range_ < PASS for range_ in own), EACH)
        for kind in range(KINDS)
        for own in [range(kind, KINDS * EACH, KINDS)]
    }


def test_odd_answers_are_judged_as_documented(cluster):
    cluster.run("edge")
    by_task = {one["task"]: (one["passes"], one["compiles"]) for one in cluster.result()["answers"]}
    assert by_task == {f"edge/{name}": (not reason, not reason) for name, (_text, _end, reason) in ENDS.items()}
    page = (cluster.folder / "reports/evaluation.html").read_text()
    assert [reason for _text, _end, reason in ENDS.values() if reason and reason not in page] == []
    # An answer without a program gets to no sandbox.
    assert sorted(cluster.judged) == ["edge/crlf", "edge/main", "edge/two", "edge/whole"]


def test_second_run_asks_and_judges_nothing(cluster):
    cluster.run(*KNOWN)
    before, requests = cluster.figures(), len(cluster.server.requests)
    asked, judged = cluster.run(*KNOWN)
    assert (asked["changed"], judged["changed"]) == (False, False)
    assert "asked 0, judged 0" in judged["lines"]
    assert (cluster.figures(), len(cluster.server.requests)) == (before, requests)


@pytest.mark.parametrize("after", [1, 48])
def test_interrupted_run_ends_with_the_same_figures(cluster, after):
    cluster.interrupted_after = after
    with pytest.raises(KeyboardInterrupt):
        cluster.run(*KNOWN)
    assert after <= len(cluster.kept("answers")) < after + 7
    # Once more, while answers are judged.
    cluster.interrupted_after = 97
    cluster._action(llama_ask, cluster._ask, {"plan": cluster.plan(*KNOWN), "about": ABOUT, "url": cluster.server.url})
    cluster.interrupted_after = 24
    with pytest.raises(KeyboardInterrupt):
        cluster.run(*KNOWN)
    cluster.interrupted_after = None
    cluster.run(*KNOWN)
    rows = cluster.figures()
    assert (rows[0]["n"], rows[0]["compiled"], rows[0]["passed"]) == (96, COMPILE, PASS)
    assert len(cluster.server.requests) == 96
    # A batch that was broken off is judged again, and no other.
    assert 96 <= len(cluster.judged) <= 96 + 8


def test_changed_tests_are_judged_again(cluster):
    cluster.run("kind0")
    (cluster.folder / "tasks/kind0/t00/tests.rs").write_text("#[test]\nfn other() {}\n")
    cluster.judged.clear()
    asked, _judged = cluster.run("kind0")
    assert (asked["asked"], cluster.judged) == (0, ["kind0/t00"])


def test_no_answer_at_all_is_refused(cluster):
    cluster.server.responses["/v1/chat/completions"] = (503, {"error": {"message": "Loading model"}})
    asked, judged = cluster.run("kind0")
    assert asked["asked"] == 0 and judged["refused"][0].startswith("evaluate: no answer seen")
    assert judged["lines"][0] == "coder: 12 of 12 questions not answered: it answers 503 (Loading model)"


def test_sandbox_that_is_missing_ends_the_run(cluster):
    cluster._judge = lambda **_options: {"failed": True, "msg": "llama_judge: judging: neither systemd nor an engine"}
    _asked, judged = cluster.run("kind0")
    assert judged["failed"] and judged["msg"] == "llama_judge: judging: neither systemd nor an engine"
    # The answers are kept nevertheless.
    assert len(cluster.kept("answers")) == EACH


def test_sandbox_is_looked_for_before_any_question(cluster):
    assert "failed" not in cluster.look(*KNOWN)
    cluster._judge = lambda **_options: {"failed": True, "msg": "llama_judge: judging: neither systemd nor an engine"}
    assert cluster.look(*KNOWN)["msg"] == "llama_judge: judging: neither systemd nor an engine"
    for path in (cluster.folder / "tasks").glob("*/*"):
        checklist = "checklist: [{fact: x, any: [x]}]\n"
        (path / "task.yml").write_text("summary: x\njudge: checklist\n" + checklist)
    # The controller judges prose by itself.
    assert "failed" not in cluster.look(*KNOWN)


def test_commands_need_the_controller(cluster):
    """Their directory is there."""
    for path in (cluster.folder / "tasks/kind0").iterdir():
        (path / "task.yml").write_text("summary: x\njudge: [./judge.sh]\n")
        (path / "judge.sh").touch(0o755)
    cluster.host = "judge"
    judged = cluster.look("kind0")
    assert judged["msg"].startswith("acceptance_judge_host: judge seen, localhost is needed for tasks that a command")
    cluster.host = "localhost"
    assert "asked 12, judged 12" in cluster.run("kind0")[1]["lines"]


def test_model_texts_never_leave_the_store(cluster):
    cluster.answers["kind0/t00"] = ("{{ lookup('pipe', 'id') }} <script> no code", "stop")
    asked, judged = cluster.run("kind0")
    assert "lookup" not in json.dumps([asked, judged])
    assert "<script>" not in (cluster.folder / "reports/evaluation.html").read_text()
