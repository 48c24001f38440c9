# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs real playbooks against local nodes: the job, its progress lines, interruption and re-attachment."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.action import gguf_fetch
from ansible_collections.thefermisea.llama_cluster.tests.unit import gguf_files
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks import simulation

MODEL = gguf_files.model(12)

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - thefermisea.llama_cluster.gguf_fetch:
        urls: ["%s"]
        dest: "%s/{{ inventory_hostname }}.gguf"
      register: done
      ignore_errors: true
    - copy:
        content: "{{ done | to_json }}"
        dest: "%s/{{ inventory_hostname }}.outcome"
      check_mode: false
"""


class Control:
    def __init__(self, folder):
        self.folder = folder
        (folder / "models").mkdir()
        self.asynchronous = folder / "async"

    def write(self, url, hosts):
        """-> the arguments of a run"""
        (self.folder / "play.yml").write_text(PLAY % (url, self.folder / "models", self.folder))
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_async_dir": str(self.asynchronous),
        }
        (self.folder / "hosts.json").write_text(json.dumps({"all": {"hosts": dict.fromkeys(hosts, variables)}}))
        return [str(self.folder / "play.yml"), "-i", str(self.folder / "hosts.json")]

    def play(self, url, hosts=("node1",)):
        """A run that can be killed, and whose hosts work at once."""
        environment = {**simulation.outside(), **simulation.places(self.folder), **simulation.SETTINGS}
        environment.update(HOME=str(self.folder), ANSIBLE_CALLBACKS_ENABLED=simulation.CALLBACKS)
        return subprocess.Popen(
            [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), *self.write(url, hosts)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, url, *options, hosts=("node1",)):
        """-> (what was printed, [the module's result of each host])"""
        arguments = self.write(url, hosts)
        _status, lines = simulation.playbook_lines(*arguments, *options, home=self.folder, HOME=str(self.folder))
        return "\n".join(lines), self.outcomes()

    def outcomes(self):
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("*.outcome"))]


@pytest.fixture
def control(tmp_path):
    return Control(tmp_path)


def wait_for_bytes(fake, count, running):
    """Until the hub has sent so many bytes to this run of a playbook."""
    while fake.sent < count:
        time.sleep(0.05)
        assert running.poll() is None, running.communicate()[0]


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_several_hosts_print_whole_lines_and_publish(control, fake):
    fake.rate = 500000
    url = fake.add_plain("m.gguf", MODEL)
    output = control.play(url, hosts=("node1", "node2")).communicate(timeout=120)[0]
    for host in ("node1", "node2"):
        lines = [line for line in output.splitlines() if line.startswith(host + ": ")]
        assert lines, output
        assert all(
            line.startswith("%s: %s.gguf " % (host, host)) and "% (" in line and " of 12.6 MB), " in line
            for line in lines
        )
        assert (control.folder / "models" / (host + ".gguf")).read_bytes() == MODEL
    assert [outcome["changed"] for outcome in control.outcomes()] == [True, True]
    assert left(control.asynchronous) == []
    _output, outcomes = control.run(url, hosts=("node1", "node2"))
    assert [outcome["changed"] for outcome in outcomes] == [False, False]


def test_poll_beside_first_state_waits(tmp_path, monkeypatch):
    """The job writes its first state while the poll reads: that is a job that begins, not one that has ended."""
    state = tmp_path / "job.json"
    late = tmp_path / "sed"
    late.write_text(
        """#!/bin/sh\nPATH=%s\nsed "$@"\ncode=$?\necho '{"pid": %d}' >%s\nexit $code\n"""
        % (os.environ["PATH"], os.getpid(), state)
    )
    late.chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))
    action = object.__new__(gguf_fetch.ActionModule)
    monkeypatch.setattr(
        gguf_fetch.ActionModule,
        "_shell",
        lambda self, command: (
            subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True, check=False).stdout
        ),
    )
    assert action._poll(str(state)) is None
    late.unlink()
    state.write_text('{"pid": %d}' % os.getpid())
    assert action._poll(str(state)) == {"pid": os.getpid(), "alive": True}
    state.write_text('{"pid": 0}')
    assert action._poll(str(state)) == {"pid": 0, "alive": False}


def test_check_mode_transfers_nothing(control, fake):
    output, (outcome,) = control.run(fake.add_plain("m.gguf", MODEL), "--check")
    assert (outcome["changed"], outcome["transferred"], left(control.folder / "models")) == (True, 0, []), output


def test_refusal_is_modules_own_sentence(control, fake):
    url = fake.add_plain("m.gguf", MODEL[:-1])
    output, (outcome,) = control.run(url)
    assert outcome["failed"] is True
    assert outcome["msg"].startswith("gguf_fetch: %s: " % url), output
    assert left(control.asynchronous) == []


def test_interrupted_run_is_followed_by_next(control, fake):
    fake.rate = 400000
    url = fake.add_plain("m.gguf", MODEL)
    first = control.play(url)
    wait_for_bytes(fake, 3 << 20, first)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    (state,) = control.asynchronous.glob("gguf_fetch-*.json")
    job = json.loads(state.read_text())["pid"]
    os.kill(job, 0)
    fake.rate = 0
    output, (outcome,) = control.run(url)
    assert (outcome["changed"], outcome["resumed"]) == (True, 0), output  # one and the same job from start to end
    assert outcome["transferred"] == len(MODEL)
    assert (control.folder / "models" / "node1.gguf").read_bytes() == MODEL
    assert left(control.asynchronous) == []


def test_killed_job_is_reported_and_resumed(control, fake):
    fake.rate = 400000
    url = fake.add_plain("m.gguf", MODEL)
    running = control.play(url)
    wait_for_bytes(fake, 5 << 20, running)
    (state,) = control.asynchronous.glob("gguf_fetch-*.json")
    os.kill(json.loads(state.read_text())["pid"], signal.SIGKILL)
    output = running.communicate(timeout=60)[0]
    assert "gguf_fetch: the job on the node ended without a result" in output
    fake.rate = 0
    output, (outcome,) = control.run(url)
    assert outcome["resumed"] > 1 << 20, output
    assert outcome["resumed"] + outcome["transferred"] == len(MODEL)
    assert left(control.asynchronous) == []


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (
            {"phase": "fetch", "done": 26 * 10**9, "total": 77 * 10**9, "rate": 5e8},
            "33 % (26.0 GB of 77.0 GB), 500.0 MB/s, 1 min 43 s left",
        ),
        (
            {"phase": "fetch", "done": 0, "total": 77 * 10**9, "rate": 0.0},
            "0 % (0 bytes of 77.0 GB), waiting for the source",
        ),
        (
            {"phase": "verify", "done": 77 * 10**9, "total": 77 * 10**9, "rate": 5e8},
            "100 % (77.0 GB of 77.0 GB), hashing the rest",
        ),
        (
            {"phase": "hash", "done": 10**9, "total": 2 * 10**9, "rate": 1e9},
            "hashing 50 % (1.0 GB of 2.0 GB), 1.0 GB/s, 2 s left",
        ),
    ],
)
def test_lines(state, text):
    assert gguf_fetch.progress_text(state) == text
