# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plugins loaded before the first task are available to the processes of all tasks."""

import subprocess
import sys

from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import COLLECTIONS

PROGRAM = """\
import gc, sys
from ansible.plugins.loader import filter_loader, init_plugin_loader
init_plugin_loader([sys.argv[1]])
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._warm import warm
warm()
before = set(sys.modules)
assert gc.get_freeze_count() > 10000
for name in ("memory_plan", "unit_files", "node_serving"):
    assert filter_loader.get("thefermisea.llama_cluster." + name)
assert set(sys.modules) == before, set(sys.modules) - before
"""


def test_filter_of_a_task_loads_nothing():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, COLLECTIONS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
