# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs over the repository's inventories that reach no node, with its ansible.cfg."""

import json
import re
from pathlib import Path

import yaml
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    done,
    playbook_lines,
    run_playbook,
)

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}


def run(folder, playbook, *words):
    """-> the output of a playbook of the repository, as one line; folder: the test's"""
    return done(run_playbook(ROOT / playbook, *words, home=folder, **CONFIG))


def shown(folder, inventory, hosts, **debug):
    """-> {host: {what debug shows of it}}"""
    play = {"hosts": hosts, "gather_facts": False, "tasks": [{"ansible.builtin.debug": debug}]}
    (folder / "play.yml").write_text(json.dumps([play]))
    words = ("-i", str(ROOT / "inventories" / inventory))
    status, lines = playbook_lines(folder / "play.yml", *words, home=folder, **CONFIG)
    assert status == 0, lines
    answers = re.findall(r"^ok: \[(\S+)\] =>\s*\n((?: .*\n|\n)+)", "\n".join(lines), re.MULTILINE)
    return {host: yaml.safe_load(text) for host, text in answers}
