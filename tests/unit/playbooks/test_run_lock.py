# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run at a time changes the nodes: real runs of ansible-playbook, side by side, whose nodes are directories."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.thefermisea.llama_cluster.plugins.action import run_lock
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _run_lock
from ansible_collections.thefermisea.llama_cluster.tests.unit.other_users import give_away
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    ROOT,
    outside,
    places,
)

LOCK = {"path": "{{ folder }}/{{ inventory_hostname }}/run.lock", "wait": "{{ wait | default(false) }}"}
PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {"thefermisea.llama_cluster.run_lock": LOCK, "register": "locked"},
            {"ansible.builtin.assert": {"that": "locked.taken", "quiet": True}},
            # Another task of the same run has it too.
            {"thefermisea.llama_cluster.run_lock": LOCK},
            {"ansible.builtin.raw": "touch {{ folder }}/at-work; sleep {{ seconds }}", "changed_when": False},
        ],
    }
]


class Nodes:
    def __init__(self, folder):
        self.folder = folder
        self.environment = {**outside(), **places(folder), "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS}
        self.environment["ANSIBLE_STDOUT_CALLBACK"] = "default"
        (folder / "site.yml").write_text(json.dumps(PLAY))

    def start(self, *arguments, seconds=0):
        extra = ["-e", "folder=%s seconds=%s" % (self.folder, seconds), *arguments]
        command = [sys.executable, "-m", "ansible.cli.playbook", "-i", "n1,n2,", "-c", "local", *extra]
        return subprocess.Popen(
            [*command, str(self.folder / "site.yml")],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def done(self, *arguments):
        process = self.start(*arguments)
        output = process.communicate(timeout=60)[0]
        return process.returncode, " ".join(output.split())

    def at_work(self):
        """A run that holds the locks."""
        process = self.start(seconds=60)
        until((self.folder / "at-work").exists)
        return process

    def locks(self):
        return sorted(self.folder.glob("n*/run.lock"))


def until(true):
    for _try in range(300):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError("not in 30 s")


@pytest.fixture(name="nodes")
def fixture_nodes(tmp_path):
    return Nodes(tmp_path)


def test_second_run_is_refused_or_waits(nodes):
    first = nodes.at_work()
    try:
        status, output = nodes.done("--limit", "n2")
        assert status != 0
        assert "n2: cannot change anything while another run does (site.yml of " in output
        assert "process %d, since 20" % first.pid in output
        assert len(nodes.locks()) == 2
        waiting = nodes.start("-e", "wait=true")
        time.sleep(4)
        assert waiting.poll() is None
    finally:
        # However it ends: its whole session but what keeps the lock.
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    assert waiting.communicate(timeout=60)[0] and waiting.returncode == 0
    until(lambda: not nodes.locks())


def test_run_leaves_no_lock(nodes):
    status, output = nodes.done()
    assert status == 0 and output.count("changed=0") == 2, output
    until(lambda: not nodes.locks())


def sh(step, path, run, ended=""):
    command = _run_lock.script(step, str(path), run, ended)
    found = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return found.returncode, found.stdout


def run_of(pid=1, host="desk", start="7"):
    return _run_lock.Run("ann", host, "m", pid, start, "site.yml", "2026-11-27 10:02 UTC")


def test_lock_of_a_lost_controller_expires(tmp_path):
    lock = tmp_path / "made" / "run.lock"
    ann, bob = run_of(1), run_of(2, "laptop")
    assert sh(_run_lock.TAKE, lock, ann) == (0, "")
    assert sh(_run_lock.TAKE, lock, ann) == (0, ""), "the same run"
    status, said = sh(_run_lock.TAKE, lock, bob)
    assert status == _run_lock.HELD
    held, record = _run_lock.holder(said)
    assert (held, _run_lock.words(record)) == (
        ann.id,
        "site.yml of ann on desk, process 1, since 2026-11-27 10:02 UTC",
    )
    # It neither renews nor removes the lock of another run.
    assert sh(_run_lock.RENEWED, lock, bob)[0] == _run_lock.HELD
    assert sh(_run_lock.RELEASED, lock, bob)[0] == 0 and lock.exists()
    os.utime(lock, (0, time.time() - _run_lock.STALE - 1))
    assert sh(_run_lock.RENEWED, lock, ann)[0] == 0
    assert sh(_run_lock.TAKE, lock, bob)[0] == _run_lock.HELD, "it was renewed"
    os.utime(lock, (0, time.time() - _run_lock.STALE - 1))
    assert sh(_run_lock.TAKE, lock, bob) == (0, "")
    assert lock.stat().st_mode & 0o777 == 0o600, "another user could open it and hold up every run"
    assert sh(_run_lock.RELEASED, lock, bob)[0] == 0


def test_released_lock_leaves_nothing(tmp_path):
    lock, own = tmp_path / "made" / "run.lock", run_of()
    assert sh(_run_lock.TAKE, lock, own) == (0, "")
    assert [path.name for path in lock.parent.iterdir()] == ["run.lock"]
    assert sh(_run_lock.RELEASED, lock, own) == (0, "")
    assert sh(_run_lock.RENEWED, lock, own) == (0, "")
    assert sh(_run_lock.RELEASED, lock, own) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_one_of_many_calls_gets_the_lock(tmp_path):
    lock = tmp_path / "made" / "run.lock"
    for _round in range(5):
        runs = [run_of(number) for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda run: sh(_run_lock.TAKE, lock, run)[0], runs))
        assert sorted(found) == [0] + [_run_lock.HELD] * 7
        # A run that takes the lock while it is removed has a file that exists.
        with ThreadPoolExecutor(2) as pool:
            released = pool.submit(sh, _run_lock.RELEASED, lock, runs[found.index(0)])
            taken = pool.submit(sh, _run_lock.TAKE, lock, run_of(9))
        assert released.result()[0] == 0
        assert (taken.result()[0] == 0) is lock.exists()
        sh(_run_lock.RELEASED, lock, run_of(9))


@pytest.mark.parametrize(
    "text", ["", "x", "\0" * 2000, "{}", "a" * 5000 + " [1]", 'y {"user": "\\u001b[2J", "pid": []}']
)
def test_damaged_lock_is_reported_and_expires(tmp_path, text):
    lock = tmp_path / "run.lock"
    lock.write_text(text)
    status, said = sh(_run_lock.TAKE, lock, run_of())
    assert status in (0, _run_lock.HELD) and len(said) <= 1001
    assert lock.stat().st_mode & 0o777 == 0o600, "another user could open it and hold up every run"
    if status:
        assert "\x1b" not in _run_lock.refusal("n1", _run_lock.holder(said)[1])
        assert not _run_lock.has_ended(_run_lock.holder(said)[1], run_of())
        os.utime(lock, (0, 0))
        assert sh(_run_lock.TAKE, lock, run_of())[0] == 0


def test_ended_run_of_this_machine_is_known():
    own = _run_lock.this_run(os.getpid(), ["playbooks/site.yml"], "now")
    assert own.playbook == "site.yml" and not _run_lock.has_ended(own._asdict(), own)
    other = subprocess.Popen(["true"])
    there = _run_lock.this_run(other.pid, [], "now")
    until(lambda: not _run_lock.lives(other.pid))  # a zombie
    assert _run_lock.has_ended(there._asdict(), own)
    other.wait()
    assert _run_lock.has_ended(there._asdict(), own)
    # Its number may belong to another process now; a process of another machine is unknown.
    assert _run_lock.has_ended(dict(own._asdict(), start="1"), own)
    assert not _run_lock.has_ended(dict(there._asdict(), host="laptop"), own)


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "dangling", "another user's"])
def test_lock_must_be_a_regular_file(tmp_path, kind):
    lock, other = tmp_path / "run.lock", tmp_path / "other"
    {
        "fifo": lambda: os.mkfifo(lock),
        "directory": lock.mkdir,
        "link": lambda: (other.touch(), lock.symlink_to(other)),
        "dangling": lambda: lock.symlink_to(other),
        "another user's": lambda: (lock.touch(), give_away(lock)),
    }[kind]()
    assert sh(_run_lock.TAKE, lock, run_of())[0] == _run_lock.CANNOT
    assert kind != "dangling" or not other.exists()


