# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback brief as ansible-playbook prints it: every line of small playbooks, seconds apart."""

import json
import re
import sys

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_llama_server import FakeLlamaServer
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import COLLECTIONS, playbook_lines

SHOW = "thefermisea.llama_cluster.show_lines"
WARNS = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(argument_spec={})
module.warn("the fabric is slow")
module.warn("Module remote_tmp /root/.ansible/tmp did not exist and was created with a mode of 0700, this may cause")
module.exit_json()
"""
# Two nodes each.
QUIET = """
- name: Fast
  hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.assert: {that: true}
- name: First
  hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.command: sleep 1
      changed_when: false
- name: Second
  hosts: all
  gather_facts: false
  tasks:
    - name: Show what there is not
      thefermisea.llama_cluster.show_lines: {lines: [nothing]}
      when: false
    - ansible.builtin.command: sleep 1
      changed_when: false
- name: Shown
  hosts: all
  gather_facts: false
  tasks:
    - name: Fail, and be ignored
      ansible.builtin.fail: {msg: ignored}
      ignore_errors: true
    - block:
        - name: Fail, and be rescued
          ansible.builtin.command: "false"
          changed_when: false
      rescue:
        - name: Rescue
          ansible.builtin.assert: {that: true}
    - name: Warn
      warns:
      run_once: true
    - name: Debug
      ansible.builtin.debug: {msg: a message}
      run_once: true
    - name: Show
      thefermisea.llama_cluster.show_lines: {lines: [one line, "  and another"], warnings: [only of n2]}
      run_once: true
"""
CHANGING = """
- name: Files
  hosts: all
  gather_facts: false
  roles: [files]
  tasks:
    - name: Write four
      ansible.builtin.copy: {content: "new\\n", dest: "{{ folder }}/{{ inventory_hostname }}"}
    - name: Write five
      ansible.builtin.copy: {content: "{{ item }}", dest: "{{ folder }}/{{ item }}{{ inventory_hostname }}"}
      loop: [a, b]
      diff: false
- name: Prove
  hosts: n1
  gather_facts: false
  roles: [acceptance]
"""
ANSWER = """
- name: Require an answer
  ansible.builtin.assert: {that: true}
- name: Answer
  thefermisea.llama_cluster.llama_health: {url: "{{ url }}", deep: true}
  when: url is defined
"""
# Untrusted text: it would set the clipboard and print a false result.
HOSTILE = "x\x1b]52;c;eA==\x07\r\nno change, verified in 1 s"
STRANGE = """
- name: Strange
  hosts: n1
  gather_facts: false
  tasks:
    - name: Show
      thefermisea.llama_cluster.show_lines: {lines: ["{{ hostile }}"], warnings: ["{{ hostile }}"]}
    - name: Debug
      ansible.builtin.debug: {msg: "{{ hostile }}"}
    - name: Change {{ hostile }}
      ansible.builtin.copy: {content: "{{ hostile }}", dest: "{{ folder }}/strange"}
      diff: true
    - name: Fail
      ansible.builtin.shell: cat {{ folder }}/strange >&2; exit 3
"""
ROLE = """
- name: Write one
  ansible.builtin.file: {path: "{{ folder }}/1{{ inventory_hostname }}", state: touch}
  diff: false
- name: Write two
  ansible.builtin.file: {path: "{{ folder }}/2{{ inventory_hostname }}", state: touch}
  diff: false
"""
FAILING = """
- name: Checks
  hosts: all
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - name: Change
      ansible.builtin.command: "true"
      when: change is defined
    - name: Check
      ansible.builtin.assert:
        that: item == 1
        fail_msg: "a.b: {{ item }} seen, 1 is needed\\nc.d: missing, it is needed"
        quiet: true
      loop: [1, 2, 3]
      when: case == 'refused'
    - name: Call a filter
      ansible.builtin.command: "echo {{ {'chat': {'head': 'n9'}}
        | thefermisea.llama_cluster.node_rpc(inventory_hostname, groups, hostvars) }}"
      when: case == 'filter'
    - name: Read a variable
      ansible.builtin.assert: {that: nowhere | length > 0}
      when: case == 'undefined'
    - name: Call a program
      ansible.builtin.shell: "echo one >&2; echo two >&2; exit 3"
      when: case == 'program'
    - name: Call a module
      thefermisea.llama_cluster.gguf_verify: {path: "{{ folder }}/m.gguf"}
      when: case == 'module'
    - name: Hide it
      ansible.builtin.shell: echo secret; exit 1
      no_log: true
      when: case == 'hidden'
