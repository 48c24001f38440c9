# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of an answer that is judged."""

import io
import json
import os
import resource
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate import checklist
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate import extract as extracting
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate.checklist import judge
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate.extract import MOST, extract, prepared

RUST = {"name": "fix/a", "judge": "rust", "tests": "tests", "refused": None, "checklist": None, "dir": None}
PROSE = {"name": "analyze/b", "judge": "checklist", "checklist": [{"fact": "says why", "any": ["because"]}]}
COMMAND = {**RUST, "name": "own/c", "judge": ["./judge.sh"], "tests": None, "dir": "/tasks/own/c"}
ANSWER = {"key": "k", "task": "fix/a", "content": "```rust\nfn a() {}\n```\n", "finish_reason": "stop"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Here:\n```rust\nfn a() {}\n```\nDone.", "fn a() {}\n"),
        ("```\nfn a() {}\n```", "fn a() {}\n"),
        ("```rs\r\nfn a() {}\r\n```\r\n", "fn a() {}\n"),
        ("```Rust,no_run\nfn a() {}\n```", "fn a() {}\n"),
        ("~~~ rust\nfn a() {}\n~~~", "fn a() {}\n"),
        ("```rust\nfn a() {}\n```\nBetter:\n```rust\nfn b() {}\n```", "fn b() {}\n"),
        ("```rust\nfn a() {}\n```\nRun it:\n```sh\ncargo test\n```", "fn a() {}\n"),
        ("  ```rust\nfn a() {}\n  ```", "fn a() {}\n"),
        ("````rust\n/// ```\nfn a() {}\n```\n````", "/// ```\nfn a() {}\n```\n"),
        ("```rust\n/// ```\nfn a() {}\n```", "/// ```\nfn a() {}\n"),
        ("```rust\nfn a() {}\nfn main() {}\n```", "fn a() {}\nfn main() {}\n"),
        ("```rust\nfn a() {}", "fn a() {}\n"),
        ("```rust\n```", ""),
        ("Say ```fn``` to declare a function.", None),
        ("fn a() {}", None),
        ("```toml\n[package]\n```", None),
        ("", None),
    ],
)
def test_last_rust_block_is_the_program(content, text):
    assert extract(content) == (text, "no code block" if text is None else "")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("```rust\nfn a() {}\n```\nIt wor", "fn a() {}\n"),
        ("```rust\nfn a() {}\n```\n```rust\nfn b() {", None),
        ("```rust\nfn a() {", None),
        ("First, ", None),
    ],
)
def test_open_block_at_max_tokens_is_cut_off(content, text):
    assert extract(content, "length") == (text, "cut off at max_tokens" if text is None else "")


def test_many_backticks_take_linear_time():
    assert extract("```\n" * 60_000).text == ""
    assert extract("`" * MOST + "a`").text is None


def test_only_programs_need_a_sandbox():
    answers = [
        ANSWER,
        {**ANSWER, "key": "none", "content": "I cannot.\n\nSorry."},
        {**ANSWER, "key": "long", "content": "x" * (MOST + 1)},
        {**ANSWER, "key": "right", "task": "analyze/b", "content": "Because it is."},
        {**ANSWER, "key": "wrong", "task": "analyze/b", "content": "It is."},
        {**ANSWER, "key": "own", "task": "own/c", "content": "anything"},
    ]
    found = prepared([RUST, PROSE, COMMAND], answers)
    assert [(one["answer"], one["task"], one["source"]) for one in found["answers"]] == [
        ("k", "fix/a", "fn a() {}\n"),
        ("own", "own/c", "anything"),
    ]
    assert [task["name"] for task in found["tasks"]] == ["fix/a", "own/c"]
    assert {one["answer"]: (one["passes"], one["compiles"], one["reason"]) for one in found["verdicts"]} == {
        "none": (False, False, "no code block"),
        "long": (False, False, "more than 256 KiB"),
        "right": (True, None, ""),
        "wrong": (False, None, "does not name: says why"),
    }
    assert [one["lines"] for one in found["verdicts"]] == [2, 1, 1, 1]


