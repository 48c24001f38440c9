# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A skipped gate is no success; a skipped test is one only for a reason that cannot be taken away."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GATES = ROOT / "tests/gates"
CASE = '<testcase classname="x" name="test"><skipped message="%s"/></testcase>'
REPORT = "<testsuites><testsuite>%s</testsuite></testsuites>" % CASE


@pytest.mark.parametrize(("reason", "status"), [("no user namespaces", 0), ("no ss on this machine", 1)])
def test_skipped_test_needs_an_allowed_reason(tmp_path, reason, status):
    (tmp_path / "report.xml").write_text(REPORT % reason)
    command = [sys.executable, str(GATES / "skips.py"), str(tmp_path / "report.xml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status and reason in done.stdout


ONCE = """#!/usr/bin/env bash
. "$(dirname "$0")/common.sh"
inputs=("${WORD:-word}" -- read)
gate "a gate" grep -q right "$repository/read"
gate "another" true
finish
"""


@pytest.fixture
def once(tmp_path):
    """-> function that runs a gate of file `read` and says what its line is: PASS, FAIL, unchanged"""
    folder = tmp_path / "tests/gates"
    folder.mkdir(parents=True)
    shutil.copy(GATES / "common.sh", folder)
    shutil.copytree(ROOT / "tests/lab", tmp_path / "tests/lab")
    (folder / "once.sh").write_text(ONCE)
    (tmp_path / "read").write_text("right")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("FULL", "GATES_TABLE")}
    environment["LLAMA_CLUSTER_CACHE"] = str(tmp_path / "cache")

    def run(**settings):
        command = ["bash", str(folder / "once.sh")]
        done = subprocess.run(command, env=environment | settings, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith(("PASS", "FAIL"))]
        assert len(lines) == 2 and "another" in lines[1] and "unchanged" not in lines[1], done
        return "unchanged" if "inputs unchanged since 20" in lines[0] else lines[0].split()[0]

    return run


def test_gate_with_unchanged_inputs_is_not_run(tmp_path, once):
    assert once() == "PASS"
    (tmp_path / "unread").write_text("other")
    assert once() == "unchanged"
    assert once(FULL="1") == "PASS"


CHANGES = {
    "content": lambda root: (root / "read").write_text("right, too"),
    "mode": lambda root: (root / "read").chmod(0o755),
    "gate": lambda root: (root / "tests/gates/once.sh").write_text(ONCE + "# changed"),
    "shared": lambda root: (root / "tests/gates/common.sh").write_text((GATES / "common.sh").read_text() + "# changed"),
    "age": lambda root: [os.utime(path, (0, 0)) for path in (root / "cache/passed").iterdir()],
    "not git": lambda root: shutil.rmtree(root / ".git"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_inputs_run_a_gate_again(tmp_path, once, change):
    assert once() == "PASS"
    change(tmp_path)
    assert once() == "PASS"


def test_other_tool_runs_a_gate_again(once):
    assert once() == "PASS"
    assert once(WORD="newer") == "PASS"


def test_failed_gate_is_run_again(tmp_path, once):
    (tmp_path / "read").write_text("wrong")
    assert [once(), once()] == ["FAIL", "FAIL"]


GATE = """#!/usr/bin/env bash
. ./common.sh
verdict %s "%s: what it does" 120 "why"
[ "$0" != ./sanity.sh ] || verdict PASS "unit tests" 300 ""
finish
"""


@pytest.mark.parametrize(
    ("verdict", "settings", "status"),
    [("PASS", {}, 0), ("SKIPPED", {}, 1), ("SKIPPED", {"SKIPS": "accepted"}, 0)],
    ids=["passed", "skipped", "accepted"],
)
def test_skipped_gate_fails_unless_accepted(tmp_path, verdict, settings, status):
    folder = tmp_path / "tests/gates"
    shutil.copytree(GATES, folder)
    shutil.copytree(ROOT / "tests/lab", tmp_path / "tests/lab")
    for name in ("lint", "packaging", "versions", "card", "inventories", "sanity", "tasks"):
        (folder / (name + ".sh")).write_text(GATE % (verdict if name == "versions" else "PASS", name))
    environment = {name: value for name, value in os.environ.items() if name != "SKIPS"}
    environment.update(LLAMA_CLUSTER_CACHE=str(tmp_path / "cache"), MINUTES=str(tmp_path / "minutes"), **settings)
    done = subprocess.run(
        ["bash", str(folder / "all.sh")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
