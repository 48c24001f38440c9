# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A short round of `make fuzz`: everything that is read from others, damaged."""

import subprocess
import sys

from ansible_collections.thefermisea.llama_cluster.tests.unit.fuzz import program


def test_damaged_input_ends_in_an_answer_or_a_sentence():
    command = [sys.executable, program.__file__, "--seed", "2", "--rounds", "6000"]
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=300
    )
    assert done.returncode == 0, done.stdout
    assert all(line in done.stdout for line in [target.name for target in program.TARGETS])
