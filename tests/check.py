"""make check: linters, types and the unit tests of what has changed since main; scenarios that are named, too.

    python tests/check.py [SCENARIO ...]

Changed is what a branch, its working tree and new files have beside main. Of Python it runs the tests that import what
changed, or import something that does; of roles and playbooks the tests that name them. The rules of the repository
and the golden files are always checked.
"""

import ast
import functools
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = "ansible_collections.thefermisea.llama_cluster."
ALWAYS = ["playbooks/test_golden.py", "test_consistency.py", "test_docs.py", "test_rooms.py", "test_voice.py"]
TREES = ("plugins", "tests/unit")
# Fixtures that the others import without a name of their own in an import.
SHARED = ("tests/unit/playbooks/simulat", "tests/unit/conftest", "tests/unit/fixtures/")


def git(*words):
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True).split()


def changed():
    """-> paths that main does not have like this, deleted ones among them"""
    (base,) = git("merge-base", "main", "HEAD")
    return sorted({*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")})


@functools.cache
def text_of(path):
    return (ROOT / path).read_text()


@functools.cache
def imports(path):
    """-> the files that one file of Python imports, as paths from the root"""
    here, found = pathlib.Path(path).parent.parts, set()
    for node in ast.walk(ast.parse(text_of(path))):
        names = [alias.name for alias in getattr(node, "names", ())] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            before = (PACKAGE + ".".join(here[: len(here) - node.level + 1]) + ".") if node.level else ""
            start = (before + (node.module or "")).rstrip(".")
            names = [start, *(start + "." + alias.name for alias in node.names)]
        for name in names:
            if name.startswith(PACKAGE):
                found.add(name[len(PACKAGE) :].replace(".", "/") + ".py")
    return found


def tests_of(paths):
    """-> the test files that may notice a change of these paths"""
    sources = [str(path.relative_to(ROOT)) for tree in TREES for path in (ROOT / tree).rglob("*.py")]
    graph = {path: imports(path) for path in sources}
    near = set(paths) | {path for path, needed in graph.items() if needed & set(paths)}
    tests = {path for path, needed in graph.items() if path in near or needed & near}
    # Roles and playbooks are named: in the name of a test's file, by their path, or as what is run.
    named = {path.split("/")[1].removesuffix(".yml") for path in paths if path.startswith(("roles/", "playbooks/"))}
    for word in named:
        runs = re.compile(r"(roles|playbooks)/%s\b|run\w*\(\"%s\"" % (word, word))
        tests |= {path for path in graph if word in pathlib.Path(path).name or runs.search(text_of(path))}
    if any(path.startswith(SHARED) for path in paths):
        tests |= {path for path in graph if path.startswith("tests/unit/playbooks/")}
    tests |= {"tests/unit/" + path for path in ALWAYS}
    return sorted(path for path in tests if "/test_" in path and (ROOT / path).exists())


def main():
    paths = changed()
    there = [path for path in paths if (ROOT / path).is_file()]
    yaml = [path for path in there if path.endswith((".yml", ".yaml"))]
    ansible = [path for path in yaml if path.startswith(("roles/", "playbooks/", "molecule/", "tests/golden/"))]
    steps = [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["yamllint", "--strict", *yaml] if yaml else [],
        ["ansible-lint", "--offline", "--strict", *ansible] if ansible else [],
        ["mypy", "--python-version", "3.10", "plugins/module_utils"],
        ["mypy", "--python-version", "3.11", "plugins/plugin_utils"],
        ["pytest", "-q", "--numprocesses", "2", *tests_of(paths)],
        ["python", "tests/scenarios.py", *sys.argv[1:]] if sys.argv[1:] else [],
    ]
    failed, programs = [], pathlib.Path(sys.executable).parent
    for program, *arguments in filter(None, steps):
        started = time.monotonic()
        environment = dict(os.environ, PATH="%s:%s" % (programs, os.environ["PATH"]))
        status = subprocess.call([programs / program, *arguments], cwd=ROOT, env=environment)
        failed += [program] * (status != 0)
        print("check: %s %s, %d s" % (program, "failed" if status else "passed", time.monotonic() - started))
    sys.exit("check: failed: " + ", ".join(failed) if failed else 0)


if __name__ == "__main__":
    main()
