# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make mutants`: which tests a mutant meets, and what counts as killed."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tests/mutants/mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mutants = load()
Mutant = type("Mutant", (), {})
OF_THE_COLLECTION = "from ansible_collections.thefermisea.llama_cluster.plugins."
TREE = {
    "plugins/module_utils/_a/one.py": "VALUE = 1\n",
    "plugins/module_utils/_a/two.py": "import json\nfrom . import one\n",
    "plugins/module_utils/_b/three.py": "from .._a.two import one\n",
    "plugins/module_utils/alone.py": "",
    "plugins/modules/m.py": OF_THE_COLLECTION + "module_utils._a.two import one\n",
    "tests/unit/helper.py": OF_THE_COLLECTION + "module_utils._b import three\n",
    "tests/unit/test_far.py": "from ansible_collections.thefermisea.llama_cluster.tests.unit import helper\n",
    "tests/unit/test_direct.py": OF_THE_COLLECTION + "module_utils._a import one\n",
    "tests/unit/plugins/module_utils/_a/test_a.py": "",
    "tests/unit/plugins/module_utils/_b/test_b.py": OF_THE_COLLECTION + "module_utils._b import three\n",
    "tests/unit/plugins/modules/test_m.py": OF_THE_COLLECTION + "modules import m\n",
}


@pytest.fixture(name="root")
def fixture_root(tmp_path):
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("_a/one.py", ["_a/test_a.py", "tests/unit/test_direct.py"]),
        ("_a/two.py", ["_a/test_a.py", "_b/test_b.py", "modules/test_m.py"]),
        ("_b/three.py", ["_b/test_b.py", "tests/unit/test_far.py"]),
        ("alone.py", []),
    ],
)
def test_a_mutant_meets_its_room_and_whoever_imports_it_or_an_importer(root, path, tests):
    found = mutants.tests_of(Path("plugins/module_utils", path), mutants.importers(root), root)
    assert [str(test)[-len(name) :] for test, name in zip(found, tests)] == tests
    assert len(found) == len(tests)


def test_a_files_own_test_is_nearest(root):
    (root / "tests/unit/plugins/module_utils/_a/test_z_two.py").write_text("")
    found = mutants.tests_of(Path("plugins/module_utils/_a/two.py"), mutants.importers(root), root)
    assert [test.name for test in found] == ["test_z_two.py", "test_a.py", "test_b.py", "test_m.py"]


class Copy(mutants.Copy):
    """A copy with one file, what pytest says about its mutant, and how often it fails with the file as it is."""

    def __init__(self, root, *said, busy=0, status=1):
        self.root, self.said, self.busy, self.status, self.seen, self.writes = root, list(said), busy, status, [], 0
        (root / "m.py").write_text("whole")

    def pytest(self, words):
        source = (self.root / "m.py").read_text()
        self.seen.append((source, list(words)))
        if source == "mutated":
            return self.said.pop(0)
        self.busy -= 1
        return (self.status if self.busy >= 0 else 0, "")


TESTS = ["t/test_x.py", "t/test_y.py"]
TRACE = """F
Timeout (0:02:00)!
Thread 0x1 (most recent call first):
  File "/copy/plugins/m.py", line 3 in around
  File "/copy/t/test_y.py", line 9 in test_it
  File "/pytest/python.py", line 1 in call
"""


@pytest.mark.parametrize(
    ("status", "output", "by", "asked"),
    [
        (
            1,
            "F\nFAILED t/test_x.py::test_it[a-b] - assert 1\n",
            "test_x.py::test_it[a-b]",
            ["t/test_x.py::test_it[a-b]"],
        ),
        (1, "FAILED t/test_x.py::test_it[a b]\n", "test_x.py::test_it[a", ["t/test_x.py::test_it[a b]"]),
        (1, "ERROR t/test_x.py - SyntaxError\n", "test_x.py", ["t/test_x.py"]),
        (1, TRACE, "test_y.py::test_it does not end", ["t/test_y.py"]),
        (2, "", "status 2", TESTS),
        (-9, "", "status -9", TESTS),
        (None, "", "no end after 1800 s", TESTS),
    ],
)
def test_a_mutant_is_killed_by_a_test_that_passes_without_it(tmp_path, status, output, by, asked):
    copy = Copy(tmp_path, (status, output))
    verdict = copy.verdict(mutant("m.py"), TESTS)
    assert (verdict.killed, verdict.by) == (True, by)
    assert copy.seen == [("mutated", TESTS), ("whole", asked)]
    assert (tmp_path / "m.py").read_text() == "whole"


def test_a_mutant_survives_when_the_nearest_tests_and_all_others_pass(tmp_path):
    tests = ["test_%d.py" % number for number in range(6)]
    copy = Copy(tmp_path, (0, "5 passed"), (0, "9 passed"))
    verdict = copy.verdict(mutant("m.py"), tests)
    assert (verdict.killed, verdict.by) == (False, "")
    assert copy.seen == [("mutated", tests[:4]), ("mutated", tests[4:])]
    assert (tmp_path / "m.py").read_text() == "whole"


