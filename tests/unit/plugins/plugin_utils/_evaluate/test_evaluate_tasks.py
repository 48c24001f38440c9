# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories of tasks, as operators write them."""

import json
import os

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils._text import Refusal
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._evaluate import tasks

FACT = {"fact": "x", "any": ["x"]}
TESTS = "use answer::*;\n#[test]\nfn adds() { assert_eq!(add(1, 2), 3); }\n"


def write(root, name, judge="rust", settings=None, **files):
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "task.yml").write_text(json.dumps({"summary": "Add.", "judge": judge, **(settings or {})}))
    for file, text in {"prompt.md": "Add numbers.\n", "tests.rs": TESTS, **files}.items():
        (folder / file).write_text(text)
    return folder


def refusal(root):
    with pytest.raises(Refusal) as refused:
        tasks.load([str(root)])
    return str(refused.value)


def test_tasks_are_read_by_kind_and_name(tmp_path):
    write(tmp_path, "fix/b", settings={"max_tokens": 300})
    write(tmp_path, "fix/a", **{"refused.rs": "fn main() {}"})
    write(tmp_path, "analyze/c", "checklist", {"checklist": [{"fact": "the leak", "any": ["leak"]}]})
    found = tasks.load([str(tmp_path)])
    assert [one["name"] for one in found] == ["analyze/c", "fix/a", "fix/b"]
    assert [one["max_tokens"] for one in found] == [1024, 1024, 300]
    assert found[1]["refused"] and found[2]["refused"] is None and found[0]["tests"] is None
    assert len({one["digest"] for one in found}) == 3


def test_digest_is_of_question_and_judge(tmp_path):
    folder = write(tmp_path, "fix/a")
    before = tasks.load([str(tmp_path)])[0]["digest"]
    (folder / "reference.rs").write_text("x")
    assert tasks.load([str(tmp_path)])[0]["digest"] == before
    (folder / "tests.rs").write_text(TESTS + "// one more")
    judged = tasks.load([str(tmp_path)])[0]["digest"]
    (folder / "prompt.md").write_text("other words")
    assert len({before, judged, tasks.load([str(tmp_path)])[0]["digest"]}) == 3


def test_files_of_commands_count(tmp_path):
    folder = write(tmp_path, "own/a", ["./judge.sh", "x"], **{"judge.sh": "exit 0\n"})
    (folder / "judge.sh").chmod(0o755)
    first = tasks.load([str(tmp_path)])[0]
    assert first["dir"] == str(folder) and first["judge"] == ["./judge.sh", "x"]
    (folder / "judge.sh").write_text("exit 1\n")
    assert tasks.load([str(tmp_path)])[0]["digest"] != first["digest"]


@pytest.mark.parametrize(
    ("word", "mode", "said"),
    [
        ("./judg.sh", 0o755, "judg.sh: no file seen"),
        ("judge.sh", 0o755, "task.yml: judge judge.sh seen, ./judge.sh is needed"),
        ("./judge.sh", 0o644, "judge.sh: mode 0644 seen"),
        ("./judge.sh", 0o700, "judge.sh: mode 0700 seen"),
    ],
)
def test_commands_that_cannot_run_are_refused(tmp_path, word, mode, said):
    folder = write(tmp_path, "own/a", [word], **{"judge.sh": "exit 0\n"})
    (folder / "judge.sh").chmod(mode)
    assert said in refusal(tmp_path)


def test_private_directory_of_command_is_refused(tmp_path):
    folder = write(tmp_path, "own/a", ["./judge.sh"], **{"judge.sh": "exit 0\n"})
    (folder / "judge.sh").chmod(0o755)
    folder.chmod(0o750)
    assert f"{folder}: mode 0750 seen, one that lets every user run ./judge.sh is needed: chmod 755 it" in refusal(
        tmp_path
    )


