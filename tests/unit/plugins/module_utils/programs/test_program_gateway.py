# Copyright: The Fermi Sea
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of program gateway, with a socket that somebody else holds, as systemd does."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from ansible_collections.thefermisea.llama_cluster.plugins.module_utils.programs import gateway
from ansible_collections.thefermisea.llama_cluster.tests.unit.fake_gateway import (
    Gateway,
    Server,
    chat,
    configuration,
    plain,
    service,
    wait_for,
)

UTILS = Path(__file__).resolve().parents[5] / "plugins/module_utils"


class Unit(Gateway):
    """The unit as systemd runs it: its socket, its notifications, and its process."""

    def __init__(self, folder, config):
        self.files, self.socket, self.folder = str(folder), str(folder / "s"), folder
        self.write("gateway.json", config)
        self.write("keys.json", {"clients": {}, "services": {}})
        (folder / "lib").mkdir()
        (folder / "lib/llama_cluster").symlink_to(UTILS)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.socket)
        self._listener.listen(64)
        self._notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notified.bind(str(folder / "notify"))
        self._notified.settimeout(10)
        self.main = None

    def start(self, ready=True, log=None):
        program = [sys.executable, "-B", "-m", "llama_cluster.programs.gateway", "--config", self.files]
        for name in ("draining", "registry"):
            program += ["--" + name, str(self.folder / (name + ".json"))]
        environment = dict(
            os.environ,
            PYTHONPATH=str(self.folder / "lib"),
            LISTEN_FDS="1",
            NOTIFY_SOCKET=str(self.folder / "notify"),
            WATCHDOG_USEC="300000",
        )
        with open(log or self.folder / "log", "a") as output:
            self.main = subprocess.Popen(
                ["sh", "-c", 'exec 3<&0 </dev/null; export LISTEN_PID=$$; exec "$@"', "sh", *program],
                stdin=self._listener,
                stdout=output,
                stderr=output,
                env=environment,
            )
        if ready:
            self.hear("READY=1")
        return self

    def hear(self, word):
        # Pings of the watchdog come meanwhile.
        wait_for(lambda: word in self._notified.recv(4096).decode(), 20)

    @property
    def worker(self):
        return int(Path("/proc/%d/task/%d/children" % (self.main.pid, self.main.pid)).read_text().split()[0])

    @property
    def said(self):
        return (self.folder / "log").read_text()

    def stop(self):
        if self.main and self.main.poll() is None:
            self.main.terminate()
            self.main.wait(10)


def lives(pid):
    try:
        return Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def unit(tmp_path):
    units = []

    def make(services):
        units.append(Unit(tmp_path, configuration(services)))
        return units[-1]

    yield make
    for one in units:
        one.stop()


def test_restart_costs_no_request(unit):
    def act(_server, end):
        time.sleep(0.05)
        end.sendall(plain(b"1"))

    made = unit(service("big", Server(act=act), queue=64)).start()
    found, over = [], threading.Event()

    def ask():
        while not over.is_set():
            found.append(made.ask(body=chat())[0])

    threads = [threading.Thread(target=ask) for _one in range(8)]
    for thread in threads:
        thread.start()
    workers = []
    for end in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        enough = len(found) + 8
        wait_for(lambda enough=enough: len(found) > enough)
        workers.append(made.worker)
        made.main.send_signal(end)
        made.main.wait(10)
        made.start()
    over.set()
    for thread in threads:
        thread.join(10)
    assert set(found) == {200}
    wait_for(lambda: not any(lives(worker) for worker in workers))
    assert os.path.exists(made.socket)


def test_old_worker_answers_its_running_requests(unit):
    goes_on = threading.Event()

    def act(_server, end):
        assert goes_on.wait(20)
        end.sendall(plain(b'"old"'))

    server = Server(act=act)
    made = unit(service("big", server)).start()
    found = []
    thread = threading.Thread(target=lambda: found.append(made.ask(body=chat())[::2]))
    thread.start()
    wait_for(lambda: server.requests)
    worker = made.worker
    made.main.kill()
    made.main.wait(10)
    made.start()
    assert made.ask("/health")[0] == 200
    assert lives(worker)
    goes_on.set()
    thread.join(10)
    assert found == [(200, "old")]
    wait_for(lambda: not lives(worker))


def test_engine_without_a_socket_is_refused(monkeypatch, capsys):
    monkeypatch.delenv("LISTEN_PID", raising=False)
    assert gateway.main([]) == 78
    assert "systemd has passed no socket" in capsys.readouterr().out


def test_engine_serves_with_a_full_disk(unit):
    made = unit(service("big", Server()))
    made.start(log="/dev/full")
    assert [made.ask(body=chat())[0] for _one in range(3)] == [200] * 3
    made.write("gateway.json", configuration(service("big", Server("other"))))
    made.main.send_signal(signal.SIGHUP)
    made.hear("READY=1")
    wait_for(lambda: made.ask(body=chat())[2] == {"model": "other"})


def test_killed_worker_ends_the_unit(unit):
    made = unit({}).start()
    os.kill(made.worker, signal.SIGKILL)
    assert made.main.wait(10) == 1


def test_watchdog_signal_kills_a_hanging_worker(unit):
    made = unit({}).start()
    made.hear("WATCHDOG=1")
    worker = made.worker
    os.kill(worker, signal.SIGSTOP)
    made.main.send_signal(signal.SIGABRT)
    assert made.main.wait(10) == 1
    wait_for(lambda: not lives(worker))


def test_unusable_configuration_is_refused(unit):
    made = unit({})
    made.write("gateway.json", {"version": 3})
    made.start(ready=False)
    # The unit's RestartPreventExitStatus.
    assert made.main.wait(10) == 78
    assert "gateway.json cannot be used (ValueError: version or auth): run site.yml" in made.said
    assert "Traceback" not in made.said