"""


@pytest.fixture(name="run")
def fixture_run(tmp_path):
    """run(PLAYBOOK, *arguments) -> (exit status, the lines with N for seconds)"""
    for role, tasks in (("files", ROLE), ("acceptance", ANSWER)):
        (tmp_path / "roles" / role / "tasks").mkdir(parents=True)
        (tmp_path / "roles" / role / "tasks/main.yml").write_text(tasks)
    (tmp_path / "library").mkdir()
    (tmp_path / "library/warns.py").write_text(WARNS)
    for name in ("files", "nodes"):
        (tmp_path / name).mkdir()
    variables = "ansible_connection=local ansible_python_interpreter=%s folder=%s" % (
        sys.executable,
        tmp_path / "files",
    )
    (tmp_path / "nodes/hosts").write_text("n1 %s\nn2 %s\n" % (variables, variables))

    def playbook(text, *arguments, callback=COLLECTIONS):
        (tmp_path / "play.yml").write_text(text)
        environment = {
            "ANSIBLE_COLLECTIONS_PATH": callback,
            "ANSIBLE_STDOUT_CALLBACK": "thefermisea.llama_cluster.brief",
        }
        status, lines = playbook_lines(
            tmp_path / "play.yml", "-i", str(tmp_path / "nodes"), *arguments, home=tmp_path, **environment
        )
        return status, [re.sub(r"\b\d+ s\b", "N s", line).replace(str(tmp_path), "") for line in lines]

    return playbook


def test_plays_that_change_nothing_share_a_line(run):
    assert run(QUIET) == (
        0,
        [
            "First N s, Second N s: no change",
            "warning: n1: the fabric is slow",
            "a message",
            "warning: only of n2",
            "one line",
            "  and another",
            "no change, N s",
        ],
    )


def test_changes_and_verification_are_shown(run):
    server = FakeLlamaServer()
    status, lines = run(CHANGING, "--forks", "1", "-e", "url=" + server.url)
    server.stop()
    assert (status, lines) == (
        0,
        ["Files N s: 4 changed (Write one, Write two, Write four, 1 more)", "4 changed, verified in N s"],
    )


def test_without_an_answer_nothing_is_verified(run):
    assert run(CHANGING, "--limit", "n1")[1][-1] == "4 changed, N s"


def test_check_mode_shows_what_would_differ(run):
    status, lines = run(CHANGING, "--check", "--diff", "--limit", "n1")
    shown = ["n1: Write four", "--- before", "+++ after: /files/n1", "@@ -0,0 +1 @@", "+new", ""]
    changed = "Files N s: 4 changed (Write one, Write two, Write four, 1 more)"
    assert (status, lines) == (0, [*shown, changed, "check mode: 4 tasks would change something, N s"])


@pytest.mark.parametrize(
    "case,lines",
    [
        (
            "refused",
            [
                "a.b: 2 seen, 1 is needed",
                "c.d: missing, it is needed",
                "a.b: 3 seen, 1 is needed",
                "stopped: 3 mistakes in /nodes, nothing was changed",
            ],
        ),
        (
            "filter",
            [
                "n9 is neither a host nor a group of this inventory: correct the name, or add it to hosts.yml",
                "stopped: 1 failure, no task before had changed anything; -v shows more",
            ],
        ),
        (
            "undefined",
            [
                "Read a variable: 'nowhere' is undefined",
                "stopped: 1 failure, no task before had changed anything; -v shows more",
            ],
        ),
        (
            "module",
            [
                "n1, n2: gguf_verify: /files/m.gguf: No such file or directory: fetch it, or correct the path",
                "stopped: 1 failure, no task before had changed anything; -v shows more",
            ],
        ),
    ],
)
def test_failure_is_shown_once(run, case, lines):
    status, seen = run(FAILING, "-e", "case=" + case)
    assert status != 0
    assert [re.sub("^n2, n1:", "n1, n2:", line).partition(": give a size")[0] for line in seen] == lines


@pytest.mark.parametrize(
    "given, where",
    [("e=1", "/nodes"), ("c=1", "/nodes or -e"), ("x=missing", "/nodes or -e"), ("x=true y=2", "/nodes")],
)
def test_mistake_names_its_extra_variables(run, given, where):
    assert (
        run(FAILING, "-e", "case=refused " + given)[1][-1] == "stopped: 3 mistakes in %s, nothing was changed" % where
    )


def test_failure_reports_earlier_changes(run):
    status, lines = run(FAILING, "-e", "case=program change=1", "--limit", "n2")
    assert status != 0
    assert lines[0].startswith("n2: Call a program: ") and lines[1:3] == ["  one", "  two"]
    assert lines[3:] == [
        "Checks N s: 2 changed (Change, Call a program)",
        "stopped: 1 failure, 2 tasks had changed something; -v shows more",
    ]
    status, lines = run(FAILING, "-e", "case=refused change=1", "--limit", "n2")
    assert lines[-1] == "3 findings, 1 task had changed something"


def test_hidden_output_stays_hidden(run):
    status, lines = run(FAILING, "-e", "case=hidden", "--limit", "n1")
    assert status != 0
    assert (
        "n1: Hide it: the output has been hidden due to the fact that 'no_log: true' was specified for this result"
        in lines
    )
    assert "secret" not in "".join(lines)


def test_hostile_text_forges_no_line(run):
    status, lines = run(STRANGE, "-e", json.dumps({"hostile": HOSTILE}), "--limit", "n1")
    assert status != 0
    shown = "x?]52;c;eA==???no change, verified in N s"
    assert all(line.isprintable() for line in lines), lines
    assert "no change, verified in N s" not in lines
    assert {
        shown,
        "warning: n1: " + shown,
        "n1: Change x?]52;c;eA==?",
        "+x?]52;c;eA==?",
        "+no change, verified in N s",
    } <= set(lines)
    # From the message of debug, the task's name, twice, and a program's output.
    assert lines.count("  no change, verified in N s") == 3


def test_verbose_is_ansibles_own(run):
    status, lines = run(FAILING, "-e", "case=refused", "-v")
    assert status != 0
    assert any(line.startswith("TASK [Check] ***") for line in lines) and any(
        line.startswith("PLAY RECAP ***") for line in lines
    )
    assert not any(line.startswith("stopped:") for line in lines)


LOOKING = """
- name: Look
  hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.command: "true"
      changed_when: false
    - name: End with a failure where there are findings
      ansible.builtin.fail: {msg: "%s"}
      run_once: true
"""


def test_findings_are_no_mistakes(run):
    """Findings of doctor.yml are not repeated, and a refusal of verify.yml is a sentence."""
    assert run(LOOKING % "7 findings")[1] == ["7 findings, nothing was changed"]
    assert run(LOOKING % "chat: no answer")[1] == ["chat: no answer", "1 finding, nothing was changed"]
