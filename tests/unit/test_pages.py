# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generated pages are what tests/pages.py makes of the code."""

import importlib.util
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import variables

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("pages", ROOT / "tests/pages.py")
pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pages)


@pytest.mark.parametrize("name", pages.PAGES)
def test_page_is_up_to_date(name):
    assert pages.PAGES[name]() == (ROOT / name).read_text(), "run: .venv/bin/python tests/pages.py"


def test_every_variable_has_a_row():
    text = "".join((ROOT / name).read_text() for name in pages.PAGES)
    assert [name for name in sorted(variables.known()) if "\n| `%s` | " % name not in text] == []
