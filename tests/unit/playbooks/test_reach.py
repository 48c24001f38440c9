# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that cannot be worked on, as ansible-playbook prints them: one sentence each, and nothing of Ansible's own.
ssh, sudo and Python are stubs."""

import json

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils._access.reach import reach_refusals
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    ROOT,
    playbook_lines,
)

RUN = '#!/bin/sh\nfor word in "$@"; do last=$word; done\nexec sh -c "$last"\n'
SSH = "#!/bin/sh\necho '%s' >&2\nexit 255\n"
STUBS = {
    "ssh_run": RUN,
    "ssh_unknown": SSH % "Host key verification failed.",
    "ssh_denied": SSH % "ops@10.0.0.2: Permission denied (publickey).",
    "ssh_silent": SSH % "ssh: connect to host 10.0.0.3 port 22: Connection timed out",
    "sudo_asks": "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n",
    # As sudo -S does: the prompt, a line of its input, and what it says three times.
    "sudo_refuses": '#!/bin/sh\nwhile [ "$1" != -p ]; do shift; done\nfor _try in 1 2 3; do printf %s "$2" >&2; read '
    "-r _word; "
    "echo 'Sorry, try again.' >&2; done\nexit 1\n",
    "sudo": '#!/bin/sh\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n',
    "python36": "#!/bin/sh\necho 'ansible-core requires a minimum of Python version 3.8. Current version: 3.6.8 "
    "(default)' >&2\nexit 1\n",
}
SENTENCES = [
    "n1: this machine does not know the host key of 10.0.0.1, or of its jump host, a known one is needed: run `ssh -o "
    "ProxyJump=root@jump ops@10.0.0.1` once",
    "n2: 10.0.0.2 refuses the login (ops@10.0.0.2: Permission denied (publickey).), a login without a password is "
    "needed: run `ssh-copy-id ops@10.0.0.2`",
    "n3: no answer from 10.0.0.3 over ssh (ssh: connect to host 10.0.0.3 port 22: Connection timed out), a login is "
    "needed: try `ssh -p 2222 ops@10.0.0.3` on this machine",
    "n4: sudo asks for a password and none was given, one is needed: run with -K, or set ansible_become_password",
    "n6: sudo does not take the password given for it, the right one is needed: correct ansible_become_password, or "
    "run with -K",
]
OLD = (
    "n5: PATH/stub_python36 is Python 3.6.8, this Ansible needs 3.8 or newer: set ansible_python_interpreter to one, "
    "such as /usr/bin/python3.11, and run bootstrap.yml"
)


@pytest.fixture(name="run")
def fixture_run(tmp_path):
    for name, text in STUBS.items():
        (tmp_path / ("stub_" + name)).write_text(text)
        (tmp_path / ("stub_" + name)).chmod(0o755)

    def node(number, ssh, **variables):
        stub = {
            "ansible_ssh_executable": str(tmp_path / ("stub_ssh_" + ssh)),
            "ansible_become_exe": str(tmp_path / "stub_sudo"),
        }
        return dict(stub, ansible_host="10.0.0.%d" % number, ansible_user="ops", **variables)

    hosts = {
        "n1": node(1, "unknown", ansible_ssh_common_args="-o ProxyJump=root@jump"),
        "n2": node(2, "denied"),
        "n3": node(3, "silent", ansible_port=2222),
        "n4": dict(node(4, "run"), ansible_become_exe=str(tmp_path / "stub_sudo_asks")),
        "n5": node(5, "run", ansible_python_interpreter=str(tmp_path / "stub_python36")),
    }
    hosts["n6"] = dict(
        node(6, "run"), ansible_become_exe=str(tmp_path / "stub_sudo_refuses"), ansible_become_password="wrong"
    )
    (tmp_path / "hosts.json").write_text(
        json.dumps({"llama_nodes": {"hosts": hosts, "vars": {"ansible_ssh_retries": 0}}})
    )

    contact = {
        "ansible.builtin.include_role": {"name": "thefermisea.llama_cluster.preflight", "tasks_from": "contact.yml"}
    }
    play = {"name": "Contact", "hosts": "llama_nodes", "gather_facts": False, "become": True, "tasks": [contact]}
    (tmp_path / "contact.yml").write_text(json.dumps([play]))

    def playbook(name):
        environment = {
            "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS,
            "ANSIBLE_STDOUT_CALLBACK": "thefermisea.llama_cluster.brief",
        }
        folder = tmp_path if name == "contact" else ROOT / "playbooks"
        status, lines = playbook_lines(
            folder / (name + ".yml"), "-i", str(tmp_path / "hosts.json"), home=tmp_path, **environment
        )
        return (
            status,
            sorted(line.replace(str(tmp_path), "PATH") for line in lines[:-1]),
            lines[-1].replace(str(tmp_path), "PATH"),
        )

    return playbook


@pytest.mark.parametrize("playbook", ["status", "teardown", "contact"])
def test_each_node_is_one_sentence(run, playbook):
    status, lines, last = run(playbook)
    assert status != 0
    sentences = [line for line in lines if line.startswith("n")]
    # A refused login ends a run that needs every node, before Python is checked.
    assert sentences == sorted(SENTENCES + ([OLD] if playbook != "teardown" else []))
    assert [line for line in lines if line not in sentences and not line.endswith(": no change")] == []
    assert last == "stopped: 3 hosts could not be reached, %s, nothing was changed" % (
        "2 findings" if playbook == "teardown" else "3 findings"
    )


@pytest.mark.parametrize(
    "variables,root,python,sentence",
    [
        (
            {},
            {"failed": True, "msg": "Task failed: Incorrect sudo password"},
            None,
            "n: sudo does not take the password given for it, the right one is needed: correct ansible_become_password"
            ", or run with -K",
        ),
        (
            {"ansible_become_method": "su"},
            {"failed": True, "msg": "non-zero return code", "stderr": "su: not found\n"},
            None,
            "n: no root by su (su: not found), root is needed: correct it there, or set ansible_become_method",
        ),
        (
            {"ansible_python_interpreter": "/x"},
            {},
            {"failed": True, "msg": "The module interpreter '/x' was not found."},
            "n: ansible_python_interpreter /x is not there, a Python is needed: run bootstrap.yml, which installs it",
        ),
        (
            {},
            {},
            {"failed": True, "msg": "MODULE FAILURE", "module_stderr": "Segmentation fault"},
            "n: python3 runs no module of Ansible (Segmentation fault), a Python that does is needed: set "
            "ansible_python_interpreter to one, such as /usr/bin/python3.11, and run bootstrap.yml",
        ),
        (
            {},
            {"failed": True, "msg": "sudo: \x1b]52;c;eA==\x07 no"},
            None,
            "n: no root by sudo (sudo: ?]52;c;eA==? no), root is needed: correct it there, or set "
            "ansible_become_method",
        ),
        ({}, {}, {"ping": "pong"}, None),
    ],
)
def test_root_and_python(variables, root, python, sentence):
    assert reach_refusals("n", variables, {"rc": 0}, root, python) == ([sentence] if sentence else [])


def test_a_host_key_that_changed():
    login = {
        "unreachable": True,
        "msg": "@@@@\nWARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.",
    }
    assert reach_refusals("n", {"ansible_host": "10.0.0.1"}, login) == [
        "n: 10.0.0.1 has another host key than before, the known one is needed: if the node is new, run `ssh-keygen "
        "-R 10.0.0.1` and `ssh 10.0.0.1`"
    ]
