"""llama_drain as a task at a busy head: the request ends before the task."""

import os
import sys
import threading
import time

import pytest
from ansible_collections.thefermisea.llama_cluster.tests.unit import fake_llama_server as fake
from ansible_collections.thefermisea.llama_cluster.tests.unit.playbooks.simulation import (
    COLLECTIONS,
    done,
    run_playbook,
)

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
