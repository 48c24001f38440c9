# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The secret that the digests of heads' units are made with, by the role's own command."""

import re
import stat
import subprocess
from pathlib import Path

import yaml

TASKS = yaml.safe_load((Path(__file__).resolve().parents[2] / "roles/head_server/tasks/keys.yml").read_text())


def test_the_salt_is_root_s_and_made_once(tmp_path):
    """The task's command contains no secret, and only root can read the file from the start."""
    made = next(
        task["ansible.builtin.shell"]
        for task in TASKS
        if task.get("ansible.builtin.shell", {}).get("creates") == "/etc/llama-cluster/salt"
    )
    salts = set()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        subprocess.check_call(["sh", "-c", made["cmd"]], cwd=tmp_path / name)
        file = tmp_path / name / "salt"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert [path.name for path in file.parent.iterdir()] == ["salt"]
        salts.add(file.read_text())
    assert len(salts) == 2 and all(re.fullmatch("llama-cluster [A-Za-z0-9]{32}", salt) for salt in salts)
    assert made["cmd"].startswith("umask 077 &&")
