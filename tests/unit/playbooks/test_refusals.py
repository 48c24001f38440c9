# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The refusals of roles if a prerequisite is missing (refusals.yml), as an operator reads them."""

import json
import os
import sys
from pathlib import Path

from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    done,
    run_playbook,
)

REFUSALS = [
    "role acceptance: no entry point named, tasks_from: verify is needed",
    "role adoption: no entry point named, tasks_from: find, stop, put_back or one of these with _gateway is needed",
    "role apply: no entry point named, tasks_from: prepare, open, compare, builds, look, change, up, answer, drain, "
    "release, undo, restore or close is needed",
    "role upgrade: no entry point named, tasks_from: baseline, judge or keep is needed",
    "/opt/llama.cpp/current: missing on node1, a llama.cpp build is needed: run with --tags build first",
    "/opt/llama.cpp/current: missing on node1, a llama.cpp build is needed: run with --tags build first",
    "/nonexistent/m.gguf: missing on node1, the model of service chat is needed: run with --tags model first",
    "llama_services.chat.tensor_split: no plan of this run seen, that of role preflight is needed: run site.yml "
    "without --skip-tags",
]


def test_what_is_missing_is_said_with_next_step(tmp_path):
    (tmp_path / "current").mkdir()
    settings = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "folder": str(tmp_path)}
    (tmp_path / "hosts.json").write_text(json.dumps({"llama_nodes": {"hosts": {"node1": settings}}}))
    # There is no systemd where unit tests run: one without any unit.
    (tmp_path / "stub_systemctl").write_text("#!/bin/sh\n")
    (tmp_path / "stub_systemctl").chmod(0o755)
    (tmp_path / "systemctl").symlink_to("stub_systemctl")
    path = "%s:%s" % (tmp_path, os.environ["PATH"])
    playbook = Path(__file__).with_name("refusals.yml")
    arguments = ("-i", str(tmp_path / "hosts.json"))
    output = done(run_playbook(playbook, *arguments, home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS, PATH=path))
    missing = [text for text in REFUSALS if output.count(json.dumps(text).strip('"')) == 0]
    assert not missing, output