def test_a_test_that_fails_without_the_mutant_too_is_asked_again(tmp_path):
    failed = (1, "FAILED t/test_y.py::test_it - assert")
    copy = Copy(tmp_path, failed, failed, failed, busy=2)
    assert copy.verdict(mutant("m.py"), TESTS).killed
    assert copy.seen == 3 * [("mutated", TESTS), ("whole", ["t/test_y.py::test_it"])]
    assert not Copy(tmp_path, failed, (0, "5 passed"), busy=1).verdict(mutant("m.py"), TESTS).killed


def test_a_busy_machine_kills_no_mutant(tmp_path):
    verdict = Copy(tmp_path, *3 * [(1, TRACE)], busy=3).verdict(mutant("m.py"), TESTS)
    assert (verdict.killed, verdict.by) == (False, "fails without it too: test_y.py::test_it does not end")


def test_an_id_that_was_cut_stands_for_its_file(tmp_path):
    copy = Copy(tmp_path, (1, "FAILED t/test_x.py::test_it[a - b] - assert"), busy=1, status=4)
    assert copy.verdict(mutant("m.py"), TESTS).killed
    assert [words for _source, words in copy.seen] == [TESTS, ["t/test_x.py::test_it[a"], ["t/test_x.py"]]


def test_pytest_ends_with_a_test_that_does_not(tmp_path, monkeypatch):
    (tmp_path / "llama_cluster").mkdir()
    (tmp_path / "llama_cluster/test_x.py").write_text("def test_it():\n    while True:\n        pass\n")
    monkeypatch.setattr(mutants, "ROOT", tmp_path / "llama_cluster")
    monkeypatch.setattr(mutants, "APART", ())
    monkeypatch.delenv("PYTEST_PLUGINS", raising=False)  # ansible-test's own run each test in a process of its own
    monkeypatch.setattr(mutants, "DEADLINE", tuple(word.replace("120", "1") for word in mutants.DEADLINE))
    subprocess.run(["git", "init", "--quiet"], cwd=mutants.ROOT, check=True)
    status, output = mutants.Copy(tmp_path / "0", sys.executable).pytest(["test_x.py"])
    assert status == 1
    assert re.search(r'^Timeout .*^  File "\S*/test_x.py", line \d in test_it', output, re.MULTILINE | re.DOTALL), (
        output
    )


def test_python_never_takes_a_mutant_for_another_by_its_time(tmp_path):
    copy, times = Copy(tmp_path), set()
    copy.pytest = lambda words: times.add(int((tmp_path / "m.py").stat().st_mtime)) or (0, "")
    for _number in range(3):
        copy.verdict(mutant("m.py"), TESTS)
        times.add(int((tmp_path / "m.py").stat().st_mtime))
    assert len(times) == 6


def mutant(path, line=3, before="a == 1", after="a != 1"):
    one = Mutant()
    one.path, one.line, one.before, one.after, one.source = path, line, before, after, "mutated"
    return one


def test_a_file_that_no_test_reaches_kills_nothing(tmp_path):
    verdict = Copy(tmp_path).verdict(mutant("m.py"), [])
    assert (verdict.killed, verdict.by) == (False, "no unit test reaches it")


@pytest.mark.parametrize("status", [4, 5])
def test_a_run_without_tests_is_no_verdict(tmp_path, status):
    with pytest.raises(SystemExit, match="pytest ran no test of m.py"):
        Copy(tmp_path, (status, "")).verdict(mutant("m.py"), TESTS)


def test_the_table_of_survivors():
    found = [mutants.Verdict(mutant("b.py"), False, "", 1), mutants.Verdict(mutant("c.py"), True, "", 1)]
    found.append(mutants.Verdict(mutant("folder/a.py", 110, "x", "y"), False, "", 1))
    assert mutants.survivors(found) == [
        "survivor         before  after",
        "b.py:3           a == 1  a != 1",
        "folder/a.py:110  x       y",
    ]
    assert mutants.survivors(found[1:2]) == ["no survivors"]


def test_a_copy_has_what_git_does_not_ignore(tmp_path, monkeypatch):
    root = tmp_path / "root"
    (root / ".collections/thefermisea").mkdir(parents=True)
    (root / ".collections/thefermisea/llama_cluster").symlink_to("../..")
    (root / ".gitignore").write_text("/ignored\n")
    for name in ("tracked", "removed", "new", "ignored"):
        (root / name).write_text(name)
    for words in (["init", "--quiet"], ["add", "tracked", "removed", ".collections", ".gitignore"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    (root / "removed").unlink()
    monkeypatch.setattr(mutants, "ROOT", root)
    copy = mutants.Copy(tmp_path / "0", "python").root
    assert sorted(path.name for path in copy.iterdir()) == [".collections", ".gitignore", "new", "tracked"]
    assert (copy / ".collections/thefermisea/llama_cluster").resolve() == copy.resolve()
