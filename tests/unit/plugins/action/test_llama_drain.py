"""The wait for a head's requests, with given results of llama_health."""

import os
import sys
import threading
import time
from unittest import mock

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.action import llama_drain, llama_long_prompt
from ansible_collections.thefermisea.llama_cluster.plugins.plugin_utils import _progress
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    done,
    run_playbook,
)

BUSY = {"state": "busy", "reason": "1 of 1 slots work"}
IDLE = {"state": "ready", "reason": "it is idle"}


@pytest.fixture
def drain(monkeypatch):
    """drain(answers, timeout, check) -> (result, lines); time passes only while it sleeps."""
    clock, lines = [0.0], []
    monkeypatch.setattr(llama_drain.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(llama_drain.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(_progress.display, "display", lambda line, **_options: lines.append(line))

    def run(answers, timeout=60, check=False):
        task = mock.MagicMock(
            args={"url": "http://127.0.0.1:1", "unit": "llama-head-chat.service", "timeout": timeout},
            check_mode=check,
            async_val=0,
        )
        action = llama_drain.ActionModule(task, mock.MagicMock(), mock.MagicMock(), None, None, None)
        left = iter(answers)
        last = []

        def health(**_options):
            last[:] = [next(left, last[0] if last else None)]
            return last[0]

        monkeypatch.setattr(action, "_execute_module", health)
        return action.run(task_vars={"inventory_hostname": "node1"}), lines

    return run


def test_idle_head_is_drained_at_once(drain):
    result, lines = drain([IDLE])
    assert (result["drained"], result["seconds"], result["changed"], lines) == (True, 0.0, False, [])


def test_wait_is_shown_every_ten_seconds(drain):
    result, lines = drain([BUSY] * 8 + [IDLE])
    assert result["drained"] and result["seconds"] == 16.0
    assert lines == [
        "node1: llama-head-chat.service 1 of 1 slots work, waiting 1 min 00 s more",
        "node1: llama-head-chat.service 1 of 1 slots work, waiting 50 s more",
    ]


def test_drain_ends_with_its_timeout(drain):
    result, lines = drain([BUSY], timeout=5)
    assert not result["drained"] and result["seconds"] == 5.0 and "failed" not in result
    assert lines[0] == "node1: llama-head-chat.service 1 of 1 slots work, waiting 5 s more"
    assert lines[-1] == "node1: llama-head-chat.service 1 of 1 slots work, 5 s is over: stopped nevertheless"


def test_check_mode_does_not_wait(drain):
    result, lines = drain([BUSY], check=True)
    assert (result["drained"], result["seconds"], lines) == (False, 0.0, [])


def test_failed_probe_fails(drain):
    result, _lines = drain(
        [{"failed": True, "msg": "llama_health: unit llama-head-chat.service does not exist on this node"}]
    )
    assert result["failed"] and result["msg"].startswith("llama_health: unit")


# There is no systemd where unit tests run: this process is the head.
STUB = (
    "#!/bin/sh\nprintf "
    "'Id=llama-head-chat.service\\nLoadState=loaded\\nActiveState=active\\nSubState=running\\nMainPID=%s\\n'\n"
)
PLAY = """
- hosts: node1
  gather_facts: false
  tasks:
    - thefermisea.llama_cluster.llama_drain: {url: "%s", unit: llama-head-chat.service, timeout: 60}
      register: drained
    - ansible.builtin.debug: {msg: "drained {{ drained.drained }}, {{ drained.reason }}"}
"""


@pytest.fixture
def working():
    """A head that is busy until `ended` is set."""
    server = fake.FakeLlamaServer()
    server.ended = threading.Event()
    server.responses["/slots"] = lambda: (200, [fake.IDLE if server.ended.is_set() else fake.WORKING])
    server.responses["/metrics"] = lambda: fake.metrics(processing=int(not server.ended.is_set()))
    yield server
    server.stop()


def test_running_request_ends_first(working, tmp_path):
    (tmp_path / "stub_systemctl").write_text(STUB % os.getpid())
    (tmp_path / "stub_systemctl").chmod(0o755)
    (tmp_path / "systemctl").symlink_to("stub_systemctl")
    (tmp_path / "play.yml").write_text(PLAY % working.url)
    ended = []

    def end():
        # After its first probe it stays busy for three seconds.
        while not any(path.startswith("/slots") for _method, path, _body in working.requests):
            time.sleep(0.1)
        time.sleep(3)
        ended.append(True)
        working.ended.set()

    threading.Thread(target=end, daemon=True).start()
    settings = ("-i", "node1,", "-e", "ansible_connection=local ansible_python_interpreter=%s" % sys.executable)
    path = "%s:%s" % (tmp_path, os.environ["PATH"])
    output = done(
        run_playbook(tmp_path / "play.yml", *settings, home=tmp_path, ANSIBLE_COLLECTIONS_PATH=COLLECTIONS, PATH=path)
    )
    assert ended and "drained True, " in output
    assert "node1: llama-head-chat.service 1 of 1 slots work" in output and " s more" in output


@pytest.fixture
def fill(monkeypatch):
    """fill(answers, timeout) -> (result, lines, what the module was asked); each part takes ten seconds."""
    clock, lines, asked = [0.0], [], []
    monkeypatch.setattr(llama_long_prompt.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(_progress.display, "display", lambda line, **_options: lines.append(line))

    def run(answer, timeout=3600):
        task = mock.MagicMock(
            args={"url": "http://127.0.0.1:1", "unit": "llama-head-chat.service", "timeout": timeout}, async_val=0
        )
        action = llama_long_prompt.ActionModule(task, mock.MagicMock(), mock.MagicMock(), None, None, None)

        def module(module_args, **_options):
            asked.append(module_args)
            clock[0] += 10
            return answer(module_args["part"])

        monkeypatch.setattr(action, "_execute_module", module)
        return action.run(task_vars={"inventory_hostname": "node1"}), lines, asked

    return run


def part(number):
    return {"state": "ready", "reason": "", "tokens": 368 * number, "whole": 3680, "slot": 4096, "seconds": 9.5}


def test_ten_parts_with_a_line_each(fill):
    result, lines, asked = fill(part)
    assert (result["tokens"], result["slot"], result["seconds"], result["changed"]) == (3680, 4096, 95.0, False)
    assert result["said"] == "3680 of the 4096 tokens of a slot read in 1 min 35 s"
    assert lines[0] == "node1: llama-head-chat.service has read 368 of 3680 tokens"
    assert lines[4] == "node1: llama-head-chat.service has read 1840 of 3680 tokens, 50 s left"
    assert [one["part"] for one in asked] == list(range(1, 11)) and asked[3]["timeout"] == 3570


def test_time_that_is_over_is_said(fill):
    result, _lines, asked = fill(part, timeout=25)
    assert len(asked) == 3
    assert result["said"] == "1104 of the 4096 tokens of a slot read in 28 s, then given up: its 25 s are over"


def test_others_come_first(fill):
    busy = dict(part(0), state="busy", reason="1 of 1 slots work")
    result, _lines, _asked = fill(lambda number: part(number) if number < 3 else busy)
    assert result["said"] == "736 of the 4096 tokens of a slot read in 19 s, then given up: 1 of 1 slots work"
    result, _lines, _asked = fill(lambda number: busy)
    assert result["said"] == "not read, then given up: 1 of 1 slots work"


def test_what_fails_ends_it(fill):
    result, _lines, asked = fill(lambda number: {"failed": True, "msg": "http://127.0.0.1:1: a prompt of 368 tokens"})
    assert result["failed"] and len(asked) == 1
