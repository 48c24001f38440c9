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
