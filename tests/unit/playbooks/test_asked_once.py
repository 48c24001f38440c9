# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run asks a node once for each fact, and writes a list of files in one execution."""

import json
import os
import sys
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    done,
    run_playbook,
)

OURS = "thefermisea.llama_cluster."
GETENT = """\
import os, sys

with open(os.environ["CALLS"], "a") as stream:
    stream.write(" ".join(sys.argv[1:]) + "\\n")
print("%s:x:971:971::/nonexistent:/bin/false" % sys.argv[2])
"""
ACCOUNTS = {"accounts": {"names": ["llama"]}}


@pytest.fixture(name="play")
def fixture_play(tmp_path):
    """play(*tasks) -> what getent was asked for in one run"""
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    (programs / "getent").write_text("#!%s\n%s" % (sys.executable, GETENT))
    (programs / "getent").chmod(0o755)

    def play(*tasks, **more):
        calls.write_text("")
        variables = {"ansible_python_interpreter": sys.executable}
        one = {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": variables,
            "tasks": list(tasks),
        }
        (tmp_path / "play.yml").write_text(json.dumps([one]))
        path = "%s:%s" % (programs, os.environ["PATH"])
        environment = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS, "CALLS": str(calls), "PATH": path, **more}
        done(run_playbook(tmp_path / "play.yml", "-i", "localhost,", home=tmp_path, **environment))
        return calls.read_text().splitlines()

    return play


def ask(**asked):
    return {OURS + "node_facts": asked}


def known(expression):
    return {"ansible.builtin.assert": {"that": expression}}


def test_known_facts_are_not_asked_again(play):
    assert play(
        ask(**ACCOUNTS),
        known("ansible_facts.llama_node.accounts.passwd[0][2] == '971'"),
        ask(writable=["/etc"], **ACCOUNTS),
    ) == [
        "passwd llama",
        "group llama",
    ]


@pytest.mark.parametrize(
    "more", [{"again": True}, {"delegated": True}, {"forget": True}, {"accounts": {"names": ["other"]}}]
)
def test_facts_that_may_have_changed_are_asked(play, more):
    second = ask(**{**ACCOUNTS, **{name: value for name, value in more.items() if name not in ("delegated", "forget")}})
    if "delegated" in more:
        second["delegate_to"] = "localhost"
    between = [ask(forget=True), known("ansible_facts.llama_node == {}")] if "forget" in more else []
    assert len(play(ask(**ACCOUNTS), *between, second)) == 4


def test_facts_of_another_run_are_ignored(play, tmp_path):
    cache = {
        "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "facts"),
    }
    assert len(play(ask(**ACCOUNTS), ask(**ACCOUNTS), **cache)) == len(play(ask(**ACCOUNTS), **cache)) == 2
    assert any((tmp_path / "facts").iterdir())


def test_templates_get_their_variables(play, tmp_path):
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates/unit.j2").write_text(
        "{{ ansible_managed | comment }}\n{% for one in item %}\n{{ one }} {{ user }}\n{% endfor %}\n"
    )
    folder = tmp_path / "files"
    owner = {
        "owner": "{{ lookup('ansible.builtin.pipe', 'id -un') }}",
        "group": "{{ lookup('ansible.builtin.pipe', 'id -gn') }}",
    }
    entries = [{"path": str(folder), "state": "directory", **owner}]
    entries += [
        {"path": str(folder / name), "template": "unit.j2", "vars": {"item": [name]}, **owner} for name in ("a", "b")
    ]
    write = {OURS + "node_files": {"files": entries, "vars": {"user": "llama"}}, "register": "written"}
    names = known("written.changed_paths | map('basename') | list == ['files', 'a', 'b']")
    play(write, names, write, known("written is not changed"))
    assert (folder / "b").read_text() == "#\n# Ansible managed\n#\nb llama\n"


@pytest.mark.parametrize(
    ("arguments", "tags", "checked"),
    [
        ((), None, True),
        (("--tags", "model"), None, True),
        (("--tags", "preflight"), None, True),
        (("--tags", "gateway"), None, False),
        (("--tags", "head,rpc"), None, False),
        (("--skip-tags", "model"), None, False),
        # verify.yml fetches none.
        ((), ["verify"], False),
    ],
)
def test_models_are_checked_by_runs_that_fetch_them(tmp_path, arguments, tags, checked):
    """A missing model does not stop the repair of another part."""
    given = {"playbook_tags": tags} if tags else {}
    tasks = [dict(known("__preflight_fetches | bool == %s" % checked), tags="always")]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": given, "tasks": tasks}
    role = Path(__file__).resolve().parents[3] / "roles/preflight/vars/main.yml"
    (tmp_path / "play.yml").write_text(json.dumps([dict(play, vars_files=[str(role)])]))
    done(run_playbook(tmp_path / "play.yml", "-i", "localhost,", *arguments, home=tmp_path))
