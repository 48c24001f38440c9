# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make mutants`: which tests a mutant meets, and what counts as killed."""

import importlib.util
import subprocess
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


class Copy(mutants.Copy):
    """A copy with one file, what pytest says about its mutant, and how often it says that of the file as it is."""

    def __init__(self, root, status, output="", busy=0):
        self.root, self.said, self.busy, self.seen, self.writes = root, (status, output), busy, [], 0

    def pytest(self, words, seconds=None):
        source = (self.root / "m.py").read_text()
        self.seen.append((words, seconds, source))
        if source == "mutated":
            return self.said
        self.busy -= 1
        return self.said if self.busy >= 0 else (0, "")


@pytest.mark.parametrize(
    ("status", "output", "killed", "by"),
    [
        (0, "5 passed", False, ""),
        (1, "F\nFAILED tests/unit/test_x.py::test_it[a-b] - assert 1 == 2\n", True, "test_x.py::test_it[a-b]"),
        (1, "ERROR tests/unit/test_x.py - SyntaxError\n", True, "test_x.py"),
        (2, "", True, "status 2"),
        (-9, "", True, "status -9"),
        (None, "", True, "no end after 7 s"),
    ],
)
def test_a_mutant_is_killed_by_a_test_that_fails_or_does_not_end(tmp_path, status, output, killed, by):
    (tmp_path / "m.py").write_text("whole")
    copy = Copy(tmp_path, status, output)
    verdict = copy.verdict(mutant("m.py"), ["test_x.py"], 7)
    assert (verdict.killed, verdict.by) == (killed, by)
    assert copy.seen == [
        (["-x", "test_x.py"], 7, source) for source in (["mutated", "whole"] if killed else ["mutated"])
    ]
    assert (tmp_path / "m.py").read_text() == "whole"


@pytest.mark.parametrize(
    ("status", "output", "judges"),
    [
        (1, "FAILED tests/unit/b/test_y.py::test_it - assert", ["b/test_y.py"]),
        (None, "", ["a/test_x.py", "b/test_y.py"]),
    ],
)
def test_tests_that_fail_without_the_mutant_too_are_asked_again(tmp_path, status, output, judges):
    (tmp_path / "m.py").write_text("whole")
    copy = Copy(tmp_path, status, output, busy=2)
    assert copy.verdict(mutant("m.py"), ["a/test_x.py", "b/test_y.py"], 7).killed
    rounds = [(["-x", "a/test_x.py", "b/test_y.py"], 7, "mutated"), (["-x", *judges], 7, "whole")]
    assert copy.seen == 3 * rounds


def test_a_busy_machine_kills_no_mutant(tmp_path):
    (tmp_path / "m.py").write_text("whole")
    verdict = Copy(tmp_path, None, busy=3).verdict(mutant("m.py"), ["test_x.py"], 7)
    assert (verdict.killed, verdict.by) == (False, "tests fail without it too: no end after 7 s")


def test_python_never_takes_a_mutant_for_another_by_its_time(tmp_path):
    (tmp_path / "m.py").write_text("whole")
    copy, times = Copy(tmp_path, 0), set()
    copy.pytest = lambda words, seconds=None: times.add(int((tmp_path / "m.py").stat().st_mtime)) or (0, "")
    for _number in range(3):
        copy.verdict(mutant("m.py"), ["test_x.py"], 7)
        times.add(int((tmp_path / "m.py").stat().st_mtime))
    assert len(times) == 6


def mutant(path, line=3, before="a == 1", after="a != 1"):
    one = Mutant()
    one.path, one.line, one.before, one.after, one.source = path, line, before, after, "mutated"
    return one


def test_a_file_that_no_test_reaches_kills_nothing(tmp_path):
    verdict = Copy(tmp_path, 1).verdict(mutant("m.py"), [], 7)
    assert (verdict.killed, verdict.by) == (False, "no unit test reaches it")


@pytest.mark.parametrize("status", [4, 5])
def test_a_run_without_tests_is_no_verdict(tmp_path, status):
    (tmp_path / "m.py").write_text("whole")
    with pytest.raises(SystemExit, match="pytest ran no test of m.py"):
        Copy(tmp_path, status).verdict(mutant("m.py"), ["test_x.py"], 7)


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
