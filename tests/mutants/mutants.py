# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes one operator, word or number of plugins/module_utils or plugins/plugin_utils and runs the unit tests that
reach it.

A mutant is killed when a test fails or does not end, and the same test passes without the mutant right after: a busy
machine kills none. Prints each mutant with the first test that failed, then the survivors and the rate. The exit status
is 1 when fewer than --least percent were killed. run.sh calls it: a mutant may do anything to the machine.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict, namedtuple
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = ["ansible_collections", "thefermisea", "llama_cluster"]
TREES = ("module_utils", "plugin_utils")
SIDE_BY_SIDE = 2
# A test that takes longer does not end; neither do all of them, or their imports.
TEST_SECONDS, SECONDS = 120, 1800
# Test files that are run, and imported, before all others: most mutants do not live longer.
NEAREST = 4
# A test that also fails without the mutant judges nothing: the mutant is tried again, so many times in all.
TRIES = 3
# Nothing that an earlier mutant left. A test that does not end ends pytest, with a trace of where it was.
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=no", "-rfE", "-x")
DEADLINE = ("-o", "faulthandler_timeout=%d" % TEST_SECONDS, "-o", "faulthandler_exit_on_timeout=true")
# The processes of a mutant end with it. Tests are not process 1, which signals and orphans treat unlike others: bash
# is.
APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", '"$@"; exit $?', "_")
# What pytest exits with when it ran no test.
USAGE, NO_TESTS = 4, 5

Verdict = namedtuple("Verdict", "mutant killed by seconds")