def test_lock_from_the_future_expires_from_now(tmp_path):
    lock = tmp_path / "run.lock"
    assert sh(_run_lock.TAKE, lock, run_of(1))[0] == 0
    os.utime(lock, (0, time.time() + 10**8))
    assert sh(_run_lock.TAKE, lock, run_of(2))[0] == _run_lock.HELD
    assert abs(lock.stat().st_mtime - time.time()) < 30


@pytest.mark.parametrize("pid", [True, 0, -1, 1 << 22, 10**30, "1", 1.5, None])
def test_impossible_process_has_not_ended(pid):
    own = _run_lock.this_run(os.getpid(), [], "now")
    assert not _run_lock.has_ended(dict(own._asdict(), pid=pid, start="1"), own)


class Task(run_lock.ActionModule):
    """The action on a node that gives these answers."""

    def __init__(self, *answers, **arguments):
        task = SimpleNamespace(
            args=arguments,
            delegate_to=None,
            async_val=0,
            check_mode=False,
            diff=False,
            action="run_lock",
            environment=[],
        )
        super().__init__(task, mock.MagicMock(), mock.MagicMock(), None, None, None)
        self.answers, self.kept = list(answers), []

    def _asked(self, step, ended=""):
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"rc": answer[0], "stdout": answer[1], "stderr": ""}

    def _keep(self, node):
        self.kept.append(node)

    def result(self, hosts=("n1",)):
        return self.run(None, {"inventory_hostname": "n1", "ansible_play_hosts": list(hosts)})


