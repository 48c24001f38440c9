# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The digest of a head's unit, which everybody can read, as the role's own expression makes it."""

import hashlib
from pathlib import Path

import jinja2
import yaml

TASKS = yaml.safe_load((Path(__file__).resolve().parents[2] / "roles/head_server/tasks/configure.yml").read_text())
KEYS = {"chat": ["weak"]}


def of_keys(salt):
    """What the keys of service chat add to its digest."""
    expression = next(task["vars"]["parts"] for task in TASKS if task.get("name") == "Head units")[1]
    templates = jinja2.Environment(undefined=jinja2.StrictUndefined)
    templates.filters["hash"] = lambda text, kind: hashlib.new(kind, text.encode()).hexdigest()
    given = {"item": {"service": "chat"}, "head_server_api_keys": KEYS, "__head_server_salt": salt}
    return templates.from_string(expression.replace("\n", "\\n")).render(given)


def test_keys_cannot_be_tried_against_the_digest():
    known = {hashlib.sha256(text.encode()).hexdigest() for text in ("weak", "\nweak", "weak\n")}
    salted = [of_keys({"content": content}) for content in ("b25l", "dHdv")]
    assert len(set(salted)) == 2 and not known & set(salted)


def test_the_salt_is_root_s_and_made_once():
    task = next(task for task in TASKS if task.get("ansible.builtin.copy", {}).get("dest") == "/etc/llama-cluster/salt")
    made = task["ansible.builtin.copy"]
    assert (made["owner"], made["mode"], made["force"], task["no_log"], task["diff"]) == ("root", "0600", False, True, False)