def imported(path, root):
    """The modules that a file imports, as paths below the root; not all of them are files there."""
    for node in ast.walk(ast.parse((root / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (module_path(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(path.parts[: -node.level]) if node.level else []
            base += node.module.split(".") if node.module else []
            # "from . import x" names a module, "from .x import y" names what is in one.
            yield from (module_path(parts) for parts in (base, *([*base, alias.name] for alias in node.names)) if parts)


def module_path(parts):
    inner = parts[len(COLLECTION) :] if parts[: len(COLLECTION)] == COLLECTION else parts
    return Path(*inner).with_suffix(".py") if inner else Path()


def importers(root):
    """{path: {path that imports it}}"""
    graph = defaultdict(set)
    for folder in ("plugins", "tests/unit"):
        for path in (found.relative_to(root) for found in (root / folder).rglob("*.py")):
            for used in imported(path, root):
                graph[used].add(path)
    return graph


def tests_of(path, graph, root):
    """[test file], nearest first: the file's own, those of its room, those that import the file or something that
    imports it."""
    found = {}
    if path.parent.name not in TREES:
        found = {test.relative_to(root): 0 for test in sorted((root / "tests/unit" / path.parent).glob("test_*.py"))}
    reached = {path}
    for distance in (1, 2):
        reached = {user for used in reached for user in graph.get(used, ())}
        for user in sorted(user for user in reached if user.name.startswith("test_")):
            found.setdefault(user, distance)
    return sorted(found, key=lambda test: (path.stem.strip("_") not in test.stem, found[test]))


class Copy:
    """A copy of the working tree, in which one mutant at a time is tried."""

    def __init__(self, folder, python):
        self.root, self.python, self.home, self.writes = folder / "llama_cluster", python, folder / "home", 0
        self.home.mkdir(parents=True)
        listed = subprocess.run(
            ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        )
        for name in listed.stdout.split("\0"):
            if name and os.path.lexists(ROOT / name):
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)

    def places(self):
        """Environment: where tests may write, without plugins of pytest. Ansible asks passwd, not HOME, for a node's
        home."""
        home = str(self.home)
        return {
            "HOME": home,
            "TMPDIR": home,
            "PYTHONPYCACHEPREFIX": home + "/pyc",
            "ANSIBLE_REMOTE_TMP": home + "/remote",
            # Of no use to unit tests, and slow to import.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }

    def pytest(self, words):
        """(exit status, or None when it did not end; output)"""
        process = subprocess.Popen(
            [*APART, self.python, *PYTEST, *DEADLINE, *map(str, words)],
            cwd=self.root,
            env=dict(os.environ, **self.places()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            output = process.communicate(timeout=SECONDS)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return None, ""
        return process.returncode, output

    def write(self, path, source):
        """A time that the file never had: Python knows compiled files by whole seconds."""
        path.write_text(source)
        self.writes += 1
        os.utime(path, (self.writes, self.writes))

    def verdict(self, mutant, tests):
        begun = time.monotonic()
        said = "" if tests else "no unit test reaches it"
        for group in filter(None, (tests[:NEAREST], tests[NEAREST:])):
            for _try in range(TRIES):
                by, judges = self.attempt(mutant, group)
                if by and self.passes(judges):
                    return Verdict(mutant, True, by, time.monotonic() - begun)
                if not by:
                    break
                said = "fails without it too: " + by
        return Verdict(mutant, False, said, time.monotonic() - begun)

    def passes(self, tests):
        """Whether the file as it is passes them. An id with " - " in it was cut: its whole file is asked."""
        status, _output = self.pytest(tests)
        if status == USAGE:
            status, _output = self.pytest([str(test).partition("::")[0] for test in tests])
        return status == 0

    def attempt(self, mutant, tests):
        """(what noticed, [test that noticed, or its file]); ("", []) when none did"""
        path = self.root / mutant.path
        source = path.read_text()
        self.write(path, mutant.source)
        status, output = self.pytest(tests)
        self.write(path, source)
        if status in (USAGE, NO_TESTS):
            sys.exit("%s\nmutants: pytest ran no test of %s" % (output[-4000:], mutant.path))
        if status == 0:
            return "", []
        failed = re.search(r"^(?:FAILED|ERROR) ((?:\S*/)?(test_\S+).*?)(?: - |$)", output, re.MULTILINE)
        if failed:
            return failed.group(2), [failed.group(1)]
        stuck = re.search(r'^  File "\S*/(test_\S+)", line \d+ in (test_\w+)', output, re.MULTILINE)
        if stuck:
            return "%s::%s does not end" % stuck.groups(), [test for test in tests if Path(test).name == stuck.group(1)]
        return "no end after %d s" % SECONDS if status is None else "status %d" % status, tests


def verdicts(mutants, reach, folder, python):
    """The verdict of each mutant as soon as it is there."""
    copies = Queue()
    for number in range(SIDE_BY_SIDE):
        copies.put(Copy(folder / str(number), python))

    def judge(mutant):
        copy = copies.get()
        try:
            return copy.verdict(mutant, reach[mutant.path])
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for done in as_completed([pool.submit(judge, mutant) for mutant in mutants]):
            yield done.result()


def survivors(found):
    """Lines of a table: file and line, before, after."""
    alive = sorted((v.mutant for v in found if not v.killed), key=lambda mutant: (mutant.path, mutant.line))
    rows = [("survivor", "before", "after"), *(("%s:%d" % (m.path, m.line), m.before, m.after) for m in alive)]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return (
        ["  ".join([*(word.ljust(width) for word, width in zip(row, widths)), row[2]]) for row in rows]
        if alive
        else ["no survivors"]
    )


def commit():
    """The short name of the commit, with a word when files differ from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return said.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, help="of mutants")
    parser.add_argument("--least", type=float, default=90, help="percent of them that have to be killed")
    parser.add_argument("--python", required=True, help="has the libraries of the tests")
    parser.add_argument("--scratch", required=True, type=Path, help="the folder for copies")
    parser.add_argument("files", nargs="*", metavar="FILE", help="to be mutated, default: all of both trees")
    options = parser.parse_args()
    # Its library is installed for this program alone, not where the unit test of this file runs.
    import places  # noqa: PLC0415

    begun, made_of = time.monotonic(), commit()
    files = [path.relative_to(ROOT) for tree in TREES for path in sorted((ROOT / "plugins" / tree).rglob("*.py"))]
    graph = importers(ROOT)
    paths = options.files or [str(path) for path in files]
    reach = {path: tests_of(Path(path), graph, ROOT) for path in paths}
    mutants, possible = places.mutants(options.seed, options.count, ROOT, paths)
    print("seed %d: %d mutants in %d places" % (options.seed, len(mutants), possible), flush=True)
    found = []
    for verdict in verdicts(mutants, reach, options.scratch, options.python):
        found.append(verdict)
        state = "killed  " if verdict.killed else "SURVIVED"
        where = "%s:%d" % (verdict.mutant.path, verdict.mutant.line)
        print("%3d  %s %5.1f s  %s  %s" % (len(found), state, verdict.seconds, where, verdict.by), flush=True)
    killed = sum(verdict.killed for verdict in found)
    rate = 100 * killed / len(found)
    print("\n%s" % "\n".join(survivors(found)))
    told = (killed, len(found), rate, options.seed, made_of, time.monotonic() - begun)
    print("\nkilled %d of %d (%.0f %%), seed %d, commit %s, %.0f s" % told)
    return rate < options.least


if __name__ == "__main__":
    sys.exit(main())
