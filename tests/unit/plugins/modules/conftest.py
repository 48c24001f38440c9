# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs modules."""

import importlib
import json

import pytest
from ansible.module_utils.testing import patch_module_args


@pytest.fixture(name="run")
def fixture_run(request, capsys):
    """run(**options) -> (exit code, result) of the module that the file of tests is named after, or of another one."""
    name = request.path.stem.removeprefix("test_")
    own = importlib.import_module("ansible_collections.thefermisea.llama_cluster.plugins.modules." + name)

    def run(module=own, **options):
        with patch_module_args(options), pytest.raises(SystemExit) as stop:
            module.main()
        return stop.value.code, json.loads(capsys.readouterr().out)

    return run
