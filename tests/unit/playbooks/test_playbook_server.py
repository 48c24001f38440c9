# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbook_server.py and the callbacks of the tests do not change the runs."""

import json
import os
import re
import subprocess
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks import simulation


def by_command(playbook, *arguments, home, **environment):
    """playbook_lines() by the command itself, without the callbacks of the tests."""
    settings = {**simulation.SETTINGS, **environment, "ANSIBLE_CALLBACKS_ENABLED": "thefermisea.llama_cluster.warm"}
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), str(playbook), *arguments],
        env={**simulation.outside(), **simulation.places(home), "COLUMNS": "10000", **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def test_run_equals_that_of_the_command(tmp_path_factory, monkeypatch):
    """A switch that is undone. Hosts answer in any order."""
    deployed = simulation.deployment(tmp_path_factory, "deployed", **simulation.BRIEF)
    found = []
    for lines in (simulation.playbook_lines, by_command):
        monkeypatch.setattr(simulation, "playbook_lines", lines)
        cluster = deployed.copy(tmp_path_factory.mktemp("run"))
        status, output = cluster.run_lines("switch_model", "-e", "service=chat quant=Q4_X")
        words = [sorted(re.sub(r"\d+\.\d s\b|,", "", line).split()) for line in output]
        found.append((status, sorted(words), sorted(cluster.events), cluster.configuration()))
    assert found[0] == found[1]
    assert found[0][0] != 0 and "node1 started llama-head-chat.service" in found[0][2]


def test_killed_run_is_an_error(tmp_path):
    play = {"hosts": "{{ lookup('ansible.builtin.pipe', 'kill -ALRM $PPID') }}", "gather_facts": False}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    with pytest.raises(AssertionError, match="ended by signal 14"):
        simulation.playbook_lines(tmp_path / "play.yml", "-i", "localhost,", home=tmp_path)
    # The next run has its own answer.
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False}]))
    assert simulation.playbook_lines(tmp_path / "play.yml", "-i", "localhost,", home=tmp_path)[0] == 0
