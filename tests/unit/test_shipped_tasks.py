# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shipped tasks of evaluate.yml: their files, sizes and checklists. Gate `tasks` compiles and runs those in Rust."""

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._judge.harness import cases_of
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate.checklist import judge
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate.tasks import load

ROOT = Path(__file__).resolve().parents[2] / "roles/acceptance/files/tasks"
TASKS = sorted(path.parent for path in ROOT.glob("*/*/task.yml"))
# Lines that an answer may have, by kind.
LINES = {"fix": 80, "complete": 80, "refactor": 80, "idiomatic": 80}
LINES |= {"borrowing": 100, "ownership": 100, "typestate": 100, "complex": 150, "analyze": 100, "documentation": 100}
PROSE = ("analyze", "documentation")
FILES = {
    "rust": {"task.yml", "prompt.md", "tests.rs", "reference.rs", "mutant.rs"},
    "checklist": {"task.yml", "prompt.md", "reference.md", "mutant.md"},
}
ITEM = re.compile(r"^\s*pub (?:const )?(?:fn|struct|enum|trait|type|const) (\w+)", re.MULTILINE)
FILE_BYTES = 8192


def name(task):
    return "/".join(task.relative_to(ROOT).parts)


def of_judge(wanted):
    return [task for task in TASKS if (task.parent.name in PROSE) == (wanted == "checklist")]


def described(task):
    return yaml.safe_load((task / "task.yml").read_text())


def words(text):
    return set(re.findall(r"\w+", text))


@pytest.mark.parametrize("task", TASKS, ids=name)
def test_task_is_complete_and_small(task):
    about = described(task)
    assert about["judge"] == ("checklist" if task.parent.name in PROSE else "rust")
    assert set(about) <= {"summary", "judge", "max_tokens", "checklist"}
    assert re.fullmatch(r"[A-Z][^\n]{10,90}[^.\n]", about["summary"])
    assert {path.name for path in task.iterdir()} - {"refused.rs"} == FILES[about["judge"]]
    assert max(path.stat().st_size for path in task.iterdir()) < FILE_BYTES
    assert len((task / "prompt.md").read_text().split()) < 400
    assert all(len(path.read_text().splitlines()) < LINES[task.parent.name] for path in task.glob("reference.*"))


@pytest.mark.parametrize("task", of_judge("rust"), ids=name)
def test_prompt_names_what_tests_use(task):
    prompt, tests = ((task / file).read_text() for file in ("prompt.md", "tests.rs"))
    refused = (task / "refused.rs").read_text() if (task / "refused.rs").exists() else ""
    public = set(ITEM.findall((task / "reference.rs").read_text()))
    assert (public & words(tests + refused)) - words(prompt) == set()
    assert "Answer with one Rust code block" in prompt and "1.63" in prompt
    assert tests.startswith("use answer::*;\n") and 4 <= len(cases_of(name(task), tests)) <= 8
    assert not [path for path in task.glob("*.rs") if re.search(r"#!\[|\bunsafe\b|\bextern crate\b", path.read_text())]


@pytest.mark.parametrize("task", of_judge("checklist"), ids=name)
def test_checklist_tells_answers_apart(task):
    checklist = described(task)["checklist"]
    assert 3 <= len(checklist) <= 5 and all(set(one) == {"fact", "any"} for one in checklist)
    assert judge(checklist, (task / "reference.md").read_text()) == []
    assert judge(checklist, (task / "mutant.md").read_text()) != []
    # A long answer must not make them slow.
    assert [wanted for one in checklist for wanted in one["any"] if re.search(r"\.[*+]|\{\d+,\}", wanted)] == []


def test_shipped_tasks_are_loaded():
    assert [one["name"] for one in load([str(ROOT)])] == [name(task) for task in TASKS]


def test_answers_cannot_be_read_from_prompts():
    for task in TASKS:
        prompt = (task / "prompt.md").read_text()
        assert not [path.name for path in task.glob("reference.*") if path.read_text() in prompt], name(task)


def test_each_kind_has_its_tasks():
    counts = {kind: len(list(ROOT.glob(kind + "/*/task.yml"))) for kind in LINES}
    assert counts == {kind: 6 if kind in PROSE else 8 for kind in LINES}
