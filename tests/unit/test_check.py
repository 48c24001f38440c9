# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tests make check runs for a change."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("check", Path(__file__).resolve().parents[2] / "tests/check.py")
check = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check)
FILES = {
    "plugins/module_utils/_sample/text.py": "",
    "plugins/module_utils/_sample/read.py": "from .text import clean\n",
    "plugins/plugin_utils/_sample/plan.py": "from ...module_utils._sample import read\n",
    "tests/unit/test_text.py": "from %splugins.module_utils._sample import text\n" % check.PACKAGE,
    "tests/unit/test_read.py": "from %splugins.module_utils._sample.read import lines\n" % check.PACKAGE,
    "tests/unit/test_plan.py": "from %splugins.plugin_utils._sample import plan\n" % check.PACKAGE,
    "tests/unit/playbooks/test_upgrades.py": 'cluster.run("sample_upgrade")\n',
    "tests/unit/test_sample_role.py": "",
}


@pytest.fixture(autouse=True)
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "ROOT", tmp_path)
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)


@pytest.mark.parametrize(
    "changed, tests",
    [
        # Its own tests and the tests of its importers, not of their importers.
        ("plugins/module_utils/_sample/text.py", ["test_read.py", "test_text.py"]),
        ("plugins/module_utils/_sample/read.py", ["test_plan.py", "test_read.py"]),
        ("tests/unit/test_text.py", ["test_text.py"]),
        ("roles/sample_role/tasks/main.yml", ["test_sample_role.py"]),
        ("playbooks/sample_upgrade.yml", ["playbooks/test_upgrades.py"]),
        ("docs/README.md", []),
    ],
)
def test_change_selects_its_tests(changed, tests):
    assert check.tests_of([changed]) == ["tests/unit/" + path for path in tests]