CHECKLIST = [
    {"fact": "an empty slice panics", "any": [r"panics? (if|when)\b.{0,40}\bempty", r"must not be empty"]},
    {"fact": "milliseconds", "any": [r"\bms\b", r"millisecond"]},
]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("It panics if `values` is empty. The result is in ms.", []),
        ("The slice must not be EMPTY; Milliseconds are returned.", []),
        ("Returns milliseconds.", ["an empty slice panics"]),
        ("It **panics** when the\n\n    slice is empty.", ["milliseconds"]),
        ("/// # Panics\n///\n/// Panics when the slice\n/// is empty.\n/// Times are in\r\n/// ms.", []),
        ("//! panics if it\n//! is empty\n> in\n> ms", []),
        ("a / b // c", ["an empty slice panics", "milliseconds"]),
        ("", ["an empty slice panics", "milliseconds"]),
    ],
)
def test_missing_facts_are_named(text, missing):
    assert judge(CHECKLIST, text) == missing


def test_empty_checklist_passes():
    assert judge([], "anything") == []


ENDLESS = [{"fact": "no b", "any": ["(a+)+$"]}]


def prose(monkeypatch, seconds, *given):
    """-> the reasons of answers by checklists"""
    monkeypatch.setattr(extracting, "SECONDS", seconds)
    tasks = [{**PROSE, "name": f"analyze/{number}", "checklist": facts} for number, (facts, _text) in enumerate(given)]
    answers = [
        {**ANSWER, "key": number, "task": f"analyze/{number}", "content": text}
        for number, (_facts, text) in enumerate(given)
    ]
    return [one["reason"] for one in prepared(tasks, answers)["verdicts"]]


def test_expression_that_needs_hours_ends(monkeypatch):
    assert prose(monkeypatch, 0, (CHECKLIST, "in ms"), (ENDLESS, "a" * 99 + "b"), (ENDLESS, "aaa")) == [
        "does not name: an empty slice panics",
        "its checklist takes more than 0 s",
        "",
    ]


def test_slow_answers_do_not_fail_the_next(monkeypatch, tmp_path):
    """Three of them take a second of CPU together, as a user who may not raise a hard limit."""
    unprivileged = tmp_path / "python"
    unprivileged.write_text(
        f'#!/bin/sh\nexec setpriv --bounding-set=-all --inh-caps=-all {sys.executable} "$@"\n'
        if os.geteuid() == 0
        else f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    )
    unprivileged.chmod(0o755)
    monkeypatch.setattr(extracting.sys, "executable", str(unprivileged))
    slow = (ENDLESS, "a" * 23 + "b")
    assert prose(monkeypatch, 4, slow, slow, slow, slow, (CHECKLIST, "Panics when it is empty, in ms.")) == [
        *["does not name: no b"] * 4,
        "",
    ]


def test_process_that_fails_is_no_verdict(monkeypatch):
    monkeypatch.setattr(checklist, "__file__", "/nowhere/checklist.py")
    with pytest.raises(Refusal, match="checklists: status 2 of the process that matches them seen, 0 is needed"):
        prose(monkeypatch, 4, (CHECKLIST, "in ms"))


def test_expression_without_room_does_not_pass(monkeypatch, capsys):
    def judge(*_given):
        raise MemoryError

    limits = []
    monkeypatch.setattr(checklist.resource, "setrlimit", lambda *words: limits.append(words))
    monkeypatch.setattr(checklist, "judge", judge)
    monkeypatch.setattr(checklist.sys, "argv", ["", "4"])
    monkeypatch.setattr(checklist.sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps([[CHECKLIST, "a"]]).encode())))
    checklist.main()
    assert (resource.RLIMIT_AS, (1 << 30, 1 << 30)) in limits
    assert extracting._reason(json.loads(capsys.readouterr().out)) == "its checklist takes more than 1024 MiB"
