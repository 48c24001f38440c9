# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The digest of a head's unit, which everybody can read, as the role's own expression makes it."""

import hashlib
import re
import stat
import subprocess
from pathlib import Path

import jinja2
import yaml

TASKS = yaml.safe_load((Path(__file__).resolve().parents[2] / "roles/head_server/tasks/configure.yml").read_text())
KEYS = {"chat": ["weak"]}


def of_keys(salt):
    """What the keys of service chat add to its digest."""
    expression = next(task["vars"]["parts"] for task in TASKS if task.get("name") == "Write the head units")[1]
    templates = jinja2.Environment(undefined=jinja2.StrictUndefined)
    templates.filters["hash"] = lambda text, kind: hashlib.new(kind, text.encode()).hexdigest()
    given = {"item": {"service": "chat", "api_key_file": "/etc/llama-cluster/keys/chat"}, "head_server_api_keys": KEYS, "__head_server_salt": salt}
    return templates.from_string(expression.replace("\n", "\\n")).render(given)


def test_keys_cannot_be_tried_against_the_digest():
    known = {hashlib.sha256(text.encode()).hexdigest() for text in ("weak", "\nweak", "weak\n")}
    salted = [of_keys({"content": content}) for content in ("b25l", "dHdv")]
    assert len(set(salted)) == 2 and not known & set(salted)


def test_the_salt_is_root_s_and_made_once(tmp_path):
    """By the task's own command: it names no secret, and the file is nobody else's from the first moment on."""
    made = next(task["ansible.builtin.shell"] for task in TASKS if task.get("ansible.builtin.shell", {}).get("creates") == "/etc/llama-cluster/salt")
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
