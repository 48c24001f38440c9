# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine cannot test is said, and is no success; the minutes of each part are the last that CI says."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GATES = ROOT / "tests/gates"
CASE = '<testcase classname="tests.unit.plugins.module_utils.test_x" name="test_%s">%s</testcase>'


def skips(tmp_path, *reasons):
    cases = CASE % ("fine", "") + "".join(
        CASE % (number, '<skipped type="pytest.skip" message="%s"/>' % reason) for number, reason in enumerate(reasons)
    )
    report = tmp_path / "report.xml"
    report.write_text("<testsuites><testsuite>%s</testsuite></testsuites>" % cases)
    done = subprocess.run(
        [sys.executable, str(GATES / "skips.py"), str(report)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_nothing_is_skipped(tmp_path):
    assert skips(tmp_path) == (0, "", "")


def test_a_skip_is_named(tmp_path):
    assert skips(tmp_path, "no user namespaces") == (0, "plugins.module_utils.test_x::test_0\tno user namespaces\n", "")


def test_a_skip_for_a_reason_that_can_be_taken_away_fails(tmp_path):
    status, output, error = skips(tmp_path, "no user namespaces", "no ss on this machine")
    assert status != 0 and "test_1\tno ss on this machine" in output
    assert (
        error == "skips: no ss on this machine: not an allowed reason: install what is missing, or add it to "
        "tests/gates/skips.py\n"
    )


def test_a_report_without_tests_fails(tmp_path):
    (tmp_path / "report.xml").write_text("<testsuites/>")
    done = subprocess.run(
        [sys.executable, str(GATES / "skips.py"), str(tmp_path / "report.xml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0 and "a report of the unit tests is needed" in done.stderr


def test_allowed_reasons_are_those_of_tests():
    sources = "".join(
        path.read_text() for path in (ROOT / "tests/unit").rglob("test_*.py") if path != Path(__file__).resolve()
    )
    allowed = re.findall(r'^    "([^"]+)": ', (GATES / "skips.py").read_text(), re.MULTILINE)
    assert allowed
    assert [
        reason for reason in allowed if 'reason="%s' % reason not in sources and 'skip("%s' % reason not in sources
    ] == []


@pytest.mark.parametrize("lines", [[], ["SKIPPED  lanes: core 2.21 calls every module  0 s  no CPython 3.13 found"]])
def test_what_was_not_tested_is_the_last_that_is_said(tmp_path, lines):
    table = tmp_path / "table"
    table.write_text("\n".join(["PASS  lint  3 s", *lines]) + "\n")

    def run(*arguments, **more):
        environment = dict(os.environ, LLAMA_CLUSTER_CACHE=str(tmp_path / "cache"), **more)
        done = subprocess.run(
            ["bash", str(GATES / "skipped.sh"), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    said = "\nNot tested on this machine:\n%s\n" % lines[0] if lines else ""
    needed = (
        "lab: 1 not tested, every test is needed: install what is named above, or accept it with SKIPS=accepted\n"
        if lines
        else ""
    )
    assert run(str(table)) == (len(lines), said, needed)
    assert run() == (len(lines), said, needed), "at the end of make test once more"
    assert run(str(table), SKIPS="accepted") == (0, said, "")


GATE = """#!/usr/bin/env bash
. ./common.sh
verdict %s "%s: what it does" 120 "why"
[ "$0" != ./sanity.sh ] || verdict PASS "sanity: ansible-test units, Python 3.11" 300 ""
finish
"""


@pytest.mark.parametrize(
    ("verdict", "settings", "status"),
    [("PASS", {}, 0), ("SKIPPED", {}, 1), ("SKIPPED", {"SKIPS": "accepted"}, 0)],
    ids=["passed", "skipped", "accepted"],
)
def test_a_gate_that_was_skipped_is_no_green_one(tmp_path, verdict, settings, status):
    """all.sh, with gates that say what they did; CI's table of them."""
    folder = tmp_path / "tests/gates"
    shutil.copytree(GATES, folder)
    shutil.copytree(ROOT / "tests/lab", tmp_path / "tests/lab")
    for name in ("lint", "packaging", "lanes", "card", "inventories", "sanity"):
        (folder / (name + ".sh")).write_text(GATE % (verdict if name == "lanes" else "PASS", name))
    environment = dict(
        os.environ, LLAMA_CLUSTER_CACHE=str(tmp_path / "cache"), MINUTES=str(tmp_path / "minutes"), **settings
    )
    done = subprocess.run(
        ["bash", str(folder / "all.sh")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    lines = (tmp_path / "minutes").read_text().splitlines()
    assert re.fullmatch(r"gates\t\d+", lines[0])
    counted = [
        "card\t120",
        "inventories\t120",
        "lanes\t120",
        "lint\t120",
        "packaging\t120",
        "sanity\t120",
        "unit tests\t300",
    ]
    assert sorted(lines[1:]) == ["  " + line for line in counted if verdict == "PASS" or "lanes" not in line]


@pytest.mark.parametrize("status", [0, 2])
def test_ci_ends_with_the_minutes_of_each_part(tmp_path, status):
    """With a make that does nothing but count."""
    (tmp_path / "make").write_text(
        "#!/bin/sh\nprintf 'gates\\t540\\n  unit tests\\t301\\n' >>\"$MINUTES\"\nexit %d\n" % status
    )
    (tmp_path / "make").chmod(0o755)
    environment = dict(os.environ, PATH="%s:%s" % (tmp_path, os.environ["PATH"]))
    done = subprocess.run([str(ROOT / ".ci/run")], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stdout.splitlines()[-4:] == [
        "Minutes (gates run side by side, and so do scenarios):",
        "gates                               9.0",
        "  unit tests                        5.0",
        "make test                           0.0",
    ]


def test_scenarios_note_their_minutes(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("scenarios", ROOT / "tests/scenarios.py")
    scenarios = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scenarios)
    monkeypatch.setattr(scenarios, "CACHE", tmp_path)
    monkeypatch.setattr(scenarios.sys, "argv", ["scenarios.py", "jump", "drill"])
    monkeypatch.setattr(scenarios.subprocess, "check_call", lambda command: 0)
    monkeypatch.setattr(scenarios.subprocess, "call", lambda command: 0)
    monkeypatch.setattr(scenarios, "call", lambda command, environment, output: int("drill" in command))
    monkeypatch.setattr(scenarios.signal, "signal", lambda *_arguments: None)
    (tmp_path / "logs").mkdir()
    monkeypatch.setenv("MINUTES", str(tmp_path / "minutes"))
    assert scenarios.main() == 1, "the one that failed"
    lines = [line.partition("\t")[0] for line in (tmp_path / "minutes").read_text().splitlines()]
    assert lines == [
        "scenarios",
        *("  " + name for name in ("engine, model and image", "build", "jump", "drill", "teardown")),
    ]