@pytest.mark.parametrize("words", [["python3", "judge.py"], ["/usr/bin/env", "python3"], ["./judge.sh"]])
def test_commands_that_can_run_are_read(tmp_path, words):
    folder = write(tmp_path, "own/a", words, **{"judge.sh": "exit 0\n"})
    (folder / "judge.sh").chmod(0o755)
    assert tasks.load([str(tmp_path)])[0]["judge"] == words


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"judge": "python"}, "judge python seen"),
        ({"judge": []}, "judge [] seen"),
        ({"judge": None}, "no judge seen"),
        ({"summary": 3}, "no text in summary seen"),
        ({"max_tokens": 0}, "max_tokens 0 seen, a number from 1 to 32768"),
        ({"max_tokens": "300"}, "max_tokens '300' seen"),
        ({"max_tokens": True}, "max_tokens True seen"),
        ({"timeout": 3}, "timeout seen"),
        ({"max_token": 3}, "max_token seen, checklist, judge, max_tokens, summary are known, did you mean max_tokens?"),
        ({"judge": "checklist"}, "no list in checklist seen"),
        ({"judge": "checklist", "checklist": ["x"]}, "entry 1 of checklist in another form"),
        (
            {"judge": "checklist", "checklist": [FACT, {"fact": "x", "any": "y"}]},
            "entry 2 of checklist in another form",
        ),
        ({"judge": "checklist", "checklist": [{"fact": "x", "any": [3]}]}, "entry 1 of checklist in another form"),
        ({"judge": "checklist", "checklist": [{**FACT, "all": ["y"]}]}, "entry 1 of checklist in another form"),
        ({"judge": "checklist", "checklist": [{"fact": "x", "any": ["("]}]}, "( seen"),
        ({"judge": "checklist", "checklist": [{"fact": "x", "any": ["\bx"]}]}, "entry 1 of checklist with a backspace"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, settings, said):
    write(tmp_path, "fix/a", settings=settings)
    assert f"fix/a/task.yml: {said}" in refusal(tmp_path)


def test_links_are_refused(tmp_path):
    folder = write(tmp_path, "fix/a")
    os.remove(folder / "prompt.md")
    (folder / "prompt.md").symlink_to("/etc/hostname")
    assert "prompt.md: a symbolic link seen" in refusal(tmp_path)
    (tmp_path / "fix/b").symlink_to(folder)
    assert "fix/b: a symbolic link" in refusal(tmp_path)


@pytest.mark.parametrize("file", ["prompt.md", "task.yml", "tests.rs"])
def test_directories_instead_of_files_are_refused(tmp_path, file):
    folder = write(tmp_path, "fix/a")
    (folder / file).unlink()
    (folder / file).mkdir()
    assert f"{file}: no regular file seen" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("prompt.md", "\n", "prompt.md: no text seen"),
        ("tests.rs", "fn adds() {}\n", "fix/a: tests.rs has 0 times #[test]"),
        ("task.yml", "- judge\n", "task.yml: no map seen"),
        ("task.yml", "judge: rust\nsummary: a: b\n", "task.yml: no YAML seen (line 2: mapping values are not allowed"),
    ],
)
def test_wrong_texts_are_refused(tmp_path, file, text, said):
    (write(tmp_path, "fix/a") / file).write_text(text)
    assert said in refusal(tmp_path)


def test_large_files_are_refused(tmp_path):
    write(tmp_path, "fix/a", **{"tests.rs": "x" * (tasks.LARGEST + 1)})
    assert "tests.rs: more than 64 KiB seen" in refusal(tmp_path)


@pytest.mark.parametrize(("name", "said"), [("fix/A b", "a name seen"), ("all/a", "a name seen"), ("", "no KIND/NAME")])
def test_wrong_directories_are_refused(tmp_path, name, said):
    if name:
        write(tmp_path, name)
    assert said in refusal(tmp_path)


def test_words_choose_kinds_and_tasks(tmp_path):
    for name in ("fix/a", "fix/b", "own/a", "own/b"):
        write(tmp_path, name)
    found = tasks.load([str(tmp_path)])

    def names(*words, limit=0):
        return [one["name"] for one in tasks.chosen(found, words, limit)]

    assert names() == ["fix/a", "fix/b", "own/a", "own/b"]
    assert names("own", "fix/b") == ["fix/b", "own/a", "own/b"]
    assert names(limit=1) == ["fix/a", "own/a"]
    with pytest.raises(Refusal, match="task fixx seen, one of fix, own or KIND/NAME is needed, did you mean fix"):
        names("fixx")