def test_unlockable_node_is_refused():
    found = Task((_run_lock.CANNOT, "no room\nno room\nit is full\n")).result()
    assert found["failed"] and found["msg"].endswith("anything because no room, it is full")
    # Root is refused: preflight reports it for a node of the play; for another node the lock has to.
    assert Task((1, "sudo: no")).result()["taken"] is False
    assert Task((1, "sudo: no")).result(["n2"])["failed"]
    assert Task(AnsibleError("Incorrect sudo password")).result(["n2"])["failed"]
    assert Task(AnsibleConnectionFailure("away")).result(["n2"])["taken"] is False


def test_a_wait_has_an_end(monkeypatch):
    clock = iter(range(0, 10**6, 3600))
    monkeypatch.setattr(run_lock.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(run_lock.time, "sleep", lambda _seconds: None)
    found = Task((_run_lock.HELD, run_of(host="elsewhere").line()), wait=True).result()
    assert found["failed"] and "waits for it up to 12 hours" in found["msg"] and next(clock) == 13 * 3600


def test_run_that_lost_its_lock_ends(nodes):
    first = nodes.at_work()
    try:
        (nodes.folder / "n1" / "run.lock").write_text(run_of(host="laptop").line() + "\n")
        output = first.communicate(timeout=45)[0]
    finally:
        if first.poll() is None:
            os.killpg(first.pid, signal.SIGKILL)
    assert first.returncode != 0
    assert "n1: cannot go on because another run took the lock" in " ".join(output.split())
    until(lambda: nodes.locks() == [nodes.folder / "n1" / "run.lock"])


LOOKS = ["bundle", "clients", "decisions", "doctor", "logs", "plan", "status", "verify"]


def text_of(path):
    """A playbook with those that it imports."""
    text = path.read_text()
    named = re.findall(r"import_playbook: (?!.*_preflight).*", text) + re.findall(r"^ +else '.*yml", text, re.MULTILINE)
    return text + "".join(text_of(path.with_name(name)) for one in named for name in re.findall(r"\w+\.yml", one))


@pytest.mark.parametrize("path", sorted((ROOT / "playbooks").glob("[a-z]*.yml")), ids=lambda path: path.stem)
def test_only_playbooks_that_change_something_take_locks(path):
    parts = ["_switch_model", "_keep_model"] if path.stem == "switch_model" else [path.stem]
    for part in parts:
        own = path.with_name(part + ".yml")
        locks = "_locks: true" in text_of(own) or "tasks_from: lock.yml" in own.read_text()
        assert locks is (path.stem not in LOOKS), part
