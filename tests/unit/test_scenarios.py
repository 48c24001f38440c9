# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An interrupted run of tests/scenarios.py."""

import os
import subprocess
import threading

from ansible_collections.thefermisea.llama_cluster.tests import scenarios


def test_interrupted_run_ends_what_molecule_started(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = ["sh", "-c", "sh -c 'echo begun; exec sleep 1000' & wait"]
    with open(os.open(pipe, os.O_RDWR), "r+b", buffering=0) as output:
        thread = threading.Thread(target=scenarios.call, args=(command, dict(os.environ), output))
        thread.start()
        assert output.readline() == b"begun\n"
        group = scenarios.running[0].pid
        scenarios.stop_running()
        thread.join()
    assert subprocess.run(["pgrep", "--pgroup", str(group)], check=False, capture_output=True).stdout == b""
    # No other one begins.
    assert scenarios.call(command, {}, None) == 1
