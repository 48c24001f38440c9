# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/settings.md is what tests/settings_page.py makes of the tables."""

import importlib.util
from pathlib import Path

from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._intent import variables

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/settings.md").read_text()


def test_the_page_of_settings_is_up_to_date():
    spec = importlib.util.spec_from_file_location("settings_page", ROOT / "tests/settings_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == PAGE, "run: .venv/bin/python tests/settings_page.py > docs/settings.md"


def test_every_variable_that_is_read_has_a_row():
    assert [name for name in sorted(variables.known()) if "\n| `%s` | " % name not in PAGE] == []
