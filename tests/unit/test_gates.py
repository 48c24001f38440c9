# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine cannot test is said, and is no success where it could be mended."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GATES = ROOT / "tests/gates"
CASE = '<testcase classname="tests.unit.plugins.module_utils.test_x" name="test_%s">%s</testcase>'


def skips(tmp_path, *reasons):
    cases = CASE % ("fine", "") + "".join(CASE % (number, '<skipped type="pytest.skip" message="%s"/>' % reason) for number, reason in enumerate(reasons))
    report = tmp_path / "report.xml"
    report.write_text("<testsuites><testsuite>%s</testsuite></testsuites>" % cases)
    done = subprocess.run([sys.executable, str(GATES / "skips.py"), str(report)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_nothing_is_skipped(tmp_path):
    assert skips(tmp_path) == (0, "", "")


def test_a_skip_is_named(tmp_path):
    assert skips(tmp_path, "no user namespaces") == (0, "plugins.module_utils.test_x::test_0\tno user namespaces\n", "")


def test_a_skip_for_a_reason_that_can_be_taken_away_fails(tmp_path):
    status, output, error = skips(tmp_path, "no user namespaces", "no ss on this machine")
    assert status != 0 and "test_1\tno ss on this machine" in output
    assert error == "skips: no ss on this machine: not an allowed reason: install what is missing, or add it to tests/gates/skips.py\n"


def test_a_report_without_tests_fails(tmp_path):
    (tmp_path / "report.xml").write_text("<testsuites/>")
    done = subprocess.run([sys.executable, str(GATES / "skips.py"), str(tmp_path / "report.xml")], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "a report of the unit tests is needed" in done.stderr


def test_allowed_reasons_are_those_of_tests():
    sources = "".join(path.read_text() for path in (ROOT / "tests/unit").rglob("test_*.py") if path != Path(__file__).resolve())
    allowed = re.findall(r'^    "([^"]+)": ', (GATES / "skips.py").read_text(), re.MULTILINE)
    assert allowed
    assert [reason for reason in allowed if 'reason="%s' % reason not in sources and 'skip("%s' % reason not in sources] == []


@pytest.mark.parametrize("lines", [[], ["SKIPPED  lanes: core 2.21 calls every module  0 s  no CPython 3.13 found"]])
def test_what_was_not_tested_is_the_last_that_is_said(tmp_path, lines):
    table = tmp_path / "table"
    table.write_text("\n".join(["PASS  lint  3 s", *lines]) + "\n")
    environment = dict(os.environ, LLAMA_CLUSTER_CACHE=str(tmp_path / "cache"))

    def run(*arguments):
        return subprocess.run(["bash", str(GATES / "skipped.sh"), *arguments], env=environment, capture_output=True, text=True, check=True).stdout

    wanted = "\nNot tested on this machine:\n%s\n" % lines[0] if lines else ""
    assert run(str(table)) == wanted
    assert run() == wanted, "at the end of make test once more"
